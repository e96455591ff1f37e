"""The two sides of a comparison: audits that were made before, or models, which are asked now."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from secondguess.audits import AuditResult, Findings, Section, audit
from secondguess.audits.context import Context
from secondguess.audits.predictions import Predictions
from secondguess.audits.result import DATA
from secondguess.audits.subject import Images, Subject
from secondguess.errors import UserError
from secondguess.images import ImageSet
from secondguess.model.classifier import Classifier

__all__ = ["Side", "is_audit", "open_audit", "run_audit", "told_apart"]


@dataclass(frozen=True, eq=False)
class Side:
    """What a model answered, and what is known about it.

    Attributes:
        about: what `audit.json` holds.
        predictions: image by image.
        images: the test images, where they are known.
        place: where it comes from, if the name of its model alone says too little.
    """

    about: Mapping[str, Any]
    predictions: Predictions
    images: ImageSet | None = None
    place: str = ""

    @property
    def name(self) -> str:
        """Of the model, with its place if it has one."""
        name = str(self.about["model"]["name"])
        return f"{name} in {self.place}" if self.place else name

    @property
    def fitted_on(self) -> int | None:
        """The training images that supervisors were fitted on; None where that is not known."""
        plan, train = self.about.get("plan"), self.about["data"].get("train")
        parts = plan.get("parts", ()) if isinstance(plan, dict) else ()
        sizes = [part.get("size") for part in parts if isinstance(part, dict) and part.get("name") == "train"]
        size = sizes[0] if sizes else train.get("images") if isinstance(train, dict) else None
        return size if isinstance(size, int) else None

    def describe(self) -> dict[str, Any]:
        """Where it comes from, as JSON can hold it."""
        known = ("created", "command", "seed", "versions", "model", "data", "plan")
        return {name: self.about.get(name) for name in known}


def is_audit(given: Any) -> bool:
    """Whether this is an audit, and not a model: a result, an `audit.json`, or a folder with one."""
    if isinstance(given, AuditResult):
        return True
    if not isinstance(given, (str, os.PathLike)):
        return False
    path = Path(given)
    return path.suffix == ".json" or (path / DATA).is_file()


def open_audit(given: AuditResult | str | os.PathLike[str]) -> Side:
    """Read an audit and what it kept of each image."""
    if isinstance(given, AuditResult):
        if given.predictions is None:
            raise UserError("An audit was interrupted before it had seen its test images; run it again.")
        return Side(given.to_dict(), given.predictions)
    path = Path(given) / DATA if Path(given).is_dir() else Path(given)
    try:
        content = json.loads(path.read_text("utf-8"))
        sealed = content["predictions"]
        file, digest = path.parent / Path(sealed["file"]).name, str(sealed["digest"])
        _check(content)
    except OSError as error:
        raise UserError(
            f"{path} cannot be read ({error.strerror or error}); give the audit.json of an audit."
        ) from error
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise UserError(
            f"{path} is no audit.json with the answers to each image; audit the model again with this version."
        ) from error
    return Side(content, Predictions.read(file, digest))


def told_apart(before: Side, after: Side, places: Sequence[Any]) -> tuple[Side, Side]:
    """Both sides; with their places, where these are known and differ and the models have one name."""
    first, second = (os.fspath(one) if isinstance(one, str | os.PathLike) else "" for one in places)
    if before.name != after.name or not first or not second or first == second:
        return before, after
    return replace(before, place=first), replace(after, place=second)


def _check(content: Mapping[str, Any]) -> None:
    """Raise a `ValueError`, `TypeError` or `KeyError` unless everything is there that a comparison shows."""
    test, model = content["data"]["test"], content["model"]
    texts = content["created"], content["versions"]["secondguess"], test["name"], test["fingerprint"], model["name"]
    sizes = *test["shape"], content["seed"]
    if not all(isinstance(text, str) for text in texts) or not all(isinstance(size, int) for size in sizes):
        raise ValueError
    if len(sizes) != 4 or not isinstance(model["fingerprint"], str | None):
        raise ValueError


class Scores(Section):
    """Nothing to read: every supervisor's scores on all images, which are then kept."""

    name = "scores"
    title = "Scores"

    def run(self, context: Context) -> Findings:
        """Score the test images and every stress set."""
        for supervisor in context.fitted:
            for name in ("nominal", *context.stressed):
                context.scored(supervisor.name, name)
        return Findings()


def run_audit(
    model: Classifier,
    data: Images | None,
    test: Images | None,
    train: Images | None,
    *,
    loading: Mapping[str, Any],
    **options: Any,
) -> Side:
    """Ask a model about test images and stress sets made of them; `options` are those of `audit`."""
    subject = Subject.opened(model, data, test, train, model.device, loading)
    images = subject.data
    result = audit(subject.classifier, test=images.test, train=images.train, sections=[Scores()], **options)
    if result.interrupted or result.predictions is None:
        raise KeyboardInterrupt
    if result.failed:
        raise UserError(result.failed[0].reason)
    return Side(result.to_dict(), result.predictions, images.test)
