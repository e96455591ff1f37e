"""Finished audits with made-up answers, so that comparisons need no model."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from secondguess.audits import AuditResult
from secondguess.audits.predictions import NOMINAL, Predictions, SetPredictions

CLASSES = 4


def digest(number: int) -> list[int]:
    return list(hashlib.blake2b(str(number).encode(), digest_size=16).digest())


def answers(
    right: Any,
    *,
    images: Sequence[int] | None = None,
    labels: Any = None,
    scores: dict[str, Any] | None = None,
    **more: Any,
) -> SetPredictions:
    """The answers of a model that is right where `right` says so, to images that are known by a number each."""
    right = np.asarray(right, dtype=bool)
    n = len(right)
    numbers = np.arange(n) if images is None else np.asarray(images)
    labels = numbers % CLASSES if labels is None else np.asarray(labels)
    confidence = np.where(right, 0.9, 0.6)
    values: dict[str, Any] = {
        "digests": np.array([digest(one) for one in numbers.tolist()], dtype=np.uint8),
        "ids": np.full(n, ""),
        "kinds": np.full(n, ""),
        "labels": labels,
        "predicted": np.where(right, labels, (labels + 1) % CLASSES),
        "right": right & (labels >= 0),
        "wrong": ~right & (labels >= 0),
        "confidence": confidence,
        "entropy": 1 - confidence,
        "brier": (1 - confidence) ** 2,
        "nll": -np.log(np.where(right, confidence, 1 - confidence)),
        "scores": {"entropy": 1 - confidence} if scores is None else scores,
    }
    return SetPredictions(**values | more)


def audited(name: str = "model", sets: dict[str, SetPredictions] | None = None, **about: Any) -> AuditResult:
    """A finished audit with these answers, without the work."""
    sets = sets or {NOMINAL: answers(np.ones(40))}
    test = {"name": "cats", "fingerprint": "f" * 32, "shape": [1, 8, 8], "images": len(sets[NOMINAL]), "classes": {}}
    known = {
        "created": "2026-11-16T12:00:00+00:00",
        "command": None,
        "seed": 0,
        "versions": {"secondguess": "0.2.0"},
        "model": {"name": name, "fingerprint": "a" * 32, "repeatable": True},
        "data": {"test": test, "train": None},
        "plan": None,
        "stress": [],
        "seconds": 1.0,
    }
    names = about.pop("class_names", tuple("abcd"))
    return AuditResult(known | about, predictions=Predictions(names, sets))


def flipped(lost: int, gained: int) -> tuple[AuditResult, AuditResult]:
    """Two audits of the same 200 images, of which so many were lost and so many gained."""
    before = np.arange(200) < 160
    after = before.copy()
    after[:lost], after[160 : 160 + gained] = False, True
    return audited("old", {NOMINAL: answers(before)}), audited("new", {NOMINAL: answers(after)})
