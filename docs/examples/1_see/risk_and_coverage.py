"""
Risk and coverage
=================

A model that may decline the images it is least sure of makes fewer mistakes on the others. The curve of risk
against coverage says what each declined image buys.
"""

import matplotlib.pyplot as plt

import secondguess as sg

digits = sg.load("mnist5k")
network = sg.zoo.make("lenet", input_shape=digits.train.shape, seed=0)
sg.train(network, digits.train.images, digits.train.labels, epochs=4)
seen = sg.Classifier(network).observe(digits.test)

# %%
# Two ways to rank the same predictions.

curves = {}
for name in ("max_softmax", "entropy"):
    scores = sg.supervisors.make(name).score(seen)
    curves[name] = sg.metrics.risk_coverage(scores, ~seen.correct)
    print(f"{name}: AURC {sg.metrics.aurc_interval(scores, ~seen.correct)}")
    print(f"   wrong among the surest 80 %: {sg.metrics.risk_at_coverage(scores, ~seen.correct, 0.8):.1%}")

# %%
# Read it from right to left: everything accepted, then more and more declined.

figure, axis = plt.subplots(figsize=(6.5, 3.4))
for name, curve in curves.items():
    axis.plot(curve.coverage, curve.risk, label=name)
axis.axhline((~seen.correct).mean(), color="grey", ls=":", label="declining at random")
axis.set(xlabel="coverage: share of images answered", ylabel="risk: wrong among them", ylim=(0, None))
axis.legend()
figure.tight_layout()
