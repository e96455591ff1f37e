from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from secondguess.accuracy.oracles.icos.input_rules import InputRules, Partition
from secondguess.images import ImageSet
from secondguess.model.observation import Observation
from secondguess.model.outputs import softmax

CLASSES = 6
NAMES = tuple("abcdef")


@pytest.fixture(scope="session")
def see() -> Callable[..., Observation]:
    """`see(logits, labels, logits_given=True)`: evidence with exactly these outputs, the image's side in a column."""

    def make(logits: np.ndarray, labels: np.ndarray, logits_given: bool = True) -> Observation:
        side = np.where(np.asarray(labels) < CLASSES // 2, "left", "right")
        images = ImageSet.from_arrays(
            np.zeros((len(labels), 2, 2), dtype=np.uint8), labels, class_names=NAMES, columns={"side": side}
        )
        given = logits.astype(np.float32) if logits_given else None
        return Observation(softmax(logits), logits=given, class_names=NAMES, images=images)

    return make


@pytest.fixture(scope="session")
def world(see: Callable[..., Observation]) -> Callable[..., Observation]:
    """`world(n, seed, exaggeration=1, spread=3)`: a model that says p and is right with p, or exaggerates its logits.

    The larger `spread`, the easier the images.
    """

    def make(n: int, seed: int, exaggeration: float = 1.0, spread: float = 3.0) -> Observation:
        rng = np.random.default_rng(seed)
        logits = spread * rng.normal(size=(n, CLASSES))
        labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
        return see(exaggeration * logits, labels)

    return make


@pytest.fixture(scope="session")
def rules() -> InputRules:
    """Classes a to c occur on the left only, d to f on the right only."""
    return InputRules(
        [Partition("left", ["a", "b", "c"], column="side"), Partition("right", list("def"), column="side")]
    )
