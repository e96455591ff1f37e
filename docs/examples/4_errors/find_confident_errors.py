"""
Find confident errors
=====================

Which images should a person look at first? A search ranks what the model is sure of by how likely it is wrong all
the same, and learns from the answers.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LogisticRegression

import secondguess as sg

digits = sg.load("digits")
train, incoming = digits.train.head(80, seed=0), digits.test
model = LogisticRegression(C=100, max_iter=1000).fit(train.materialise().reshape(80, -1), train.labels)
classifier = sg.Classifier(lambda images: model.predict_proba(images.reshape(len(images), -1)))

# %%
# Forty questions. Here the labels answer; ``found.open()`` opens a page on which a person does.

with sg.find_errors(classifier, incoming, budget=150) as found:
    asked = []
    for _ in range(20):
        rows = found.ask(2)
        found.tell(rows, incoming.labels[rows])
        asked.extend(int(row) for row in rows)
    print(found.summary())

# %%
# Errors found, question by question, beside what asking at random would find.

seen = classifier.observe(incoming)
confident = seen.confidences >= 0.65
wrong = ~seen.correct[asked]
figure, axis = plt.subplots(figsize=(6, 3))
axis.step(np.arange(1, 41), wrong.cumsum(), where="post", label="search")
axis.plot(
    np.arange(1, 41), np.arange(1, 41) * (~seen.correct[confident]).mean(), ls=":", color="grey", label="at random"
)
axis.set(xlabel="images looked at", ylabel="confident errors found")
axis.legend()
figure.tight_layout()

# %%
# And some of them.

figure, axes = plt.subplots(1, 8, figsize=(9, 1.7))
for axis, row in zip(axes, np.array(asked)[wrong], strict=False):
    axis.imshow(incoming.images[row][0], cmap="gray")
    axis.set_title(f"{seen.predictions[row]}? {seen.confidences[row]:.0%}\nreally {incoming.labels[row]}", fontsize=8)
for axis in axes:
    axis.axis("off")
figure.tight_layout()
