"""
Corrupted images
================

Rain, blur, noise, a dirty lens: 34 corruptions in five severities. How fast does the accuracy fall, and does the
confidence fall with it?
"""

import matplotlib.pyplot as plt
import numpy as np

import secondguess as sg

digits = sg.load("mnist5k")
network = sg.zoo.make("lenet", input_shape=digits.train.shape, seed=0)
sg.train(network, digits.train.images, digits.train.labels, epochs=8)
classifier = sg.Classifier(network)
test = digits.test.head(300, seed=0)

# %%
# One digit in five severities of five corruptions.

names = ["gaussian_noise", "motion_blur", "fog", "spatter", "rotate"]
figure, axes = plt.subplots(5, 5, figsize=(5.5, 6))
for row, name in zip(axes, names, strict=True):
    for severity, axis in enumerate(row, start=1):
        axis.imshow(sg.stress.corrupt(test.images[:1], name, severity=severity)[0, 0], cmap="gray", vmin=0, vmax=1)
        axis.set(xticks=[], yticks=[])
    row[0].set_ylabel(name, fontsize=8)
figure.tight_layout()

# %%
# Accuracy and mean confidence by severity. Where the confidence stays and the accuracy goes, nobody will notice.

figure, axes = plt.subplots(1, 5, figsize=(10, 2.6), sharey=True)
for axis, name in zip(axes, names, strict=True):
    found = [classifier.observe(sg.stress.Corrupted([name], severity=s).make(test)) for s in range(1, 6)]
    axis.plot(range(1, 6), [np.mean(seen.correct) for seen in found], label="accuracy")
    axis.plot(range(1, 6), [np.mean(seen.confidences) for seen in found], ls="--", label="confidence")
    axis.set_title(name, fontsize=9)
axes[0].legend(fontsize=8)
figure.tight_layout()
