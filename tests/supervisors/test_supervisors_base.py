from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from secondguess import Needs, Observation, Supervisor, Trace, UserError
from secondguess.supervisors import make, register
from secondguess.supervisors.checks import example_observation

MEAN = Trace("conv", "mean")


class Spread(Supervisor):
    """Distance of the largest probability to what is usual; keeps every kind of state."""

    name = "spread"

    def __init__(self, factor: float = 2.0, trace: Trace = MEAN, tags: list[str] | None = None) -> None:
        self.factor = factor
        self.trace = trace
        self.tags = tags

    def _fit(self, observation: Observation, labels: NDArray[np.int64] | None) -> None:
        self.usual_ = np.array(observation.confidences.mean())  # an array without axes
        self.table_ = np.arange(6, dtype=np.int16).reshape(2, 3).T  # not contiguous
        self.single_ = np.float32(0.5)
        self.where_ = self.trace
        self.words_ = ["a", "b"]
        self.saw_labels_ = labels is not None

    def _score(self, observation: Observation) -> NDArray[np.floating[Any]]:
        return self.factor * (self.usual_ - observation.confidences)


class Picky(Supervisor):
    name = "picky"
    requires_fit = False

    def __init__(self, wanted: Needs | None = None) -> None:
        self.wanted = wanted

    @property
    def needs(self) -> Needs:
        return self.wanted or Needs()

    def _score(self, observation: Observation) -> NDArray[np.floating[Any]]:
        return -observation.confidences


@pytest.fixture
def nominal() -> Observation:
    return example_observation(Needs(), 40)


@pytest.fixture
def spread(nominal: Observation) -> Spread:
    return Spread(3.0, tags=["x"]).fit(nominal)


def test_scoring_before_fitting_is_an_error_that_says_what_to_call(nominal: Observation) -> None:
    with pytest.raises(UserError, match=r"'spread' must see nominal data first; call fit\(observation\)"):
        Spread().score(nominal)


def test_fit_returns_self_and_hands_labels_on(nominal: Observation) -> None:
    supervisor = Spread()
    assert supervisor.fit(nominal, np.zeros(40, dtype=np.int64)) is supervisor
    assert supervisor.saw_labels_
    assert not supervisor.fit(nominal).saw_labels_


def test_a_failed_fit_leaves_nothing_of_the_earlier_one(spread: Spread, nominal: Observation) -> None:
    spread.trace = None  # type: ignore[assignment]
    spread._fit = lambda observation, labels: 1 / 0  # type: ignore[assignment,method-assign,return-value]
    with pytest.raises(ZeroDivisionError):
        spread.fit(nominal)
    assert not spread.is_fitted
    assert spread.state() == {}


def test_a_wrong_number_of_labels_is_an_error_with_both_numbers(nominal: Observation) -> None:
    with pytest.raises(UserError, match=r"40 images were observed, but 39 labels were given to fit 'spread'"):
        Spread().fit(nominal, np.zeros(39, dtype=np.int64))


def test_an_empty_observation_is_an_error(spread: Spread, nominal: Observation) -> None:
    with pytest.raises(UserError, match="'spread' was given an empty observation"):
        spread.score(nominal.take(slice(0, 0)))


def test_another_number_of_classes_than_fitted_is_an_error_with_both_numbers(spread: Spread) -> None:
    with pytest.raises(UserError, match="'spread' was fitted on 4 classes, but this observation has 3"):
        spread.score(Observation(np.full((5, 3), 1 / 3)))


@pytest.mark.parametrize(
    ("needs", "words"),
    [
        (Needs(logits=True), "needs logits"),
        (Needs(samples=7), "needs 7 dropout samples"),
        (Needs(images=True), "needs the images"),
        (Needs(logits=True, samples=2), "needs logits and 2 dropout samples"),
    ],
)
def test_a_missing_need_names_the_supervisor_the_need_and_the_remedy(needs: Needs, words: str) -> None:
    bare = Observation(np.full((5, 4), 0.25))
    with pytest.raises(UserError, match=rf"'picky' {words}, which this observation .* supervisor\.needs"):
        Picky(needs).score(bare)


def test_a_missing_trace_names_the_trace_and_what_is_there() -> None:
    seen = Observation(np.full((5, 4), 0.25), traces={Trace("conv1"): np.zeros((5, 2), dtype=np.float32)})
    with pytest.raises(UserError, match=r"no trace of 'conv2/mean' \(it has: conv1/flatten\)"):
        Picky(Needs(traces=frozenset({Trace("conv2", "mean")}))).score(seen)


def test_too_few_samples_do_not_do() -> None:
    seen = Observation(np.full((5, 4), 0.25), samples=np.full((5, 3, 4), 0.25, dtype=np.float32))
    assert len(Picky(Needs(samples=3)).score(seen)) == 5
    with pytest.raises(UserError, match="4 dropout samples"):
        Picky(Needs(samples=4)).score(seen)


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        (np.zeros((5, 1)), r"shape \(5, 1\) for 5 images"),
        (np.zeros(4), r"shape \(4,\) for 5 images"),
        (np.array([0, 1, np.nan, np.nan, 2]), "NaN for 2 images"),
    ],
)
def test_a_defect_of_the_supervisor_is_not_the_users_mistake(returned: NDArray[np.float64], words: str) -> None:
    supervisor = Picky()
    supervisor._score = lambda observation: returned  # type: ignore[assignment,method-assign]
    with pytest.raises(ValueError, match=rf"picky: _score returned {words}"):
        supervisor.score(Observation(np.full((5, 4), 0.25)))


def test_infinite_scores_are_legal() -> None:
    supervisor = Picky()
    supervisor._score = lambda observation: np.array([np.inf, -np.inf])  # type: ignore[assignment,method-assign]
    assert supervisor.score(Observation(np.full((2, 4), 0.25))).tolist() == [np.inf, -np.inf]


def test_clone_is_unfitted_changed_where_asked_and_shares_nothing(spread: Spread) -> None:
    copied = spread.clone(factor=9)
    assert (copied.factor, spread.factor) == (9, 3.0)
    assert not copied.is_fitted
    assert copied.tags == ["x"]
    assert copied.tags is not spread.tags


def test_repr_shows_parameters_and_whether_it_is_fitted(spread: Spread) -> None:
    assert repr(Spread(1.5)) == "Spread[unfitted](factor=1.5, trace=Trace(layer='conv', reduce='mean'), tags=None)"
    assert repr(spread).startswith("Spread[fitted](factor=3.0")
    assert repr(make("entropy")) == "Entropy()"


@pytest.mark.usefixtures("clean_registry")
def test_save_and_load_bring_everything_back_by_registered_name(
    spread: Spread, nominal: Observation, tmp_path: Path
) -> None:
    register(Spread)
    spread.save(tmp_path / "new" / "spread.safetensors")
    loaded = Supervisor.load(tmp_path / "new" / "spread.safetensors")
    assert type(loaded) is Spread
    assert loaded.params() == spread.params()
    assert loaded.trace == Trace("conv", "mean")
    assert loaded.state().keys() == spread.state().keys()
    for name, value in spread.state().items():
        np.testing.assert_array_equal(loaded.state()[name], value, strict=isinstance(value, np.ndarray))
    assert loaded.where_ == Trace("conv", "mean")
    np.testing.assert_array_equal(loaded.score(nominal), spread.score(nominal))


def test_the_file_is_plain_safetensors(spread: Spread, tmp_path: Path) -> None:
    path = tmp_path / "spread.safetensors"
    spread.save(path)
    assert set(load_file(path)) == {"usual_", "table_"}
    assert [file.name for file in tmp_path.iterdir()] == ["spread.safetensors"]


def test_an_unfitted_supervisor_is_saved_as_unfitted(tmp_path: Path) -> None:
    Spread(7).save(tmp_path / "s.safetensors")
    loaded = Spread.load(tmp_path / "s.safetensors")
    assert (loaded.factor, loaded.is_fitted) == (7, False)


def test_the_wrong_class_is_named(spread: Spread, tmp_path: Path) -> None:
    spread.save(tmp_path / "s.safetensors")
    with pytest.raises(UserError, match="holds the supervisor 'spread', not 'picky'"):
        Picky.load(tmp_path / "s.safetensors")


def test_an_unknown_name_in_a_file_is_reported_with_its_close_matches(tmp_path: Path) -> None:
    card = {"secondguess": "1", "supervisor": "entrop", "params": "{}", "state": "{}"}
    save_file({}, tmp_path / "s.safetensors", metadata=card)
    with pytest.raises(
        UserError, match=r"import the module that does, .* no supervisor 'entrop'; did you mean 'entropy'\?"
    ):
        Supervisor.load(tmp_path / "s.safetensors")


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="There is no supervisor at"):
        Spread.load(tmp_path / "nothing.safetensors")


@pytest.mark.parametrize("content", [b"", b"\x80\x04garbage", b"\xff" * 200])
def test_a_corrupted_file_is_reported(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "s.safetensors"
    path.write_bytes(content)
    with pytest.raises(UserError, match="is not a saved supervisor"):
        Spread.load(path)


def test_a_truncated_file_is_reported(spread: Spread, tmp_path: Path) -> None:
    path = tmp_path / "s.safetensors"
    spread.save(path)
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(UserError, match="is not a saved supervisor"):
        Spread.load(path)


def test_a_folder_is_reported(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is not a saved supervisor"):
        Spread.load(tmp_path)


@pytest.mark.parametrize("card", [None, {"format": "pt"}, {"secondguess": "99"}])
def test_foreign_safetensors_and_later_formats_are_reported(card: dict[str, str] | None, tmp_path: Path) -> None:
    save_file({"weight": np.zeros(3)}, tmp_path / "s.safetensors", metadata=card)
    with pytest.raises(UserError, match=r"not a supervisor that this version can read \(format .*, not '1'\)"):
        Spread.load(tmp_path / "s.safetensors")


@pytest.mark.parametrize(
    "damage",
    [
        {"params": "{"},
        {"params": json.dumps({"unheard_of": 1})},
        {"params": json.dumps({"trace": {"trace": {"nonsense": 1}}})},
        {"params": json.dumps({"trace": {"trace": {"layer": "a", "reduce": "median"}}})},
        {"state": "[]"},
        {"params": None},
        {"supervisor": None},
    ],
)
def test_a_damaged_card_is_reported(damage: dict[str, str | None], tmp_path: Path) -> None:
    card = {"secondguess": "1", "supervisor": "spread", "params": "{}", "state": "{}"} | damage
    save_file({}, tmp_path / "s.safetensors", metadata={key: text for key, text in card.items() if text is not None})
    with pytest.raises(UserError, match=r"s\.safetensors|reduced"):
        Spread.load(tmp_path / "s.safetensors")


def test_a_file_cannot_set_anything_but_learnt_state(tmp_path: Path) -> None:
    state = json.dumps({"score": 1, "__class__": 2, "_private_": 3, "fitted_classes_": 4})
    card = {"secondguess": "1", "supervisor": "spread", "params": "{}", "state": state}
    save_file({}, tmp_path / "s.safetensors", metadata=card)
    loaded = Spread.load(tmp_path / "s.safetensors")
    assert loaded.state() == {"fitted_classes_": 4}
    assert callable(loaded.score)
    assert not hasattr(loaded, "_private_")


@pytest.mark.parametrize("value", [object(), {1, 2}, np.zeros(3)])
def test_a_parameter_that_json_cannot_hold_is_refused(value: object, tmp_path: Path) -> None:
    supervisor = Spread(value)  # type: ignore[arg-type]
    with pytest.raises(UserError, match=rf"type {type(value).__name__} cannot be saved"):
        supervisor.save(tmp_path / "s.safetensors")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("value", [object(), np.array(["text"]), np.array([None])])
def test_learnt_state_that_the_file_cannot_hold_is_refused(spread: Spread, value: object, tmp_path: Path) -> None:
    spread.strange_ = value  # type: ignore[attr-defined]
    with pytest.raises(UserError, match="cannot be saved"):
        spread.save(tmp_path / "s.safetensors")


def test_numpy_scalars_are_saved_as_numbers(tmp_path: Path) -> None:
    Spread(np.float32(0.5)).save(tmp_path / "s.safetensors")  # type: ignore[arg-type]
    assert Spread.load(tmp_path / "s.safetensors").factor == 0.5


class TracedAlone(Picky):
    name = "traced_alone"

    def __init__(self, trace: Trace) -> None:
        self.trace = trace


def test_a_parameter_may_be_called_like_the_key_of_a_written_object(tmp_path: Path) -> None:
    TracedAlone(Trace("conv", "mean")).save(tmp_path / "s.safetensors")
    assert TracedAlone.load(tmp_path / "s.safetensors").trace == Trace("conv", "mean")


def test_a_file_of_an_oracle_is_no_supervisor(tmp_path: Path) -> None:
    card = {"secondguess": "1", "oracle": "spread", "params": "{}", "state": "{}"}
    save_file({}, tmp_path / "s.safetensors", metadata=card)
    with pytest.raises(UserError, match="is not a supervisor that this version can read"):
        Spread.load(tmp_path / "s.safetensors")


class Grouped(Spread):
    name = "grouped"

    def _fit(self, observation: Observation, labels: NDArray[np.int64] | None) -> None:
        super()._fit(observation, labels)
        self.layers_ = {"0.weight": np.eye(3, dtype=np.float32), "0/bias": np.arange(4)[::-1]}
        self.empty_ = {}
        self.mixed_ = {"a": 1, "b": [2]}


def test_a_dictionary_of_arrays_is_saved_array_by_array(nominal: Observation, tmp_path: Path) -> None:
    Grouped().fit(nominal).save(tmp_path / "g.safetensors")
    assert {"layers_/0.weight", "layers_/0/bias"} <= set(load_file(tmp_path / "g.safetensors"))
    loaded = Grouped.load(tmp_path / "g.safetensors")
    assert list(loaded.layers_) == ["0.weight", "0/bias"]
    np.testing.assert_array_equal(loaded.layers_["0.weight"], np.eye(3, dtype=np.float32), strict=True)
    np.testing.assert_array_equal(loaded.layers_["0/bias"], [3, 2, 1, 0])
    assert (loaded.empty_, loaded.mixed_) == ({}, {"a": 1, "b": [2]})


def test_a_name_that_is_an_array_and_a_group_is_damage(tmp_path: Path) -> None:
    card = {"secondguess": "1", "supervisor": "spread", "params": "{}", "state": "{}"}
    save_file({"x_": np.zeros(2), "x_/y": np.zeros(2)}, tmp_path / "s.safetensors", metadata=card)
    with pytest.raises(UserError, match="is damaged, or was saved by another version of 'spread': 'x_' is both"):
        Spread.load(tmp_path / "s.safetensors")
