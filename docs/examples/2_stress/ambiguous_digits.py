"""
Ambiguous digits
================

Images to which two classes are right, with a soft label that says how much each. AmbiGuess makes them from your own
training images; this is a quick and small run of it.
"""

import matplotlib.pyplot as plt

import secondguess as sg
from secondguess.stress.ambiguous import AmbiGuess

digits = sg.load("mnist5k")
guess = AmbiGuess(pairs=[(3, 8)], autoencoders=3, epochs=30, realism=False)
made = guess.generate(digits.train, 16)
print(f"{len(made.images)} images between 3 and 8")

# %%
# What they are, and how much of each class.

figure, axes = plt.subplots(2, 8, figsize=(9, 2.9))
for axis, image, soft in zip(axes.flat, made.images.images[:], made.images.soft_labels, strict=False):
    first, second = sorted(soft.argsort()[-2:])
    axis.imshow(image[0], cmap="gray")
    axis.set_title(f"{first}: {soft[first]:.0%}\n{second}: {soft[second]:.0%}", fontsize=8)
    axis.axis("off")
figure.tight_layout()

# %%
# Does a model notice? The entropy of its answers, beside that for ordinary digits.

network = sg.zoo.make("lenet", input_shape=digits.train.shape, seed=0)
sg.train(network, digits.train.images, digits.train.labels, epochs=8)
classifier = sg.Classifier(network)
entropy = sg.supervisors.make("entropy")
ordinary, ambiguous = (entropy.score(classifier.observe(images)) for images in (digits.test, made.images))
print(f"mean entropy {ordinary.mean():.2f} on digits, {ambiguous.mean():.2f} on ambiguous ones")
