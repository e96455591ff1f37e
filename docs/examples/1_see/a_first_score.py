"""
Score a model
=============

A supervisor gives every prediction one number: how suspicious it is. Here the entropy of the softmax ranks the test
images of a small network, and the most suspicious ones are shown.
"""

import matplotlib.pyplot as plt

import secondguess as sg

# %%
# A model and its images. Yours would be ``sg.Classifier.open("model.onnx")`` and ``sg.load("photos/")``.

digits = sg.load("mnist5k")
network = sg.zoo.make("lenet", input_shape=digits.train.shape, seed=0)
sg.train(network, digits.train.images, digits.train.labels, epochs=8)
classifier = sg.Classifier(network, class_names=digits.class_names)

# %%
# One look at all test images, then one score for each. Larger is more suspicious, for every supervisor.

seen = classifier.observe(digits.test)
scores = sg.supervisors.make("entropy").score(seen)
print(f"{seen.correct.mean():.1%} right; scores from {scores.min():.2f} to {scores.max():.2f}")

# %%
# The ten most suspicious predictions, the wrong ones in red.

figure, axes = plt.subplots(2, 5, figsize=(8, 3.8))
for axis, row in zip(axes.flat, (-scores).argsort(), strict=False):
    axis.imshow(digits.test.images[row][0], cmap="gray")
    colour = "black" if seen.correct[row] else "crimson"
    axis.set_title(f"{seen.predictions[row]}, really {seen.labels[row]}", color=colour, fontsize=10)
    axis.axis("off")
figure.tight_layout()
