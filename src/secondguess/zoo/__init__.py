"""The classifiers of the papers, by name.

`make("simple_cnn", seed=0)` gives a network that returns logits (the softmax is never inside), every layer of
which is a named submodule; `get("simple_cnn").recipe` says how its paper trained it.

>>> from secondguess import zoo
>>> model = zoo.make("simple_cnn", num_classes=10, input_shape=(1, 28, 28), seed=0)
>>> zoo.get("simple_cnn").recipe.epochs
15
"""

from __future__ import annotations

from secondguess.zoo.registry import Architecture, Recipe, get, make, make_all, names, register
from secondguess.zoo.small import ambiguity_members

__all__ = ["Architecture", "Recipe", "ambiguity_members", "get", "make", "make_all", "names", "register"]
