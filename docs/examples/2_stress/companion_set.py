"""
A companion set
===============

Ambiguous images for a benchmark, each with the judgement of many small classifiers. Here a pixel blend takes the
place of the GAN that the paper trains for an hour, and five classifiers that of fifty.
"""

import matplotlib.pyplot as plt
import numpy as np

import secondguess as sg
from secondguess.stress.ambiguous import AmbiguityEstimator, PixelBlend

digits = sg.load("digits")
estimator = AmbiguityEstimator((9, 8), members=5, epochs=20, batch_size=50)
estimator.fit(digits.train)

# %%
# Candidates between 9 and 8, and what the five classifiers say of each: the probability of a 9.

candidates = PixelBlend(pairs=[(9, 8)]).generate(digits.train, 300).images
mean = estimator.predict(candidates.images[:])
chosen = np.argsort(np.abs(mean - 0.5))[:100]
print(f"of 300 candidates, the 100 most ambiguous have a mean probability of {mean[chosen].mean():.2f}")

# %%
# The companion set: where the judges hesitate.

figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3))
left.hist(mean, 25)
left.hist(mean[chosen], 25, color="crimson")
left.set(xlabel="mean probability of a 9", ylabel="images")
sheet = candidates.images[:][chosen[:24], 0].reshape(3, 8, 8, 8).transpose(0, 2, 1, 3).reshape(24, 64)
right.imshow(sheet, cmap="gray")
right.axis("off")
figure.tight_layout()
