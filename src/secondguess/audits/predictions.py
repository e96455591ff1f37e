"""What the model answered to each image of an audit, so that two audits can be compared image by image.

`predictions.npz` lies beside `audit.json`, which holds its digest. It has `class_names` (K,), and for the test images
(SET is `nominal`) and every stress set that was observed:

| array                   | shape   | what                                                                           |
|-------------------------|---------|--------------------------------------------------------------------------------|
| `SET/digests`           | (n, 16) | of the pixels: the same image has the same one in every audit                  |
| `SET/ids`               | (n,)    | names of the images; "" where they have none                                   |
| `SET/kinds`             | (n,)    | within a stress set, such as the corruption; "" where there are none           |
| `SET/labels`            | (n,)    | -1 = unknown                                                                   |
| `SET/predicted`         | (n,)    | the answer                                                                     |
| `SET/right`, `wrong`    | (n,)    | whether it is known to be right, or wrong                                      |
| `SET/confidence`        | (n,)    | the probability of the answer                                                  |
| `SET/entropy`           | (n,)    | of the probabilities, in bits                                                  |
| `SET/brier`, `SET/nll`  | (n,)    | what the image contributes to these; NaN without a label                       |
| `SET/scores/SUPERVISOR` | (n,)    | of every supervisor that was tried: larger = more suspicious                   |
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from secondguess.audits.context import NOMINAL, Context
from secondguess.contracts.archives import load_npz
from secondguess.contracts.sealed import Damaged, digest_of, file_digest
from secondguess.errors import UserError
from secondguess.files import write_bytes
from secondguess.guard.protect import Answers
from secondguess.images import ImageSet
from secondguess.metrics import brier_rows, entropy_rows, nll_rows
from secondguess.model.observation import Observation

__all__ = ["FILE", "NOMINAL", "Predictions", "SetPredictions"]

FILE = "predictions.npz"
NAMES, SCORES = "class_names", "scores"
FIRST = "/digests"  # every set has these

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, eq=False, kw_only=True)
class SetPredictions:
    """The answers to one set of n images; the module lists the arrays."""

    digests: NDArray[np.uint8]
    ids: NDArray[np.str_]
    kinds: NDArray[np.str_]
    labels: Ints
    predicted: Ints
    right: Bools
    wrong: Bools
    confidence: Floats
    entropy: Floats
    brier: Floats
    nll: Floats
    scores: Mapping[str, Floats] = field(default_factory=dict)

    def __post_init__(self) -> None:
        sizes = {len(values) for values in (*self.arrays().values(), *self.scores.values())}
        if len(sizes) != 1:
            raise Damaged(f"its arrays have {', '.join(map(str, sorted(sizes)))} rows")

    def __len__(self) -> int:
        return len(self.labels)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Every array but the scores, by name."""
        return {one.name: getattr(self, one.name) for one in fields(self) if one.name != SCORES}

    def take(self, rows: Ints) -> SetPredictions:
        """Those of some of the images, at positions (m,)."""
        scores = {name: values[rows] for name, values in self.scores.items()}
        return SetPredictions(**{name: values[rows] for name, values in self.arrays().items()}, scores=scores)

    @classmethod
    def of(
        cls, images: ImageSet, seen: Observation, scores: Mapping[str, Floats], kind: str = NOMINAL, groups: str = ""
    ) -> Self:
        """From what was observed.

        Args:
            images: n of them.
            seen: what the model said of them.
            scores: (n,) of each supervisor.
            kind: of the stress set.
            groups: the column of the images that says which kind within the set each is of.
        """
        # An audit measures the accuracy on test images by their labels, also where these have soft ones besides.
        judged = replace(images, soft_labels=None) if kind == NOMINAL else images
        answers = Answers.of(judged, seen.predictions, kind)
        known = images.labels >= 0
        losses = np.full((2, len(images)), np.nan)
        if known.any():
            truth = seen.probabilities[known], images.labels[known]
            losses[:, known] = brier_rows(*truth), nll_rows(*truth)
        nothing = np.full(len(images), "")
        return cls(
            digests=images.digests,
            ids=np.array(images.ids) if images.ids else nothing,
            kinds=np.asarray(images.columns[groups]).astype(str) if groups in images.columns else nothing,
            labels=images.labels,
            predicted=seen.predictions,
            right=answers.right,
            wrong=answers.wrong,
            confidence=seen.confidences,
            entropy=entropy_rows(seen.probabilities),
            brier=losses[0],
            nll=losses[1],
            scores=dict(scores),
        )


@dataclass(frozen=True, eq=False)
class Predictions:
    """The answers to all images of an audit.

    Attributes:
        class_names: the K names to which labels and answers refer.
        sets: `nominal` and each stress set by name.
    """

    class_names: tuple[str, ...]
    sets: Mapping[str, SetPredictions]

    @classmethod
    def of(cls, context: Context) -> Self | None:
        """What an audit has observed and scored until now; nothing is computed for this. None before it began."""
        if "nominal" not in vars(context):
            return None
        sets = {NOMINAL: SetPredictions.of(context.test, context.nominal, context.known_scores(NOMINAL))}
        for one in context.stress:
            if one.name in vars(context).get("stressed", {}):
                images, seen = context.stressed[one.name]
                scores = context.known_scores(one.name)
                sets[one.name] = SetPredictions.of(images, seen, scores, one.kind, one.groups)
        return cls(context.test.class_names, sets)

    def save(self, path: Path) -> str:
        """Write the file atomically; returns its digest."""
        arrays: dict[str, NDArray[Any]] = {NAMES: np.array(self.class_names)}
        for name, one in self.sets.items():
            arrays |= {f"{name}/{key}": values for key, values in one.arrays().items()}
            arrays |= {f"{name}/{SCORES}/{key}": values for key, values in one.scores.items()}
        content = io.BytesIO()
        np.savez_compressed(content, **arrays)  # type: ignore[arg-type]
        write_bytes(path, content.getvalue())
        return digest_of(content.getvalue())

    @classmethod
    def read(cls, path: Path, digest: str) -> Self:
        """Read a file that must have this digest."""
        try:
            if file_digest(path) != digest:
                raise Damaged("it is not the file that was written with audit.json")
            arrays = load_npz(path)
            names = tuple(str(name) for name in arrays.pop(NAMES))
            sets: dict[str, dict[str, Any]] = {}
            known = sorted((key.removesuffix(FIRST) for key in arrays if key.endswith(FIRST)), key=len, reverse=True)
            for key, values in arrays.items():
                name = next(one for one in known if key.startswith(f"{one}/"))  # a set may be named after a path
                what = key.removeprefix(f"{name}/")
                which = sets.setdefault(name, {SCORES: {}})
                scored = what.removeprefix(f"{SCORES}/")
                (which if scored == what else which[SCORES])[scored] = values
            found = cls(names, {name: SetPredictions(**one) for name, one in sets.items()})
            if NOMINAL not in found.sets or not all(_is_sound(one, len(names)) for one in found.sets.values()):
                raise Damaged("its arrays do not belong together")
            return found
        except OSError as error:
            raise UserError(f"{path} cannot be read ({error.strerror or error}); keep it beside audit.json.") from error
        except StopIteration:
            raise UserError(f"{path} cannot be used: it has arrays of no set; run the audit again.") from None
        except (Damaged, KeyError, TypeError) as error:
            raise UserError(f"{path} cannot be used: {error}; run the audit again.") from error


def _is_sound(one: SetPredictions, classes: int) -> bool:
    """Whether the arrays are of the right kinds, and labels and answers among the classes."""
    kinds = {"digests": "u", "ids": "U", "kinds": "U", "labels": "i", "predicted": "i", "right": "b", "wrong": "b"}
    arrays = {**one.arrays(), **{f"{SCORES} {name}": values for name, values in one.scores.items()}}
    if any(values.dtype.kind != kinds.get(name, "f") for name, values in arrays.items()):
        return False
    if any(values.ndim != 1 + (name == "digests") for name, values in arrays.items()):
        return False
    return all(
        bool((values >= low).all() and (values < classes).all())
        for values, low in ((one.labels, -1), (one.predicted, 0))
    )
