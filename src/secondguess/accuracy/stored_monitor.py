"""An accuracy monitor as a folder.

    monitor.json                       what was learnt from which images, the trials of each estimator, and which file
                                       holds what
    oracle-DIGEST.safetensors          the oracle
    leading-DIGEST.safetensors         the estimator that leads
    estimators/PLACE-NAME-DIGEST.safetensors   the others
    canary-DIGEST.safetensors          what the model answered to noise, by which it is recognised
    model.toml, model-*, weights-*     the model, as in the folder of a guard

As in that folder, files are named after their content and `monitor.json` is replaced last: an interruption leaves the
old monitor or the new one. Only `model.toml` is replaced just before; a monitor that finds another model there raises
an error. Format 3 had no canary: a model without a fingerprint cannot be recognised. Format 2 had no digests in names.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from secondguess.accuracy.base import Estimator, Trial
from secondguess.accuracy.labelled_data import LearntFrom
from secondguess.accuracy.oracles.icos import Icos
from secondguess.accuracy.synthetic_shifts import SyntheticShifts
from secondguess.contracts.content_named import checked_part, store_part, sweep_parts
from secondguess.contracts.sealed import Damaged, read_json, write_json_sealed
from secondguess.errors import UserError
from secondguess.files import make_folder, write_bytes
from secondguess.guard.stored_model import MODEL, store_model
from secondguess.model.classifier import Classifier
from secondguess.model.recognition import Answers, answers_to_canaries, recognise

if TYPE_CHECKING:
    from secondguess.accuracy.monitor import AccuracyMonitor

__all__ = ["read_monitor", "write_monitor"]

CARD, FORMAT, OLDER = "monitor.json", 4, (2, 3)
LEARNT = ("oracle*.safetensors", "leading*.safetensors", "estimators/*.safetensors", "canary*.safetensors")
PARTS = (*LEARNT, "model-*", "weights-*.safetensors")


@dataclass(frozen=True)
class Canary:
    """What a model answered to noise, as a file."""

    answers: Answers

    def save(self, path: Path) -> None:
        """Write the file."""
        from safetensors.numpy import save

        write_bytes(path, save({name: np.ascontiguousarray(array) for name, array in self.answers.items()}))

    @staticmethod
    def load(path: Path) -> Answers:
        """Read what `save` has written."""
        from safetensors.numpy import load

        return load(path.read_bytes())


def write_monitor(monitor: AccuracyMonitor, folder: str | Path) -> Path:
    """Implementation of `AccuracyMonitor.save`."""
    folder = make_folder(folder)
    if any(folder.iterdir()) and not (folder / CARD).is_file():
        raise UserError(f"{folder} holds something else than an accuracy monitor; name a folder of its own.")
    estimators = [
        store_part(folder, f"estimators/{place}-{one.name}", one) for place, one in enumerate(monitor.estimators)
    ]
    oracle, leading = store_part(folder, "oracle", monitor.oracle), store_part(folder, "leading", monitor.leading)
    canary = store_part(folder, "canary", Canary(answers_to_canaries(monitor.classifier, monitor.training.shape)))
    card = {
        "format": FORMAT,
        "model": {
            "name": monitor.classifier.name,
            "fingerprint": monitor.classifier.fingerprint,
            "output_kind": monitor.classifier.output_kind,
        },
        "training": asdict(monitor.training),
        "validation": asdict(monitor.validation),
        "oracle": oracle,
        "leading": leading,
        "estimators": estimators,
        "canary": canary,
        "trust": {name: [asdict(trial) for trial in trials] for name, trials in monitor.trust.items()},
        "notes": list(monitor.notes),
        "held_out": monitor.held_out,
        "seed": monitor.seed,
        "widest": monitor.widest,
        "loading": dict(monitor.loading),
        "softmax": monitor.softmax,
    }
    model_files = store_model(monitor.classifier, monitor.training.shape, folder)
    write_json_sealed(folder / CARD, card)
    sweep_parts(folder, PARTS, {oracle, leading, canary, *estimators, *model_files})
    return folder


def read_monitor(folder: str | Path, model: Any = None, **changes: Any) -> AccuracyMonitor:
    """Implementation of `AccuracyMonitor.load`."""
    from secondguess.accuracy.monitor import AccuracyMonitor

    folder = Path(folder)
    try:
        card = read_json(folder / CARD)
    except FileNotFoundError as error:
        raise UserError(f"There is no accuracy monitor in {folder}: it has no {CARD}.") from error
    except (Damaged, OSError, ValueError) as error:
        raise UserError(f"{folder / CARD} is damaged ({error}); fit the monitor again.") from error
    if card.get("format") not in (*OLDER, FORMAT):
        raise UserError(
            f"{folder / CARD} is written in format {card.get('format')!r}, but this version of secondguess reads "
            f"{OLDER[0]} to {FORMAT}; install a newer one, or fit the monitor again."
        )
    card = {"oracle": "oracle.safetensors", "leading": "leading.safetensors"} | card  # their names in format 2
    if model is None and not (folder / MODEL).is_file():
        raise UserError(
            f"The monitor in {folder} was fitted on a model that cannot be opened from a file; give it: "
            "AccuracyMonitor.load(folder, model)."
        )
    classifier = Classifier.open(folder / MODEL if model is None else model, **changes)
    training, validation = (_learnt_from(card[name]) for name in ("training", "validation"))
    known = Canary.load(_part(folder, card["canary"])) if "canary" in card else {}
    recognise(classifier, card["model"], known, lambda one: answers_to_canaries(one, training.shape), what="monitor")
    return AccuracyMonitor(
        classifier=classifier if classifier.class_names else classifier.with_classes(training.class_names),
        training=training,
        validation=validation,
        oracle=Icos.load(_part(folder, card["oracle"])),
        leading=SyntheticShifts.load(_part(folder, card["leading"])),
        estimators=[Estimator.load(_part(folder, file)) for file in card["estimators"]],
        trust={name: tuple(Trial(**trial) for trial in trials) for name, trials in card["trust"].items()},
        notes=tuple(card["notes"]),
        held_out=bool(card["held_out"]),
        seed=int(card["seed"]),
        widest=float(card["widest"]),
        loading=card["loading"] | {"size": tuple(training.shape[1:])},
        softmax=card.get("softmax", ""),
    )


def _part(folder: Path, name: str) -> Path:
    return checked_part(folder, name, card=CARD, what="monitor")


def _learnt_from(card: dict[str, Any]) -> LearntFrom:
    return LearntFrom(**card | {name: tuple(card[name]) for name in ("shape", "class_names")})
