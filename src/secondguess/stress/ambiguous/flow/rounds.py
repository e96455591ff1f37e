"""Rounds of a drawing, each kept in a file, so that an interrupted drawing goes on where it was.

    round-00000.npz, ...   what was drawn, what came through which check, what the dial learnt, and the images
    rounds.json            the settings of the drawing, and the digests of the files

`rounds.json` is written last. A drawing with other settings, or damaged files, begins anew.
"""

from __future__ import annotations

import io
import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secondguess.contracts.sealed import Damaged, digest_of, read_json, write_json_sealed
from secondguess.files import make_folder, write_bytes
from secondguess.stress.ambiguous.base import Candidates
from secondguess.stress.ambiguous.flow.dial import Lessons
from secondguess.stress.ambiguous.flow.misses import NearMisses

__all__ = ["Round", "Rounds"]

CARD, FORMAT = "rounds.json", 5
ORIGIN, NEAR, LEARNT = "origin_", "near_", "learnt_"  # before the names of columns, of near misses and of lessons
ARRAYS = ("pairs", "each", "again", "passed", "seen")


@dataclass(frozen=True)
class Round:
    """One round of a drawing.

    Attributes:
        pairs: int64 (p, 2), the pairs that were drawn from.
        each: int64 (p,), candidates of each.
        again: int64 (p,), how many of these are near misses that were composed anew.
        passed: int64 (p, c), how many of a pair were lost neither to a check nor to one before it.
        seen: float64 (p, K), the committee's probabilities, summed over the candidates of each pair; zeros without one.
        learnt: what the dials learn.
        found: the accepted images.
        near: the near misses that may be tried again; only those of the last round are.
        seconds: that the round took.
    """

    pairs: NDArray[np.int64]
    each: NDArray[np.int64]
    again: NDArray[np.int64]
    passed: NDArray[np.int64]
    seen: NDArray[np.float64]
    learnt: Lessons
    found: Candidates
    near: NearMisses
    seconds: float = 0.0

    def to_bytes(self) -> bytes:
        """As a file holds it."""
        buffer, found = io.BytesIO(), self.found
        arrays: dict[str, Any] = {ORIGIN + name: values for name, values in found.origin.items()}
        for prefix, part in ((NEAR, self.near), (LEARNT, self.learnt)):
            arrays |= {prefix + name: values for name, values in vars(part).items()}
        arrays |= {name: getattr(self, name) for name in ARRAYS}
        arrays["seconds"] = np.array(self.seconds)
        np.savez(buffer, **arrays, images=found.images, pair=found.pair, p1=found.p1)
        return buffer.getvalue()

    @classmethod
    def from_bytes(cls, content: bytes) -> Round:
        """The opposite."""
        with np.load(io.BytesIO(content), allow_pickle=False) as kept:
            origin, near, learnt = (
                {name.removeprefix(prefix): kept[name] for name in kept.files if name.startswith(prefix)}
                for prefix in (ORIGIN, NEAR, LEARNT)
            )
            found = Candidates(kept["images"], kept["pair"], kept["p1"], origin)
            return cls(
                **{name: kept[name] for name in ARRAYS},
                learnt=Lessons(**learnt),
                found=found,
                near=NearMisses(**near),
                seconds=float(kept["seconds"]),
            )


class Rounds:
    """The rounds of one drawing in a folder.

    Args:
        folder: created when needed.
        settings: everything that determines the drawing, as JSON.
    """

    def __init__(self, folder: Path, settings: Mapping[str, Any]) -> None:
        self.folder = make_folder(folder)
        self.settings: dict[str, Any] = json.loads(json.dumps({**settings, "format": FORMAT}))  # as it will be read
        self._digests: list[str] = []

    def load(self) -> list[Round]:
        """Those that are kept of the same drawing."""
        if not (self.folder / CARD).is_file():
            return []
        try:
            card = read_json(self.folder / CARD)
            if card["settings"] != self.settings:
                return []
            contents = [self._file(number).read_bytes() for number in range(len(card["rounds"]))]
            self._digests = list(map(digest_of, contents))
            if self._digests != card["rounds"]:
                raise Damaged("a round does not hold what was written")
            return [Round.from_bytes(content) for content in contents]
        except (OSError, ValueError, KeyError, TypeError) as error:
            self._digests = []
            warnings.warn(f"The drawing in {self.folder} is damaged ({error}) and begins anew.", stacklevel=2)
            return []

    def keep(self, one: Round) -> None:
        """Write one more; the first of a drawing replaces what is left of another one."""
        if not self._digests:
            (self.folder / CARD).unlink(missing_ok=True)
            for older in self.folder.glob("round-*.npz"):
                older.unlink()
        content = one.to_bytes()
        write_bytes(self._file(len(self._digests)), content)
        self._digests.append(digest_of(content))
        write_json_sealed(self.folder / CARD, {"settings": self.settings, "rounds": self._digests})

    def _file(self, number: int) -> Path:
        return self.folder / f"round-{number:05}.npz"
