from __future__ import annotations

import gc
import os
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING

# One thread a test worker, told before anybody imports torch, so that the tests that need none do not pay for it.
os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", OMP_WAIT_POLICY="PASSIVE")

import hypothesis
import numpy as np
import pytest

if TYPE_CHECKING:
    from torch import nn

    from secondguess.web.access import Keys

# A suite that is started in the background ignores Ctrl-C, and so would the processes that tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

hypothesis.settings.register_profile("secondguess", deadline=None, database=None, print_blob=True)
hypothesis.settings.load_profile("secondguess")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse names of tests that differ from process to process: workers could not agree on what to run."""
    if unstable := [item.nodeid for item in items if " at 0x" in item.nodeid]:
        raise pytest.UsageError(f"{unstable[0]}: the name holds an address in memory; give ids= to parametrize.")


def pytest_collection_finish() -> None:
    """Spare the collector what lives until the end: modules and thousands of tests, walked through again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def images() -> np.ndarray:
    """19 images 1x8x8 of noise: a number that no batch size above one divides."""
    return np.random.default_rng(5).random((19, 1, 8, 8), dtype=np.float32)


@pytest.fixture
def make_cnn() -> Callable[..., nn.Module]:
    """`make_cnn(seed, classes=3, dropout=0.5)` gives a small network with batch-norm and dropout, in eval mode."""
    import tiny_models

    return lambda seed=0, **options: tiny_models.seeded(tiny_models.TinyCNN, seed, **options)


@pytest.fixture
def cnn(make_cnn: Callable[..., nn.Module]) -> nn.Module:
    """A network for 1x8x8 images and three classes."""
    return make_cnn()


@pytest.fixture
def keys() -> Keys:
    """What opens a page."""
    from secondguess.web.access import Keys

    return Keys.new()
