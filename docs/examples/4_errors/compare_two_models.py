"""
Compare two models
==================

The new model has a higher accuracy. Is that luck, and which images that were right before are wrong now? The same
images are judged by both, so the comparison is paired.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import binomtest

import secondguess as sg

digits = sg.load("mnist5k")
seen = {}
for name, epochs in (("before", 4), ("after", 8)):
    network = sg.zoo.make("lenet", input_shape=digits.train.shape, seed=epochs)
    sg.train(network, digits.train.images, digits.train.labels, epochs=epochs)
    seen[name] = sg.Classifier(network, name=name).observe(digits.test)
    print(name, sg.metrics.accuracy_interval(seen[name].predictions, seen[name].labels))

# %%
# Only the images on which the two differ say anything: those won and those lost. The sign test asks whether it was
# luck.

before, after = seen["before"].correct, seen["after"].correct
won, lost = np.flatnonzero(~before & after), np.flatnonzero(before & ~after)
print(f"{len(won)} won, {len(lost)} lost, p = {binomtest(len(won), len(won) + len(lost)).pvalue:.4f}")

# %%
# Negative flips: right before, wrong now. A user notices these, whatever the accuracy says.

figure, axes = plt.subplots(1, 8, figsize=(9, 1.7))
for axis, row in zip(axes, lost, strict=False):
    axis.imshow(digits.test.images[row][0], cmap="gray")
    axis.set_title(f"{seen['before'].predictions[row]} → {seen['after'].predictions[row]}", fontsize=10)
for axis in axes:
    axis.axis("off")
figure.tight_layout()
