"""
Overconfidence
==============

How much surer is a model of ambiguous images than they allow? Three trainings of the same network, compared with
their controls.
"""

import matplotlib.pyplot as plt

import secondguess as sg

digits = sg.load("digits")
models = []
for epochs in (3, 10, 60):
    network = sg.zoo.make("fully_connected", input_shape=digits.train.shape, seed=0)
    sg.train(network, digits.train.images, digits.train.labels, epochs=epochs)
    models.append(sg.Classifier(network, name=f"{epochs} epochs"))

result = sg.overconfidence(models, digits, on="blend", between="3,8", count=200)
result

# %%
# The same numbers as a picture: longer training, more certainty, on images that are half a 3 and half an 8.

rows = result.table.rows
figure, axis = plt.subplots(figsize=(6, 2.6))
axis.barh([row.model for row in rows], [row.ambiguous.main.value.value for row in rows])
axis.invert_yaxis()
axis.set(xlabel="hubris: 0 = as unsure as the images, larger = surer")
figure.tight_layout()
