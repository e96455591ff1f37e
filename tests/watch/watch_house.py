"""Records for the watch page: a quiet time, then one with many more alarms."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from secondguess.service.records import Record, Records
from service_house import CARD, picture

BEGUN = 1_700_000_000_000
VERDICTS = ("ambiguous", "out-of-distribution", "adversarial", "invalid", "ambiguous or invalid")


def fill(where: Path, quiet: int, loud: int, *, seed: int = 0, loud_rate: float = 0.4, pictures: bool = True) -> None:
    """Write `quiet` images with 5 % alarms and then `loud` ones with more, one a second."""
    rng = np.random.default_rng(seed)
    alarms = np.concatenate([rng.random(quiet) < 0.05, rng.random(loud) < loud_rate]).astype(int)
    records = Records(str(where))
    records.begin(CARD)
    records.append([_record(k, int(alarm), rng, pictures) for k, alarm in enumerate(alarms)])
    records.close()


def _record(k: int, alarm: int, rng: np.random.Generator, pictures: bool) -> Record:
    confidence = float(rng.uniform(0.4, 1))
    return Record(
        time=BEGUN + 1000 * k,
        request=f"{k:032x}",
        pixels=f"{k:032x}",
        prediction=k % 3,
        label=CARD["class_names"][k % 3],
        confidence=confidence,
        p_value=float(rng.uniform(0.001, 0.05)) if alarm else 0.5,
        verdict=str(rng.choice(VERDICTS)) if alarm else "nominal",
        action="ask" if alarm else "accept",
        alarm=alarm,
        likeliest=json.dumps([[k % 3, confidence], [(k + 1) % 3, 1 - confidence]]),
        thumbnail=picture(float(rng.random()), first=1) if alarm and pictures else None,
    )
