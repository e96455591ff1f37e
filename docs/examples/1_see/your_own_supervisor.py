"""
Write your own supervisor
=========================

A supervisor is a class with ``_score``, and ``_fit`` where it learns. This one is suspicious of images whose
activations are far from the mean of the predicted class; ``check_supervisor`` then runs the contract that all
built-in ones keep.
"""

import matplotlib.pyplot as plt
import numpy as np

import secondguess as sg


class ClassDistance(sg.Supervisor):
    """Suspicious = far from the mean activation of the predicted class."""

    name = "class_distance"

    def __init__(self, layer="penultimate"):
        self.layer = layer

    @property
    def needs(self):
        return sg.Needs(traces={sg.Trace(self.layer)})

    def _fit(self, observation, labels):
        trace = observation.trace(self.layer)
        one_hot = np.eye(observation.num_classes)[observation.predictions]
        self.means_ = (one_hot.T @ trace) / np.maximum(one_hot.sum(axis=0), 1)[:, None]

    def _score(self, observation):
        means = self.means_[observation.predictions]
        return np.linalg.norm(observation.trace(self.layer) - means, axis=1)


print(sg.check_supervisor(ClassDistance()))

# %%
# It works wherever a built-in one does.

digits = sg.load("mnist5k")
network = sg.zoo.make("lenet", input_shape=digits.train.shape, seed=0)
sg.train(network, digits.train.images, digits.train.labels, epochs=8)
classifier = sg.Classifier(network)

supervisor = ClassDistance()
supervisor.fit(classifier.observe(digits.train, supervisor.needs))
nominal = supervisor.score(classifier.observe(digits.test, supervisor.needs))
foreign = supervisor.score(classifier.observe(sg.stress.Invalid().make(digits.test.head(300)), supervisor.needs))

# %%

figure, axis = plt.subplots(figsize=(6.5, 3))
bins = np.linspace(0, np.quantile(foreign, 0.98), 40)
axis.hist(nominal, bins, density=True, alpha=0.7, label="digits")
axis.hist(foreign, bins, density=True, alpha=0.7, label="not a digit")
axis.set(xlabel="distance to the predicted class", yticks=[])
axis.legend(title=f"AUROC {sg.metrics.auroc(nominal, foreign):.2f}")
figure.tight_layout()
