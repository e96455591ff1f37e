"""A guard on disk: a folder that is loaded without training data and without unpickling anything.

    guard.json                        settings, model, calibration record, report, and the names of the other files
    supervisors/LABEL-DIGEST.safetensors   one for each supervisor
    panel-DIGEST.safetensors          the arrays of panel, cascade, calibration and naming
    model.toml                        what the model is, and its files; see `stored_model`

Files are named after their content and written first; `guard.json`, which names them, is replaced last and atomically,
and only then what it no longer names is removed. An interruption thus leaves the old guard or the new one. Loading
checks every digest. `model.toml` is replaced just before `guard.json`; a guard that finds another model there raises an
error.

A guard belongs to one model. It is recognised by its fingerprint, or, where that has changed though the model has not
(another version of torch, the same weights in another file), by its answers to a few fixed noise images: the guard
keeps the probabilities and the supervisors' scores of these, and both must be reproduced.

Format 5. Format 4 named kinds without asking the model about changed images. Format 3 knew neither what to protect
against nor a promised risk. Format 2 called `min_probability` `sure` and the `anomalies` of a panel `troubles`. Format
1 also kept its settings at the top of `guard.json` instead of under `settings`, its arrays in `panel.safetensors`, its
supervisors in `supervisors/LABEL.safetensors` without digests, and knew no noise images.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from secondguess import __version__
from secondguess.contracts.content_named import as_file, checked_part, content_digest, store_part, sweep_parts
from secondguess.contracts.sealed import read_json, write_json_sealed
from secondguess.errors import UserError
from secondguess.files import make_folder, write_bytes
from secondguess.guard.actions import Actions
from secondguess.guard.cascade import Cascade
from secondguess.guard.naming import Naming
from secondguess.guard.panel import Panel
from secondguess.guard.pipeline import DecisionPipeline, Decisions, Settings
from secondguess.guard.report import GuardReport
from secondguess.guard.risk import RiskControl
from secondguess.guard.stored_model import store_model
from secondguess.guard.thresholds import Calibration
from secondguess.model.recognition import canaries, recognise
from secondguess.supervisors import SupervisorSet
from secondguess.supervisors.base import Supervisor

if TYPE_CHECKING:
    from secondguess.model.classifier import Classifier

__all__ = [
    "FORMAT",
    "StoredGuard",
    "decision_arrays",
    "decision_fields",
    "load_arrays",
    "prefixed",
    "read_card",
    "read_guard",
    "store_arrays",
    "with_anomalies",
    "within",
    "write_guard",
]

FORMAT = 5
CARD = "guard.json"
PARTS = ("panel*.safetensors", "supervisors/*.safetensors", "model-*", "weights-*.safetensors")
LIMIT, LIMITS = "risk/limit", "risk/limits"
OLD_SETTINGS = ("false_alarms", "per_class", "rule", "sure", "latency_ms")  # of formats 1 and 2
DAMAGE = (KeyError, TypeError, ValueError, AttributeError)


@dataclass(frozen=True, eq=False)
class StoredGuard:
    """What a folder holds.

    Attributes:
        classifier: the system under test, of which the folder keeps the fingerprint, and the description if it has one.
        pipeline: judges.
        settings: the requested settings.
        shape: (C, H, W) of the images.
        record: how it was fitted and calibrated.
        report: what to expect of it.
    """

    classifier: Classifier
    pipeline: DecisionPipeline
    settings: Settings
    shape: tuple[int, int, int]
    record: dict[str, Any]
    report: GuardReport


def write_guard(guard: StoredGuard, folder: str | Path) -> Path:
    """Write a fitted guard into `folder`, which is created if needed; an older guard in it is replaced."""
    folder = make_folder(folder)
    if any(folder.iterdir()) and not (folder / CARD).is_file():
        raise UserError(f"{folder} holds something else than a guard; name a folder of its own.")
    pipeline, classifier = guard.pipeline, guard.classifier
    files = [
        store_part(folder, f"supervisors/{as_file(label)}", one)
        for label, one in zip(pipeline.labels, pipeline.supervisors.supervisors, strict=True)
    ]
    arrays = (
        decision_arrays(pipeline)
        | _control_arrays(pipeline)
        | prefixed("canary", _canary(classifier, pipeline.supervisors, guard.shape))
    )
    card = {
        "format": FORMAT,
        "secondguess": __version__,
        "model": {
            "name": classifier.name,
            "fingerprint": classifier.fingerprint,
            "output_kind": classifier.output_kind,
        },
        "shape": list(guard.shape),
        "class_names": list(pipeline.class_names),
        "settings": asdict(guard.settings),
        "actions": dict(pipeline.actions.chosen),
        "supervisors": files,
        "arrays": store_arrays(folder, arrays),
        "panel": pipeline.panel.card(),
        "cascade": None if pipeline.cascade is None else pipeline.cascade.card(),
        "naming": None if pipeline.naming is None else pipeline.naming.card(),
        "record": guard.record,
        "report": guard.report.to_dict(),
    }
    model_files = store_model(classifier, guard.shape, folder)
    write_json_sealed(folder / CARD, card)
    sweep_parts(folder, PARTS, {str(card["arrays"]), *files, *model_files})
    return folder


def decision_arrays(decisions: Decisions) -> dict[str, NDArray[Any]]:
    """The arrays of panel, calibration, cascade and naming, for `load_decisions`."""
    arrays = prefixed("panel", decisions.panel.arrays()) | prefixed("calibration", decisions.calibration.arrays())
    if decisions.limit is not None:
        arrays[LIMIT] = np.array([decisions.limit])  # JSON has no infinity
    for name, part in (("cascade", decisions.cascade), ("naming", decisions.naming)):
        arrays |= {} if part is None else prefixed(name, part.arrays())
    return arrays


def decision_fields(card: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    """The fields of `Decisions` that a card and its arrays hold, all but the labels and the settings."""
    return {
        "class_names": tuple(card["class_names"]),
        "panel": Panel.restored(card["panel"], within("panel", arrays)),
        "calibration": Calibration.from_arrays(within("calibration", arrays)),
        "cascade": None if card["cascade"] is None else Cascade.restored(card["cascade"], within("cascade", arrays)),
        "naming": card.get("naming") and Naming.restored(card["naming"], within("naming", arrays)),
        "actions": Actions(card["actions"]),
        "limit": float(arrays[LIMIT][0]) if LIMIT in arrays else None,
    }


def _control_arrays(pipeline: DecisionPipeline) -> dict[str, NDArray[Any]]:
    return {} if pipeline.control is None else {LIMITS: pipeline.control.limits}


def _control(settings: Settings, arrays: Mapping[str, NDArray[Any]]) -> RiskControl | None:
    if settings.risk is None:
        return None
    return RiskControl(settings.risk, settings.confidence, arrays[LIMITS])


def read_card(folder: str | Path) -> dict[str, Any]:
    """The content of `guard.json`, converted to the present format."""
    path = Path(folder) / CARD
    if Path(folder).is_file():
        is_model = Path(folder).suffix.lower() in (".toml", ".onnx", ".pt2")
        hint = f"fit one with secondguess guard fit --model {folder}" if is_model else "name the folder of a guard"
        raise UserError(f"{folder} is a {'model' if is_model else 'file'}, not the folder of a guard; {hint}.")
    try:
        card = read_json(path, sealed=False)  # earlier versions wrote no digest
        version = card["format"]
    except FileNotFoundError as error:
        raise UserError(
            f"There is no guard in {folder}: it has no {CARD}; `secondguess guard fit` makes a guard."
        ) from error
    except (OSError, *DAMAGE) as error:
        raise UserError(f"{path} is damaged or not a guard ({error}); fit the guard again.") from error
    if not isinstance(version, int) or version not in (*MIGRATIONS, FORMAT):
        raise UserError(
            f"{path} is written in format {version!r}, but this version of secondguess reads up to {FORMAT}; install a "
            "newer one."
        )
    try:
        while card["format"] != FORMAT:
            card = MIGRATIONS[card["format"]](card)
    except DAMAGE as error:
        raise UserError(f"{path} is damaged ({type(error).__name__}: {error}); fit the guard again.") from error
    return card


def read_guard(folder: str | Path, classifier: Classifier) -> StoredGuard:
    """Read a guard for the classifier it was fitted on; a `UserError` for any other."""
    folder, card = Path(folder), read_card(folder)
    try:
        arrays = load_arrays(folder, card)
        supervisors = SupervisorSet([Supervisor.load(_checked(folder, name)) for name in card["supervisors"]])
        settings, shape = Settings(**card["settings"]), tuple(card["shape"])
        report = GuardReport.from_dict(card["report"])
        known = within("canary", arrays)
        recognise(classifier, card["model"], known, lambda one: _canary(one, supervisors, shape), what="guard")
        pipeline = DecisionPipeline(
            labels=supervisors.labels,
            false_alarms=settings.false_alarms,
            min_probability=settings.min_probability,
            supervisors=supervisors,
            control=_control(settings, arrays),
            **decision_fields(card, arrays),
        )
    except DAMAGE as error:
        raise UserError(f"The guard in {folder} is damaged ({type(error).__name__}: {error}); fit it again.") from error
    return StoredGuard(classifier, pipeline, settings, shape, card["record"], report)


def load_arrays(folder: Path, card: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """The arrays of a guard, by `panel/NAME`, `cascade/NAME`, `calibration/NAME` and `canary/NAME`."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    path = _checked(folder, card["arrays"])
    try:
        return load_file(path)
    except SafetensorError as error:
        raise UserError(f"{path} is damaged ({error}); fit the guard again.") from error


def _canary(classifier: Classifier, supervisors: SupervisorSet, shape: tuple[int, int, int]) -> dict[str, NDArray[Any]]:
    """The outputs of the classifier and the supervisors for the canaries."""
    observation = classifier.observe(canaries(shape), supervisors.needs)
    # Distances of noise to the data differ by rounding in their last digits, whatever their size.
    scores = np.arcsinh(supervisors.score(observation))
    return {"probabilities": observation.probabilities, "scores": np.clip(scores, -1e3, 1e3)}


def store_arrays(folder: Path, arrays: Mapping[str, NDArray[Any]]) -> str:
    """Write arrays under the name of their content, which is returned."""
    from safetensors.numpy import save

    content = save({name: np.ascontiguousarray(array) for name, array in arrays.items()})
    name = f"panel-{content_digest(content)}.safetensors"
    write_bytes(folder / name, content)
    return name


def _checked(folder: Path, name: str) -> Path:
    return checked_part(folder, name, card=CARD, what="guard")


def prefixed(name: str, arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """The arrays under `name/KEY`."""
    return {f"{name}/{key}": array for key, array in arrays.items()}


def within(name: str, arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """The opposite of `prefixed`."""
    return {key.removeprefix(f"{name}/"): array for key, array in arrays.items() if key.startswith(f"{name}/")}


def _from_1(card: dict[str, Any]) -> dict[str, Any]:
    """Format 1 as format 2."""
    moved = {name: card.pop(name) for name in OLD_SETTINGS if name in card}
    files = [f"supervisors/{as_file(label)}.safetensors" for label in card["supervisors"]]
    return card | {"format": 2, "settings": moved, "supervisors": files, "arrays": "panel.safetensors"}


def _from_2(card: dict[str, Any]) -> dict[str, Any]:
    """Format 2 as format 3."""
    settings = {"min_probability" if name == "sure" else name: value for name, value in card["settings"].items()}
    cascade = card["cascade"] and card["cascade"] | {"first": with_anomalies(card["cascade"]["first"])}
    panel = with_anomalies(card["panel"])
    return card | {"format": 3, "settings": settings, "panel": panel, "cascade": cascade}


def _from_3(card: dict[str, Any]) -> dict[str, Any]:
    """Format 3 as format 4."""
    seen = {kind: one | {"by_answer": None} for kind, one in card["report"]["seen"].items()}
    unknown = {"protect": "novelty", "alarms": None, "mistakes": None, "promise": None}
    return card | {"format": 4, "report": unknown | card["report"] | {"seen": seen}}


def _from_4(card: dict[str, Any]) -> dict[str, Any]:
    """Format 4 as format 5."""
    return card | {"format": 5, "naming": card.get("naming") and {"changes": [], **card["naming"]}}


def with_anomalies(panel: Mapping[str, Any]) -> dict[str, Any]:
    """The card of a panel that calls its anomalies troubles, as it is now."""
    return {"anomalies" if name == "troubles" else name: value for name, value in panel.items()}


MIGRATIONS: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {
    1: _from_1,
    2: _from_2,
    3: _from_3,
    4: _from_4,
}
