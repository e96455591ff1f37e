"""
Label twenty images
===================

A handful of labels beats every assumption, if the right images are labelled. Twenty at a time are asked for, and
after each answer the estimate of the accuracy has an interval that may be read whenever you like.
"""

import matplotlib.pyplot as plt
import numpy as np

import secondguess as sg

digits = sg.load("mnist5k")
network = sg.zoo.make("lenet", input_shape=digits.train.shape, seed=0)
sg.train(network, digits.train.images, digits.train.labels, epochs=3)
seen = sg.Classifier(network).observe(digits.test)
expected = 1 - seen.confidences  # how likely each prediction is wrong, as far as the model says

# %%
# Twenty labels, by two designs: any images, and those about which least is known.

estimates = {}
for design in (sg.accuracy.simple_random(expected), sg.accuracy.importance(expected)):
    few, steps = sg.accuracy.FewLabels(design, seen.predictions, seed=1), []
    for _ in range(5):
        rows = few.ask(20)
        few.tell(rows, seen.labels[rows])  # here a person looks at them
        steps.append(few.estimate())
    estimates[design.name] = steps
    print(design.name, "after 20:", steps[0], "after 100:", steps[-1])
print("the truth:", np.mean(seen.correct))

# %%

figure, axis = plt.subplots(figsize=(6.5, 3))
labelled = 20 * np.arange(1, 6)
for shift, (name, steps) in enumerate(estimates.items()):
    middle = np.array([one.value for one in steps])
    ends = np.array([[one.value - one.low for one in steps], [one.high - one.value for one in steps]])
    axis.errorbar(labelled + 2 * shift, middle, ends, fmt="o-", capsize=3, label=name)
axis.axhline(np.mean(seen.correct), color="grey", ls=":", label="the truth")
axis.set(xlabel="labelled images", ylabel="accuracy", xticks=labelled)
axis.legend()
figure.tight_layout()
