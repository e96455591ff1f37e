from __future__ import annotations

from importlib.metadata import EntryPoint
from typing import Any

import pytest

from secondguess.accuracy.oracles import Oracle, Verdicts, get, make, make_all, names, register, registry
from secondguess.accuracy.oracles.icos import Icos
from secondguess.contracts import registry as _registry
from secondguess.errors import UserError
from secondguess.model.observation import Observation


class Trusting(Oracle):
    name = "trusting"

    def _judge(self, operation: Observation) -> Verdicts:
        return Verdicts.make(operation.predictions * 0)


def test_ours_come_first_and_are_made_by_name() -> None:
    assert names()[:2] == ["icos", "cross_reference"]
    assert get("icos") is Icos
    assert make("icos", confidence=0.5).params()["confidence"] == 0.5
    assert make("icos:confidence=0.5").params()["confidence"] == 0.5
    assert [one.name for one in make_all(["cross-reference", make("icos")])] == ["cross_reference", "icos"]


def test_mistakes_get_a_hint() -> None:
    with pytest.raises(UserError, match=r"There is no oracle 'icoss'; did you mean 'icos'\?"):
        get("icoss")
    with pytest.raises(UserError, match="known are: icos"):
        get("zzz")
    with pytest.raises(UserError, match=r"'icos' cannot be made: .*'size'; its parameters are: rules, confidence"):
        make("icos", size=3)


@pytest.mark.usefixtures("clean_registry")
def test_a_name_belongs_to_one_class() -> None:
    assert register(Trusting) is Trusting
    assert register(Trusting) is Trusting
    assert names()[-1] == "trusting"
    other = type("Other", (Trusting,), {})
    with pytest.raises(ValueError, match="two oracles are called 'trusting'"):
        register(other)


@pytest.mark.usefixtures("clean_registry")
def test_entry_points_are_found_and_cannot_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    group = "secondguess.oracles"
    good = EntryPoint("trusting", f"{__name__}:Trusting", group)
    monkeypatch.setattr(EntryPoint, "load", lambda self: Trusting if self.name == "trusting" else dict)
    bad = EntryPoint("broken", "builtins:dict", group)

    def found(*, group: str) -> list[Any]:
        return {bad.group: [bad, good]}[group]

    monkeypatch.setattr(_registry, "entry_points", found)
    monkeypatch.setattr(registry.REGISTRY, "complete", False)
    with pytest.warns(
        UserWarning, match=r"'broken' .* was left out: .* is not a subclass of secondguess\.accuracy\.oracles\.Oracle"
    ):
        assert "trusting" in names()


@pytest.mark.usefixtures("clean_registry")
def test_an_oracle_from_elsewhere_may_have_parameters_without_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    class Demanding(Trusting):
        name = "demanding"

        def __init__(self, level: float) -> None:
            self.level = level

    monkeypatch.setattr(EntryPoint, "load", lambda self: Demanding)
    theirs = EntryPoint("demanding", "package.module:Demanding", "secondguess.oracles")
    monkeypatch.setattr(_registry, "entry_points", lambda *, group: [theirs])
    monkeypatch.setattr(registry.REGISTRY, "complete", False)
    assert make("demanding", level=2.0).params() == {"level": 2.0}
    with pytest.raises(UserError, match="The oracle 'demanding' cannot be made: missing a required argument: 'level'"):
        make("demanding")
