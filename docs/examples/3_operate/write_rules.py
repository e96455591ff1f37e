"""
Write rules
===========

What you know of your domain finds mistakes that no softmax admits: this door never sees a ship. A rule says which
labels can occur in which part of the input.
"""

import matplotlib.pyplot as plt
import numpy as np

import secondguess as sg
from secondguess.accuracy.oracles.icos import InputRules, Partition

digits = sg.load("digits")
network = sg.zoo.make("fully_connected", input_shape=digits.train.shape, seed=0)
sg.train(network, digits.train.images, digits.train.labels, epochs=3)

# %%
# Suppose the west door has the numbers 0 to 4 and the east door 5 to 9; the door is the first part of an image's
# id.

labels = digits.test.labels
ids = [f"{'west' if label < 5 else 'east'}/{row}.png" for row, label in enumerate(labels)]
rules = InputRules(
    [Partition("west", [0, 1, 2, 3, 4], ids=["west/*"]), Partition("east", [5, 6, 7, 8, 9], ids=["east/*"])]
)
print(rules.allowed([str(k) for k in range(10)]).astype(int))

# %%
# Predictions that break a rule are wrong for certain, however sure the model is of them.

seen = sg.Classifier(network).observe(digits.test)
possible = rules.allowed([str(k) for k in range(10)])
door = np.array([0 if one.startswith("west") else 1 for one in ids])
broken = ~possible[door, seen.predictions]
wrong = ~seen.correct
print(f"{broken.sum()} predictions break a rule: {(wrong & broken).sum()} of the {wrong.sum()} mistakes")


# %%
# The surest of them.

surest = np.flatnonzero(broken)[np.argsort(-seen.confidences[broken])][:8]
figure, axes = plt.subplots(1, 8, figsize=(9, 1.8))
for axis, row in zip(axes, surest, strict=False):
    axis.imshow(digits.test.images[row][0], cmap="gray")
    axis.set_title(f"{seen.predictions[row]}? {seen.confidences[row]:.0%}\n{ids[row].split('/')[0]} door", fontsize=8)
for axis in axes:
    axis.axis("off")
figure.tight_layout()
