"""
Run a study
===========

Is one supervisor better than another, or was it the seed? A study repeats an experiment over seeds and reports the
spread: here, how well entropy and MDSA see images that are no digits, over four trainings. The studies of the
papers, with ledger, resumption and clusters, come with ``secondguess-lab``: ``secondguess study list``.
"""

import matplotlib.pyplot as plt
import numpy as np

import secondguess as sg

digits = sg.load("digits")
foreign = sg.stress.Invalid().make(digits.test)
found = {"entropy": [], "mdsa": []}
for seed in range(4):
    network = sg.zoo.make("fully_connected", input_shape=digits.train.shape, seed=seed)
    sg.train(network, digits.train.images, digits.train.labels, epochs=5, seed=seed)
    classifier = sg.Classifier(network)
    for supervisor in sg.supervisors.make_all(list(found)):
        supervisor.fit(classifier.observe(digits.train, supervisor.needs))
        nominal, other = (supervisor.score(classifier.observe(one, supervisor.needs)) for one in (digits.test, foreign))
        found[supervisor.name].append(sg.metrics.auroc(nominal, other))

# %%

for name, values in found.items():
    print(f"{name}: {np.mean(values):.3f} ± {np.std(values, ddof=1):.3f} over {len(values)} trainings")

# %%
# Paired by seed: the difference is what counts, not the two means.

figure, axis = plt.subplots(figsize=(5, 3))
axis.plot(list(found), np.array(list(found.values())), "o-", color="steelblue")
axis.set(ylabel="AUROC", xlim=(-0.3, 1.3))
figure.tight_layout()
