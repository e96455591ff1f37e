"""
Guard a model
=============

A guard turns scores into a decision about each image: a p-value with a promised rate of false alarms, what is
wrong, and what to do.
"""

import matplotlib.pyplot as plt
import numpy as np

import secondguess as sg

digits = sg.load("mnist5k")
network = sg.zoo.make("lenet", input_shape=digits.train.shape, seed=0)
sg.train(network, digits.train.images, digits.train.labels, epochs=8)
classifier = sg.Classifier(network, class_names=digits.class_names)
validation, test = digits.test.split(0.6, seed=0)

# %%
# A plain rule over two supervisors is fitted in a second. Without the two arguments the guard also learns from
# stress sets, which takes minutes, and then tells kinds of anomalies apart.

guard = sg.Guard(["entropy", "mdsa"], false_alarms=0.05, rule="bonferroni")
guard.fit(classifier, digits.train, validation, stress=None)
guard

# %%
# Judgements of images that it has never met: digits, and photographs cut to the shape of digits.

foreign = sg.stress.Invalid().make(test)
on_digits, on_foreign = guard.judge(test), guard.judge(foreign)
print(f"alarms: {on_digits.alarms.mean():.1%} of digits, {on_foreign.alarms.mean():.1%} of images that are none")
print(on_foreign[0])

# %%
# Under the promise the p-values of nominal images are uniform.

figure, axis = plt.subplots(figsize=(6.5, 3))
bins = np.linspace(0, 1, 21)
axis.hist([on_digits.p_values, on_foreign.p_values], bins, density=True, label=["digits", "not digits"])
axis.axvline(0.05, color="crimson", ls="--", label="alarm below this")
axis.set(xlabel="p-value", yticks=[])
axis.legend()
figure.tight_layout()
