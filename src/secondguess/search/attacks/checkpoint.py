"""The results of an unfinished run in a folder, so that it can be taken up again.

    settings.json        everything that determines the result
    start.npz            what the model says of the images, and of the starts
    counterexamples.npy  (n, C, H, W), rows filled in as images are finished
    results.npz          the other results, which images are finished, and the digests of their counterexamples
    walk.safetensors     the images under way, between two rounds

Counterexamples are on disk before `results.npz` says that they are, and an image leaves `walk.safetensors` after that:
if the process is killed, only the rounds since the last save are lost. An image whose counterexample is not the one
that was written is attacked anew. Without a folder everything is in memory.
"""

from __future__ import annotations

import hashlib
import json
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from secondguess.contracts.archives import load_npz
from secondguess.contracts.sealed import read_tensors, seal_tensors
from secondguess.errors import UserError
from secondguess.files import atomic_path, make_folder, write_bytes, write_json
from secondguess.search.attacks.decisions import UNUSABLE, Decisions
from secondguess.search.attacks.walk import Walk

__all__ = ["Results"]

SECONDS = 10.0  # between two saves of the images under way
SEAL = 16  # bytes of a digest

Shape = tuple[int, int, int]


class Results:
    """What is known of n images so far, kept in a folder if there is one.

    Args:
        wanted: (n,) which images are to be measured; the others are as good as finished, and failed.
        shape: (C, H, W) of an image.
        folder: where to keep it, or None.
        settings: everything that determines the result, as JSON; another run's folder is refused.

    Attributes:
        wanted: as given.
        arrays: `mae`, `l2`, `linf`, `queries`, `unusable`, `failed`, `counterexample_predictions`, `done`, each (n,).
        counterexamples: (n, C, H, W) float32.
    """

    def __init__(
        self, wanted: NDArray[np.bool_], shape: Shape, folder: Path | None, settings: Mapping[str, Any]
    ) -> None:
        self.wanted, self._folder, self._saved = wanted, folder, time.monotonic()
        count = len(wanted)
        self._seals = np.zeros((count, SEAL), dtype=np.uint8)  # of counterexamples; zeros where there is none yet
        self._damaged = False
        self.arrays: dict[str, NDArray[Any]] = {
            **{name: np.full(count, np.inf) for name in ("mae", "l2", "linf")},
            **{name: np.zeros(count, dtype=np.int64) for name in ("queries", "unusable")},
            "failed": ~wanted,
            "done": ~wanted,
            "counterexample_predictions": np.where(wanted, 0, UNUSABLE),
        }
        if folder is None:
            self.counterexamples = np.zeros((count, *shape), dtype=np.float32)
            return
        make_folder(folder)
        self._compare(settings)
        self._shape = (count, *shape)
        self.counterexamples = self._map()
        if (kept := self._read("results")) is not None:
            self._seals = kept.pop("seals", self._seals)
            self.arrays = kept
            self._forget_damaged()

    def known(self) -> dict[str, NDArray[Any]] | None:
        """The kept answers of the model to the images, or None."""
        return None if self._folder is None else self._read("start")

    def keep_known(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Keep the model's answers to the images."""
        self._write("start", arrays)

    def under_way(self, decide: Decisions) -> Walk | None:
        """The saved walk, if its images are not finished; its queries are put back into the ledger."""
        if self._folder is None or not (path := self._folder / "walk.safetensors").exists() or self._damaged:
            return None  # what is attacked anew is not in the walk: its block begins again
        try:
            tensors = {name: tensor.to(decide.device) for name, tensor in load(read_tensors(path)).items()}
            spent, unusable = tensors.pop("spent"), tensors.pop("unusable")
            walk = Walk.from_tensors(tensors)
        except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
            raise self._unreadable(path.name, error) from error
        if self.arrays["done"][walk.rows.cpu().numpy()].all():
            return None
        decide.spent[walk.rows], decide.unusable[walk.rows] = spent, unusable
        return walk

    def save(self, walk: Walk, decide: Decisions, *, now: bool = False) -> None:
        """Save the results and the walk, if the last save is old enough or with `now`."""
        if not self._due(now):
            return
        self._save_finished()
        tensors = walk.tensors() | {"spent": decide.spent[walk.rows], "unusable": decide.unusable[walk.rows]}
        content = save({name: _plain(one) for name, one in tensors.items()})
        assert self._folder is not None
        write_bytes(self._folder / "walk.safetensors", seal_tensors(content))
        self._saved = time.monotonic()

    def take_over(self, rows: NDArray[np.int64], found: Mapping[str, NDArray[Any]]) -> None:
        """Record what somebody else has measured of the images at `rows`, by the names of `arrays`."""
        for name in self.arrays.keys() - {"done"}:
            self.arrays[name][rows] = found[name]
        self.counterexamples[rows] = found["counterexamples"]
        self.arrays["done"][rows] = True

    def save_finished(self, *, now: bool = False) -> None:
        """Save the results of finished images, if the last save is old enough or with `now`."""
        if self._due(now):
            self._save_finished()
            self._saved = time.monotonic()

    def _due(self, now: bool) -> bool:
        return self._folder is not None and (now or time.monotonic() - self._saved >= SECONDS)

    def _save_finished(self) -> None:
        if isinstance(self.counterexamples, np.memmap):
            self.counterexamples.flush()
            self.counterexamples = self._map()  # what the old map held in memory goes with it
        for row in self._finished()[~self._seals[self._finished()].any(axis=1)]:
            self._seals[row] = _seal(self.counterexamples[row])
        self._write("results", self.arrays | {"seals": self._seals})

    def _finished(self) -> NDArray[np.int64]:
        """The rows of images that have been measured."""
        return np.flatnonzero(self.arrays["done"] & self.wanted)

    def _forget_damaged(self) -> None:
        """Take images back whose counterexamples in the file are not those that were written."""
        finished = self._finished()
        damaged = [row for row in finished if (_seal(self.counterexamples[row]) != self._seals[row]).any()]
        if not damaged:
            return
        self._damaged = True
        self.arrays["done"][damaged] = False
        self._seals[damaged] = 0
        warnings.warn(
            f"{len(damaged)} of {len(finished)} counterexamples in the checkpoint {self._folder} are not those that "
            "were written; these images are attacked anew.",
            stacklevel=2,
        )

    def _compare(self, settings: Mapping[str, Any]) -> None:
        assert self._folder is not None
        path = self._folder / "settings.json"
        wanted = json.loads(json.dumps(settings))
        if not path.exists():
            write_json(path, wanted)
            return
        try:
            kept = json.loads(path.read_text(encoding="utf-8"))
            changed = sorted(key for key in {*wanted, *kept} if wanted.get(key) != kept.get(key))
        except (OSError, ValueError, TypeError, AttributeError) as error:
            raise self._unreadable(path.name, error) from error
        if changed:
            raise UserError(
                f"The checkpoint in {self._folder} belongs to another measurement (other {', '.join(changed)}); "
                "name another folder, or remove that one."
            )

    def _map(self) -> NDArray[np.float32]:
        assert self._folder is not None
        path = self._folder / "counterexamples.npy"
        try:
            if not path.exists():
                with atomic_path(path) as temporary:
                    np.lib.format.open_memmap(temporary, "w+", np.float32, self._shape).flush()
            counterexamples = np.lib.format.open_memmap(path, "r+")
            if counterexamples.shape != self._shape or counterexamples.dtype != np.float32:
                raise ValueError(f"it holds {counterexamples.dtype} of shape {counterexamples.shape}")
        except (OSError, ValueError) as error:
            raise self._unreadable(path.name, error) from error
        return counterexamples

    def _read(self, name: str) -> dict[str, NDArray[Any]] | None:
        assert self._folder is not None
        path = self._folder / f"{name}.npz"
        if not path.exists():
            return None
        try:
            return load_npz(path)
        except (OSError, ValueError) as error:
            raise self._unreadable(path.name, error) from error

    def _write(self, name: str, arrays: Mapping[str, NDArray[Any]]) -> None:
        if self._folder is not None:
            with atomic_path(self._folder / f"{name}.npz") as temporary:
                np.savez(temporary, allow_pickle=False, **arrays)

    def _unreadable(self, name: str, error: Exception) -> UserError:
        return UserError(
            f"{name} in the checkpoint {self._folder} cannot be read ({type(error).__name__}: {error}); "
            "remove the folder to start afresh."
        )


def _plain(tensor: Tensor) -> Tensor:
    return tensor.detach().to("cpu", memory_format=torch.contiguous_format)


def _seal(pixels: NDArray[np.float32]) -> NDArray[np.uint8]:
    return np.frombuffer(hashlib.blake2b(np.ascontiguousarray(pixels).tobytes(), digest_size=SEAL).digest(), np.uint8)
