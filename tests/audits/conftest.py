from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

import secondguess as sg
from full_sizes import unhurried
from secondguess import AuditResult, Classifier, Dataset, load
from secondguess.stress.ambiguous import PixelBlend

__all__ = ["unhurried"]

HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(2)>',
    "a & b",
    "{{ 7 * 7 }}",
    "', DROP",
    "数字",
    "~ 6",
)


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def digits() -> Dataset:
    return load("digits")


@pytest.fixture(scope="session")
def net(digits: Dataset) -> nn.Module:
    """A small network that has learnt the digits, though not to perfection."""
    assert digits.train is not None
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 10))
        images, labels = torch.from_numpy(digits.train.materialise()), torch.from_numpy(digits.train.labels)
        optimiser = torch.optim.Adam(model.parameters(), 1e-2)
        for _ in range(60):
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(images), labels).backward()
            optimiser.step()
    return model.eval()


@pytest.fixture(scope="session")
def softmax(net: nn.Module) -> Callable[[NDArray[np.float32]], NDArray[np.float32]]:
    """The network as a black box that tells probabilities and nothing else."""

    def probabilities(images: NDArray[np.float32]) -> NDArray[np.float32]:
        with torch.no_grad():
            return np.asarray(net(torch.from_numpy(images)).softmax(dim=1))

    return probabilities


@pytest.fixture
def classifier(net: nn.Module) -> Classifier:
    return Classifier(net, name="tiny", device="cpu")


@pytest.fixture(scope="session")
def audited(net: nn.Module, digits: Dataset, tmp_path_factory: pytest.TempPathFactory) -> AuditResult:
    """One audit with everything in it, shared by all tests that only look."""
    torch.set_num_threads(1)
    return sg.audit(
        Classifier(net, name="tiny", device="cpu"),
        digits.test,
        train=digits.train,
        folder=tmp_path_factory.mktemp("audit"),
        supervisors=["max_softmax", "pcs", "entropy", "deep_gini"],
        stress=["corrupted", "invalid"],
        gates=["accuracy.test >= 90%", "calibration.ece<=0.000001", "supervisor.entropie.invalid.auroc>0.5"],
        seed=7,
        command="secondguess audit --data digits",
    )


@pytest.fixture(scope="session")
def read_json() -> Callable[[Path], dict[str, Any]]:
    """Read JSON as strict readers do, which know no NaN."""

    def read(path: Path) -> dict[str, Any]:
        def refuse(constant: str) -> None:
            raise ValueError(f"{constant} is no JSON")

        content: dict[str, Any] = json.loads(path.read_text("utf-8"), parse_constant=refuse)
        return content

    return read


@pytest.fixture(scope="session")
def hostile_names() -> tuple[str, ...]:
    """Ten class names of somebody who means harm, or writes in another alphabet."""
    return (*HOSTILE, "seven", "eight" * 30, "nine ]]>")


@pytest.fixture(scope="session")
def hostile(
    net: nn.Module, digits: Dataset, hostile_names: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory
) -> AuditResult:
    test = digits.test.head(80, seed=1)
    evil = replace(
        test,
        class_names=hostile_names,
        name="<b>images</b>",
        ids=tuple(f"{index}<script>alert(3)</script>.png" for index in range(80)),
    )
    return sg.audit(
        Classifier(net, name='<i>model</i>"'),
        evil,
        folder=tmp_path_factory.mktemp("hostile"),
        command="secondguess audit --out '</code><script>alert(4)</script>'",
        stress=[PixelBlend(pairs=[(0, 1), (2, 3)]), "corrupted", "invalid"],
        gates=["accuracy.'alert(5)'&\"x\" >= 0.5"],
    )
