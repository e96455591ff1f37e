from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from secondguess import Observation, Supervisor, UserError
from secondguess.contracts import registry as _registry
from secondguess.supervisors import get, make, make_all, names, register, registry
from secondguess.supervisors.softmax import Entropy


class Flat(Supervisor):
    name = "flat"
    requires_fit = False

    def __init__(self, level: float = 0.0) -> None:
        self.level = level

    def _score(self, observation: Observation) -> NDArray[np.floating[Any]]:
        return np.full(len(observation), self.level)


class Demanding(Flat):
    name = "demanding"

    def __init__(self, level: float) -> None:
        self.level = level


class Usurper(Flat):
    name = "entropy"


class Entry:
    """What `importlib.metadata` gives for a declared entry point, as far as it is used."""

    def __init__(self, name: str, found: Any) -> None:
        self.name, self.value, self.found = name, f"package.module:{name}", found

    def load(self) -> Any:
        if isinstance(self.found, Exception):
            raise self.found
        return self.found


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch, clean_registry: None) -> list[Entry]:
    """Entry points of other packages; whatever is put into the list is installed."""
    entries: list[Entry] = []

    def entry_points(*, group: str) -> list[Entry]:
        assert group == "secondguess.supervisors"
        return entries

    monkeypatch.setattr(_registry, "entry_points", entry_points)
    monkeypatch.setattr(registry.REGISTRY, "complete", False)
    return entries


def test_the_softmax_supervisors_are_known() -> None:
    assert names()[:4] == ["max_softmax", "pcs", "entropy", "deep_gini"]


@pytest.mark.usefixtures("clean_registry")
def test_the_order_does_not_depend_on_who_was_imported_first(monkeypatch: pytest.MonkeyPatch) -> None:
    room = "secondguess.supervisors"
    early = type("Early", (Flat,), {"name": "early", "__module__": f"{room}.package.inner"})
    late = type("Late", (Flat,), {"name": "late", "__module__": f"{room}.packages"})
    known = {kind.name: kind for kind in (Flat, late, early, Entropy)}
    monkeypatch.setattr(registry.REGISTRY, "known", known)
    monkeypatch.setattr(registry.REGISTRY, "modules", ("softmax", "package", "packages"))
    assert names() == ["entropy", "early", "late", "flat"]


@pytest.mark.parametrize(("asked", "meant"), [("entropi", "entropy"), ("deepgini", "deep_gini")])
def test_an_unknown_name_gets_its_close_match(asked: str, meant: str) -> None:
    with pytest.raises(UserError, match=rf"no supervisor '{asked}'; did you mean .*'{meant}'"):
        get(asked)


def test_a_name_like_no_other_gets_the_list() -> None:
    with pytest.raises(UserError, match=r"no supervisor 'zzz'; known are: max_softmax, pcs, entropy, deep_gini"):
        get("zzz")


@pytest.mark.usefixtures("clean_registry")
def test_two_supervisors_of_one_name_are_a_defect() -> None:
    register(Flat)
    assert register(Flat) is Flat
    with pytest.raises(ValueError, match="two supervisors are called 'entropy'"):
        register(Usurper)


@pytest.mark.usefixtures("clean_registry")
def test_a_class_of_the_same_name_replaces_ours_only_from_the_same_module() -> None:
    theirs = type("Entropy", (Flat,), {"name": "entropy", "__module__": "their_package"})
    with pytest.raises(ValueError, match="two supervisors are called 'entropy'"):
        register(theirs)
    assert get("entropy") is Entropy
    reloaded = type("Entropy", (Flat,), {"name": "entropy", "__module__": Entropy.__module__})
    assert register(reloaded) is reloaded
    assert get("entropy") is reloaded


def test_make_gives_one_and_make_all_takes_all_several_and_ready_made() -> None:
    assert [one.name for one in make_all("all")] == names()
    assert type(make("entropy")) is Entropy
    assert [type(one) for one in make_all("entropy")] == [Entropy]
    ready = Flat(3)
    made = make_all(["pcs", ready])
    assert made[0].name == "pcs"
    assert made[1] is ready


class Costly(Flat):
    name = "costly"
    family = "patience"
    expensive = True


@pytest.mark.usefixtures("clean_registry")
def test_standard_are_all_but_the_expensive_ones() -> None:
    register(Flat)
    register(Costly)
    everybody, standard = ([one.name for one in make_all(which)] for which in ("all", "standard"))
    assert everybody == names()
    assert everybody[-2:] == ["flat", "costly"]
    assert standard == [name for name in everybody if not get(name).expensive]
    assert {"entropy", "flat"} <= set(standard)
    assert "costly" not in standard
    assert make("costly").name == "costly"
    assert [one.name for one in make_all(["standard", "costly"])] == [*standard, "costly"]
    assert [one.name for one in make_all(["all"])] == everybody


def test_a_family_is_declared_or_the_module_it_comes_from() -> None:
    assert registry.family(Costly) == "patience"
    assert registry.family(Entropy) == "softmax"
    assert registry.family(Flat) == "other"
    deep = type("Deep", (Flat,), {"__module__": "secondguess.supervisors.surprise.dsa"})
    assert registry.family(deep) == "surprise"
    theirs = type("Theirs", (Flat,), {"__module__": "their.secondguess.supervisors.scores"})
    assert registry.family(theirs) == "other"


@pytest.mark.usefixtures("clean_registry")
def test_make_hands_parameters_to_a_single_name() -> None:
    register(Flat)
    made = make("flat", level=2.5)
    assert made.params() == {"level": 2.5}


def test_parameters_may_follow_a_name_as_on_a_command_line() -> None:
    dsa, autoencoder, entropy = make_all(
        ["dsa:subsampling=0.3:sampler=stratified", "autoencoder: error = per_pixel", "entropy"]
    )
    assert dsa.params() == get("dsa")(subsampling=0.3, sampler="stratified").params()
    assert autoencoder.params() == get("autoencoder")(error="per_pixel").params()
    assert entropy.params() == {}
    assert make("dsa:seed=1:epsilon=null", seed=2).params()["seed"] == 2


def test_hyphens_and_underscores_mean_the_same() -> None:
    assert get("deep-gini") is get("deep_gini")
    assert make("max-softmax").name == "max_softmax"
    assert make("dsa:other-distances=fit").params() == make("dsa", other_distances="fit").params()
    with pytest.raises(UserError, match="no supervisor 'deep-ginni'; did you mean 'deep_gini'"):
        get("deep-ginni")


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("dsa:subsampling", "'subsampling' was given as a parameter of 'dsa', but parameters are written as in"),
        ("dsa:=3", "'=3' was given as a parameter"),
        ("dsa:sampling=0.3", "unexpected keyword argument 'sampling'; its parameters are: layers, variant"),
        ("dsa:subsampling=most", "must be a share up to 1.0"),
        ("mc_dropout_vr:samples=many", "'mc_dropout_vr' cannot be made with samples=many"),
    ],
)
def test_parameters_after_a_name_that_cannot_be_used_are_named(written: str, words: str) -> None:
    with pytest.raises(UserError, match=words):
        make(written)
    with pytest.raises(UserError, match=words):
        make_all([written])


def test_variants_of_one_supervisor_have_names_of_their_own(tmp_path: Path) -> None:
    made = make_all(["dsa:subsampling=0.3", "dsa", "dsa:subsampling=0.3:sampler=stratified", "entropy"])
    names = ["dsa:subsampling=0.3", "dsa", "dsa:sampler=stratified:subsampling=0.3", "entropy"]
    assert [one.name for one in made] in (names, [*names[:2], "dsa:subsampling=0.3:sampler=stratified", "entropy"])
    assert [one.clone().name for one in made] == [one.name for one in made]
    for one in made[:3]:
        assert make(one.name).params() == one.params(), "the name makes it again"
    made[0].save(tmp_path / "one.safetensors")
    assert Supervisor.load(tmp_path / "one.safetensors").params() == made[0].params()
    assert [one.name for one in make_all(["mdsa", "mdsa:layers=25%"])] == ["mdsa", "mdsa@25%"]
    assert make_all("none") == [] and make_all(["none", "entropy"])[0].name == "entropy"


@pytest.mark.usefixtures("clean_registry")
def test_make_refuses_parameters_that_cannot_be_used() -> None:
    register(Flat)
    register(Demanding)
    for several in ("all", "standard"):
        with pytest.raises(UserError, match=rf"'{several}' stands for several supervisors or none; use make_all"):
            make(several, nonsense=3)
    with pytest.raises(UserError, match=r"'pcs' cannot be made: .*'nonsense'; its parameters are: none\."):
        make("pcs", nonsense=3)
    with pytest.raises(UserError, match=r"'flat' cannot be made: .*'nonsense'; its parameters are: level\."):
        make("flat", nonsense=3)
    with pytest.raises(UserError, match=r"'demanding' cannot be made: missing a required argument: 'level'"):
        make("demanding")


def test_an_entry_point_is_found(installed: list[Entry]) -> None:
    installed.append(Entry("flat", Flat))
    assert names()[-1] == "flat"
    assert get("flat") is Flat
    assert make_all("all")[-1].name == "flat"


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (ImportError("No module named 'left_pad'"), "No module named 'left_pad'"),
        (RuntimeError("bad day"), "bad day"),
        (dict, "is not a subclass of secondguess.Supervisor"),
        (Flat(), "is not a subclass of secondguess.Supervisor"),
        (Usurper, "two supervisors are called 'entropy'"),
        (Demanding, "missing a required argument: 'level'"),
    ],
)
def test_a_broken_entry_point_warns_and_breaks_nothing(installed: list[Entry], found: Any, reason: str) -> None:
    installed += [Entry("broken", found), Entry("flat", Flat)]
    with pytest.warns(UserWarning, match=rf"'broken' \(package\.module:broken\) was left out: .*{reason}"):
        known = names()
    assert known[:4] == ["max_softmax", "pcs", "entropy", "deep_gini"]
    assert get("entropy") is Entropy
    assert known[-1] == "flat"
    assert len(make_all("all")) == len(known)


def test_entry_points_are_looked_up_once(installed: list[Entry]) -> None:
    installed.append(Entry("broken", RuntimeError("bad day")))
    with pytest.warns(UserWarning):
        first = names()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a second look would warn again
        assert names() == first
