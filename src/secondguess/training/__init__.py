"""Train one classifier, train a fleet of small ones at once, and calibrate with a temperature.

>>> from secondguess import training, zoo
>>> model = zoo.make("simple_cnn", seed=0)
>>> history = training.train(model, images, labels, **zoo.get("simple_cnn").recipe.as_kwargs())  #
doctest: +SKIP
"""

from __future__ import annotations

from secondguess.devices import pick_device
from secondguess.training.fleet import Fleet, train_fleet
from secondguess.training.temperature import (
    apply_temperature,
    fit_temperature,
    merged_temperature,
    temperature_part,
)
from secondguess.training.train import TrainingHistory, train

__all__ = [
    "Fleet",
    "TrainingHistory",
    "apply_temperature",
    "fit_temperature",
    "merged_temperature",
    "pick_device",
    "temperature_part",
    "train",
    "train_fleet",
]
