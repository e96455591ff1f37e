"""
No model, only arrays
=====================

Probabilities in a file are enough: for scores, for the reliability of confidence, and for a threshold that keeps a
promised share of false alarms.
"""

import matplotlib.pyplot as plt
import numpy as np

import secondguess as sg

# %%
# Four hundred predictions over three classes, as another program might have stored them; the model is
# overconfident.

rng = np.random.default_rng(0)
labels = rng.integers(3, size=400)
logits = rng.normal(size=(400, 3)) + 1.5 * np.eye(3)[labels]
probabilities = np.exp(3 * logits) / np.exp(3 * logits).sum(axis=1, keepdims=True)

seen = sg.Observation(probabilities=probabilities, labels=labels)
print("accuracy", sg.metrics.accuracy_interval(seen.predictions, labels))
print("expected calibration error", sg.metrics.ece_interval(probabilities, labels))

# %%
# A threshold above which 5 % of the right answers lie.

scores = sg.supervisors.make("entropy").score(seen)
threshold = sg.metrics.threshold_at(scores[seen.correct], 0.05)
print(f"entropy above {threshold:.2f}: {np.mean(scores[~seen.correct] > threshold):.0%} of the wrong answers")

# %%
# Bars below the diagonal: surer than right.

bars = sg.metrics.reliability(probabilities, labels, bins=8)
full = bars.count > 0
figure, axis = plt.subplots(figsize=(4.2, 3.8))
axis.bar(bars.confidence[full], bars.accuracy[full], width=0.08, label="how often right")
axis.plot([0, 1], [0, 1], color="grey", ls=":")
axis.set(xlabel="confidence", ylabel="accuracy", xlim=(0.3, 1.05), ylim=(0, 1.05))
figure.tight_layout()
