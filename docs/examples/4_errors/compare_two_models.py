"""
Compare two models
==================

The new model has a higher accuracy. Is that luck, and which images that were right before are wrong now? The same
images are judged by both, so the comparison is paired.
"""

import matplotlib.pyplot as plt
import numpy as np

import secondguess as sg

digits = sg.load("mnist5k")
models = []
for name, epochs in (("before", 4), ("after", 8)):
    network = sg.zoo.make("lenet", input_shape=digits.train.shape, seed=epochs)
    sg.train(network, digits.train.images, digits.train.labels, epochs=epochs)
    models.append(sg.Classifier(network, name=name))
found = sg.compare(*models, digits.test, stress="none", minutes=None)
found

# %%
# Only the images on which the two differ say anything about the accuracy: McNemar's test. With ten classes tested at
# once, one of them easily looks worse by chance; the p-values are corrected for that.

recalls = [one for one in found.measures if one.family == "class"]
figure, axis = plt.subplots(figsize=(6, 3))
for place, one in enumerate(recalls):
    interval = one.change.interval
    axis.plot([100 * interval.low, 100 * interval.high], [place, place], lw=3)
    axis.plot(100 * interval.value, place, "o", color="black")
axis.axvline(0, color="grey", linestyle="--")
axis.set(
    yticks=range(len(recalls)), yticklabels=[one.title for one in recalls], xlabel="change, points", ylabel="class"
)
figure.tight_layout()
print(min(one.p_value for one in recalls))

# %%
# Negative flips: right before, wrong now. A user notices these, whatever the accuracy says.

pair = found.nominal
lost = np.flatnonzero(pair.before.right & pair.after.wrong)
figure, axes = plt.subplots(1, 8, figsize=(9, 1.7))
for axis, row in zip(axes, lost, strict=False):
    axis.imshow(digits.test.images[row][0], cmap="gray")
    axis.set_title(f"{pair.before.predicted[row]} → {pair.after.predicted[row]}", fontsize=10)
for axis in axes:
    axis.axis("off")
figure.tight_layout()

# %%
# ``found.save(folder)`` writes the page, and the same as a comment for a pull request. In continuous integration,
# ``secondguess compare before/ after/ --no-worse-than 0.5`` fails where more than half a point was lost.

print(found.markdown()[:400])
