"""
Compare supervisors
===================

Nobody sees everything. Three supervisors of different kinds are tried on the model's own mistakes, on corrupted
images and on images that show no digit at all.
"""

import matplotlib.pyplot as plt
import numpy as np

import secondguess as sg

digits = sg.load("mnist5k")
network = sg.zoo.make("lenet", input_shape=digits.train.shape, seed=0)
sg.train(network, digits.train.images, digits.train.labels, epochs=8)
classifier = sg.Classifier(network)

# %%
# Images on which the model ought to hesitate, made from the test images.

nominal = digits.test.head(500, seed=0)
troubles = {
    "corrupted": sg.stress.Corrupted().make(nominal),
    "invalid": sg.stress.Invalid().make(nominal),
}

# %%
# Each supervisor learns from training images, if it has to, and says what it needs to see.

aurocs = {}
for supervisor in sg.supervisors.make_all(["entropy", "mdsa", "dsa", "relative_mahalanobis"]):
    supervisor.fit(classifier.observe(digits.train, supervisor.needs))
    seen = classifier.observe(nominal, supervisor.needs)
    scores = supervisor.score(seen)
    found = {"mistakes": sg.metrics.auroc(scores[seen.correct], scores[~seen.correct])}
    for name, images in troubles.items():
        found[name] = sg.metrics.auroc(scores, supervisor.score(classifier.observe(images, supervisor.needs)))
    aurocs[supervisor.name] = found
    print(f"{supervisor.name:22}", "  ".join(f"{name} {value:.2f}" for name, value in found.items()))

# %%
# The area under the ROC curve: 1 = sees all of them, 0.5 = guesses.

figure, axis = plt.subplots(figsize=(7, 3.2))
kinds = ["mistakes", *troubles]
for place, (name, found) in enumerate(aurocs.items()):
    axis.bar(np.arange(len(kinds)) + place / 5, [found[kind] for kind in kinds], width=0.18, label=name)
axis.axhline(0.5, color="grey", lw=0.8)
axis.set(ylim=(0.3, 1), ylabel="AUROC")
axis.set_xticks(np.arange(len(kinds)) + 0.3, kinds)
axis.legend(fontsize=8, ncols=4, loc="lower center", bbox_to_anchor=(0.5, 1))
figure.tight_layout()
