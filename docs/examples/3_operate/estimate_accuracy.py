"""
Estimate accuracy without labels
================================

How accurate is the model on images that nobody has labelled? The answer comes with an interval, or with the reason
why there is none.
"""

import matplotlib.pyplot as plt
from sklearn.linear_model import LogisticRegression

import secondguess as sg

digits = sg.load("digits")
train, (validation, operation) = digits.train.head(400, seed=0), digits.test.split(0.5)
model = LogisticRegression(C=0.05).fit(train.materialise().reshape(400, -1), train.labels)
classifier = sg.Classifier(lambda images: model.predict_proba(images.reshape(len(images), -1)))

# %%
# Images as they might arrive: as before, and turned by a badly mounted camera. Their labels are known here, and not
# looked at.

found = {
    "as before": sg.estimate(classifier, operation, train=train, validation=validation),
    "turned": sg.estimate(
        classifier, sg.stress.Corrupted(["rotate"], severity=2).make(operation), train=train, validation=validation
    ),
}
found["turned"]

# %%
# Estimates with their intervals, and the truth as a cross.

figure, axis = plt.subplots(figsize=(6, 2.2))
for place, one in enumerate(found.values()):
    if one.value is not None:
        axis.plot([one.low, one.high], [place, place], lw=3)
        axis.plot(one.value, place, "o", color="black")
    axis.plot(one.truth.value, place, "x", color="crimson", ms=10)
axis.set(yticks=range(len(found)), yticklabels=found, ylim=(-0.5, 1.5), xlabel="accuracy")
figure.tight_layout()
