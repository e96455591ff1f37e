"""Tasks that workers can import."""

from __future__ import annotations

import os
import resource
import signal
import time
from pathlib import Path

import numpy as np

from secondguess.errors import UserError


def total(*, size, seed, pause=0.0):
    """The sum of random numbers, and the numbers."""
    time.sleep(pause)
    numbers = np.random.default_rng(seed).random(size)
    return {"total": numbers.sum(), "numbers": numbers, "pair": (seed, size)}


def logged(*, log, seed):
    """Leaves a line for every time it is computed."""
    with Path(log).open("a") as file:
        file.write(f"{seed}\n")
    return {"square": seed * seed}


def deadly(*, marker, seed):
    """Ends its process the first time, whoever comes first."""
    try:
        Path(marker).touch(exist_ok=False)
    except FileExistsError:
        return {"square": seed * seed}
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("dead")


def fatal(*, seed):
    """Ends its process whenever seed is 1."""
    if seed == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return {"square": seed * seed}


HOARD = []


def hoarding(*, seed):
    """Keeps 350 MB, by which its process grows more than joblib likes."""
    HOARD[:] = [np.ones(350_000_000, np.uint8)] if seed >= 2 else []
    time.sleep(1.1)  # joblib looks once a second
    return {"square": seed * seed}


def broken(*, log, seed):
    """Fails for seed 1."""
    if seed == 1:
        raise ZeroDivisionError("one is too few")
    return logged(log=log, seed=seed)


def mistaken(*, log, seed):
    """A mistake of the user for seed 1."""
    if seed == 1:
        raise UserError("The data are missing; give --data.")
    return logged(log=log, seed=seed)


def numberless(*, seed):
    """Returns what JSON cannot hold, but for seed 1."""
    return {"row": {"auroc": [0.5, 0.6 if seed == 1 else float("nan")]}}


def oddly_named(*, seed):
    """Arrays that are called like arguments of `np.savez`."""
    return {"file": np.arange(3) + seed, "allow_pickle": np.zeros((2, 2)), "note": "and no array"}


def whereabouts(*, seed):
    """The process it runs in, and what Dask knows it by."""
    time.sleep(0.05)
    return {"pid": os.getpid()}


class Weighty:
    """Leaves a line with the process it is unpickled in."""

    def __init__(self, log, numbers):
        self.log, self.numbers = log, numbers

    def __setstate__(self, state):
        vars(self).update(state)
        with Path(self.log).open("a") as file:
            file.write(f"{os.getpid()}\n")


def weighed(*, order, seed, pause=0.0):
    """Uses what all tasks share, and writes into it."""
    time.sleep(pause)
    numbers = order.value.numbers
    numbers[0] = seed
    return {"total": numbers[1:].sum() + seed, "pid": os.getpid()}


def filling(*, folder, most, seed):
    """Writes more than its process may, as on a small disk; /dev/full is a disk that has no room at all."""
    if most is None:
        with Path("/dev/full").open("wb", buffering=0) as file:
            file.write(bytes(10))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, before[1]))
    try:
        Path(folder, str(seed)).write_bytes(bytes(4 * most))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    return {}
