from __future__ import annotations

from collections.abc import Callable
from math import ceil

import numpy as np
import pytest

import tiny_models
from secondguess import Classifier, Needs, Trace


@pytest.mark.parametrize("share", [30, 60, 100])
@pytest.mark.parametrize("suffix", ["onnx", "pt2"])
def test_exported_models_have_a_depth_too(exported: Callable, images: np.ndarray, suffix: str, share: int) -> None:
    _, path = exported(tiny_models.TinyCNN, suffix)
    classifier = Classifier(path, input_shape=(1, 8, 8))
    names = [layer.name for layer in classifier.layers()]
    by_name, by_share = Trace(names[ceil(share * len(names) / 100) - 1]), Trace(f"{share}%")
    seen = classifier.observe(images, Needs(traces=frozenset({by_name, by_share})))
    np.testing.assert_array_equal(seen.trace(by_share), seen.trace(by_name))
