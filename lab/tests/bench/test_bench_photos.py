"""The benchmark of photographs reports what was planned and what it took, for every model and command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from secondguess.errors import UserError
from secondguess_lab.bench import photos


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Path]]:
    """Commands that do nothing but say that they ran, where."""
    ran: list[tuple[str, Path]] = []

    def command(name: str) -> Any:
        def work(classifier: Any, images: Any, minutes: float, folder: Path, progress: Any) -> Any:
            ran.append((name, folder))
            assert minutes == min(4, photos.ALLOWED[name])
            if name == photos.EMBEDDED:
                assert classifier is images is None
                return None, []
            assert folder.is_dir() and images.train.shape == images.test.shape == (3, 32, 32)
            parts = [{"name": "stress.a", "size": 0}, {"name": "stress.b", "size": 9}]
            plan = {"planned_seconds": 4.0, "seconds": 6.0, "parts": parts}
            return (plan if name == "audit" else None), ["adversarial"]

        return work

    monkeypatch.setattr(photos, "TRAIN", 40)
    monkeypatch.setattr(photos, "TEST", 20)
    monkeypatch.setattr(photos, "_RUN", {name: command(name) for name in photos.ALLOWED})
    return ran


def test_every_command_is_timed_on_every_model(quick: list[tuple[str, Path]]) -> None:
    found = photos.run(minutes=4)
    assert [name for name, _ in quick] == ["audit", "guard", "estimate", "label"]
    assert not any(folder.exists() for _, folder in quick), "nothing is left behind"
    assert found["images"] == {"train": 40, "test": 20}
    audit, guard, *_ = found["rows"]
    assert (audit["planned"], audit["ratio"], audit["allowed"]) == (4.0, 1.5, 240)
    assert (guard["planned"], guard["ratio"], guard["missing"]) == (None, None, ["adversarial"])
    assert (audit["left_out"], guard["left_out"]) == (["stress.a"], [])
    shown = photos.lines(found)
    assert audit["silent"]["after"].lower().removeprefix("the ").startswith("beginning")
    assert len(shown) == 5 and "1.50" in shown[1] and shown[1].endswith("without adversarial")


def test_the_embedded_audit_needs_no_model(quick: list[tuple[str, Path]]) -> None:
    (row,) = photos.run(commands=["embedded"], minutes=4)["rows"]
    assert [name for name, _ in quick] == ["embedded"]
    assert (row["model"], row["command"], row["allowed"]) == ("embedded", "embedded", 240)


def test_unknown_commands_are_refused() -> None:
    from typer.testing import CliRunner

    from secondguess_lab.cli.bench import app

    result = CliRunner().invoke(app, ["photos", "--commands", "fly"])
    assert isinstance(result.exception, UserError) and "no command 'fly' to be timed" in str(result.exception)


def test_a_page_is_timed_for_real(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(photos, "TRAIN", 60)
    monkeypatch.setattr(photos, "TEST", 30)
    found = photos.run(commands=["label"])
    (row,) = found["rows"]
    assert row["command"] == "label" and row["seconds"] > 0 and row["missing"] == []
