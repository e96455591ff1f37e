"""
Watch a drift
=============

A camera slowly turns. The rate of alarms rises, and a sequential test says so: it may be read after every image,
and if nothing has changed it is silent forever with a probability of 99 %.
"""

import matplotlib.pyplot as plt
import numpy as np

import secondguess as sg
from secondguess.watch.change import RateTest

digits = sg.load("mnist5k")
network = sg.zoo.make("lenet", input_shape=digits.train.shape, seed=0)
sg.train(network, digits.train.images, digits.train.labels, epochs=8)
classifier = sg.Classifier(network)
validation, arriving = digits.test.split(0.5, seed=0)
guard = sg.Guard(["entropy", "mdsa"], false_alarms=0.05, rule="bonferroni")
guard.fit(classifier, digits.train, validation, stress=None)

# %%
# A stream of 900 images, the last 600 of them turned, 120 at each of five severities.

parts = [arriving.images[:300]]
parts += [sg.stress.corrupt(arriving.images[:120], "rotate", severity=s, seed=s) for s in range(1, 6)]
alarms = np.concatenate([guard.judge(part).alarms for part in parts])

# %%
# The test knows only the alarms, and the rate that the guard promised (with a margin for its calibration). The
# smallest turns raise no more alarms than before, so it takes a while.

test = RateTest(rate=0.09, alpha=0.01)
test.update(alarms)  # or one by one, as they come
print("turning since image 300;", test.change)

# %%

figure, axis = plt.subplots(figsize=(7, 3))
axis.plot(np.convolve(alarms, np.ones(60) / 60, mode="same"), label="alarms among 60 images")
axis.axvline(300, color="grey", ls=":", label="the camera begins to turn")
if test.change:
    axis.axvline(test.change.noticed, color="crimson", ls="--", label="noticed")
axis.set(xlabel="image", ylabel="share of alarms", ylim=(0, 1))
axis.legend(loc="upper left")
figure.tight_layout()
