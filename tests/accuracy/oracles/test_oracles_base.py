from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

from secondguess.accuracy.oracles import Oracle, Verdicts
from secondguess.accuracy.oracles.icos import InputRules, Partition
from secondguess.errors import UserError
from secondguess.images import ImageSet
from secondguess.model.classifier import Classifier
from secondguess.model.needs import Needs, Trace
from secondguess.model.observation import Observation

Make = Callable[..., Observation]


class Doubter(Oracle):
    """Judges wrong what is less probable than the least probable right prediction in validation."""

    name = "doubter"

    def __init__(self, margin: float = 0.0, trace: Trace | None = None) -> None:
        self.margin = margin
        self.trace = trace

    @property
    def needs(self) -> Needs:
        return Needs(traces=frozenset() if self.trace is None else frozenset({self.trace}))

    def _fit(self, training: Observation, validation: Observation) -> None:
        self.least_ = float(validation.confidences[validation.correct].min()) - self.margin
        self.seen_ = {"training": training.labels, "validation": validation.labels}
        self.counts_ = np.bincount(training.labels)

    def _judge(self, operation: Observation) -> Verdicts:
        return Verdicts.make(operation.confidences < self.least_)


def test_evidence_knows_what_is_right(evidence: Make) -> None:
    seen = evidence([0, 1, 2, 2], [0, 2, 2, 1])
    assert len(seen) == 4
    assert seen.correct.tolist() == [True, False, True, False]
    part = seen.take(np.array([3, 0]))
    assert part.predictions.tolist() == [2, 0]
    assert part.labels.tolist() == [1, 0]
    assert np.array_equal(part.images.images[0], seen.images.images[3])
    assert len(seen.take(seen.correct)) == 2


def test_evidence_of_a_classifier_is_what_it_observes() -> None:
    images = ImageSet.from_arrays(np.random.default_rng(0).random((5, 8, 8), dtype=np.float32), [0, 1, 0, 1, -1])
    classifier = Classifier(lambda batch: np.stack([batch.mean((1, 2, 3)), 1 - batch.mean((1, 2, 3))], axis=1))
    seen = classifier.observe(images)
    assert np.allclose(seen.probabilities, classifier.predict(images))
    assert seen.images is images


def test_unknown_labels_do_not_pass_for_right_or_wrong(evidence: Make) -> None:
    with pytest.raises(UserError, match="1 of the 3 in 'images' are unknown"):
        _ = evidence([0, 1, 2], [0, -1, 2]).correct


def test_an_observation_of_other_images_is_refused(evidence: Make) -> None:
    seen = evidence([0, 1, 2])
    with pytest.raises(UserError, match="3 images were observed, but the set 'images' has 2"):
        seen.replace(images=seen.images.take([0, 1]))


def test_model_and_data_must_agree_on_named_classes(evidence: Make) -> None:
    named = evidence([0, 1], class_names=("cat", "dog", "fox"))
    unnamed = evidence([0, 1])
    assert unnamed.replace(images=named.images).class_names == ("cat", "dog", "fox")
    swapped = replace(named.images, class_names=("dog", "cat", "fox"))
    with pytest.raises(UserError, match="the model and the data must agree"):
        named.replace(images=swapped).check_classes()
    with pytest.raises(UserError, match="2 in all"):
        named.replace(images=replace(named.images, class_names=("cat", "dog"))).check_classes()


def test_share_passed_says_what_becomes_of_the_undecided() -> None:
    verdicts = Verdicts.make(np.array([1, 0, 0, -1, -1]))
    assert verdicts.undecided == 2
    assert verdicts.share_passed() == 4 / 5
    assert verdicts.share_passed("fail") == 2 / 5
    assert verdicts.share_passed("exclude") == 2 / 3
    assert verdicts.judged_wrong.tolist() == [True, False, False, False, False]
    assert verdicts.take(slice(1, 4)).wrong.tolist() == [0, 0, -1]
    with pytest.raises(UserError, match="No prediction was decided"):
        verdicts.take(slice(3, 5)).share_passed("exclude")
    with pytest.raises(UserError, match="not 'maybe'"):
        verdicts.share_passed("maybe")  # type: ignore[arg-type]


def test_fit_and_judge_own_the_checks(evidence: Make) -> None:
    known, unknown = evidence([0, 1, 2], [0, 1, 1]), evidence([0, 1, 2])
    oracle = Doubter()
    with pytest.raises(UserError, match="'doubter' must see labelled images first"):
        oracle.judge(known)
    with pytest.raises(UserError, match="Fitting the oracle 'doubter' needs the label of every image, but 3 of the 3"):
        oracle.fit(known, unknown)
    with pytest.raises(UserError, match="The training images have the classes"):
        oracle.fit(known, evidence([0, 1], [0, 1], classes=4))
    assert oracle.fit(known, known) is oracle
    with pytest.raises(UserError, match="but the operation images have"):
        oracle.judge(evidence([0, 1], classes=4))
    with pytest.raises(UserError, match="no trace of 'penultimate/flatten'"):
        Doubter(trace=Trace()).fit(known, known)


def test_logits_and_samples_that_are_missing_are_named(evidence: Make) -> None:
    class Demanding(Doubter):
        @property
        def needs(self) -> Needs:
            return Needs(logits=True, samples=5)

    with pytest.raises(UserError, match="needs logits and 5 dropout samples"):
        Demanding().fit(evidence([0], [0]), evidence([0], [0]))


def test_a_verdict_for_each_image_is_our_own_duty(evidence: Make) -> None:
    class Short(Doubter):
        def _judge(self, operation: Observation) -> Verdicts:
            return Verdicts.make(np.zeros(1))

    known = evidence([0, 1], [0, 1])
    with pytest.raises(ValueError, match=r"_judge returned shape \(1,\) for 2 images"):
        Short().fit(known, known).judge(known)


def test_a_second_fit_forgets_the_first(evidence: Make) -> None:
    known = evidence([0, 1, 2], [0, 1, 1])
    oracle = Doubter().fit(known, known)
    oracle.stale_ = 1
    oracle.fit(known, known)
    assert not hasattr(oracle, "stale_")
    assert "[fitted]" in repr(oracle)
    assert not oracle.clone(margin=1.0).is_fitted
    assert oracle.clone(margin=1.0).params() == {"margin": 1.0, "trace": None}


def test_what_is_saved_comes_back(evidence: Make, tmp_path: Path) -> None:
    known = evidence([0, 1, 2], [0, 1, 1])
    oracle = Doubter(0.25, trace=Trace("layer", "mean"))
    seen = known.replace(traces={oracle.trace: np.zeros((3, 2), np.float32)})
    oracle.fit(seen, seen).save(tmp_path / "oracle.safetensors")
    loaded = Doubter.load(tmp_path / "oracle.safetensors")
    assert loaded.params() == oracle.params()
    assert loaded.least_ == oracle.least_
    assert loaded.class_names_ == ["0", "1", "2"]
    assert np.array_equal(loaded.counts_, oracle.counts_)
    assert {key: value.tolist() for key, value in loaded.seen_.items()} == {
        key: value.tolist() for key, value in oracle.seen_.items()
    }


def test_files_that_hold_no_oracle_are_refused(evidence: Make, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="There is no oracle at"):
        Doubter.load(tmp_path / "nowhere")
    (tmp_path / "text").write_text("hello")
    with pytest.raises(UserError, match="is not a saved oracle"):
        Doubter.load(tmp_path / "text")
    save_file({"x": np.zeros(1)}, tmp_path / "other")
    with pytest.raises(UserError, match="not an oracle that this version can read"):
        Doubter.load(tmp_path / "other")
    card = {"secondguess": "1", "oracle": "doubter", "params": '{"size": 3}', "state": "{}"}
    save_file({"x": np.zeros(1)}, tmp_path / "changed", metadata=card)
    with pytest.raises(UserError, match="damaged, or was saved by another version"):
        Doubter.load(tmp_path / "changed")
    save_file({"x": np.zeros(1)}, tmp_path / "torn", metadata={**card, "params": "{"})
    with pytest.raises(UserError, match="damaged"):
        Doubter.load(tmp_path / "torn")
    save_file({"x": np.zeros(1)}, tmp_path / "icos", metadata={**card, "oracle": "icos", "params": "{}"})
    with pytest.raises(UserError, match="holds the oracle 'icos', not 'doubter'"):
        Doubter.load(tmp_path / "icos")
    with pytest.raises(UserError, match="A object cannot be saved with an oracle"):
        Doubter(margin=object()).save(tmp_path / "x")  # type: ignore[arg-type]


def test_a_file_is_arrays_beside_json(tmp_path: Path) -> None:
    rules = {"classes": [], "partition": [{"name": "low", "labels": [0, 1], "column": "camera"}]}
    card = {
        "secondguess": "1",
        "oracle": "doubter",
        "params": json.dumps({"margin": {"input_rules": rules}, "trace": {"trace": {"layer": "a", "reduce": "mean"}}}),
        "state": json.dumps({"least_": 0.5, "class_names_": ["x", "y"], "judge": 1, "_private_": 2}),
    }
    save_file({"seen_/a/b": np.arange(2), "counts_": np.zeros((1, 2))}, tmp_path / "oracle", metadata=card)
    loaded = Doubter.load(tmp_path / "oracle")
    assert loaded.trace == Trace("a", "mean")
    assert loaded.margin == InputRules([Partition("low", [0, 1], column="camera")])
    assert loaded.state().keys() == {"class_names_", "counts_", "least_", "seen_"}
    assert loaded.seen_["a/b"].tolist() == [0, 1]
    loaded.save(tmp_path / "again")
    with safe_open(tmp_path / "again", framework="numpy") as file:
        again = file.metadata()
        assert set(file.keys()) == {"seen_/a/b", "counts_"}
    assert again.keys() == card.keys() | {"digest"}
    assert json.loads(again["params"]) == json.loads(card["params"])


def test_arrays_keep_their_shape_in_a_file_and_others_than_numbers_are_refused(tmp_path: Path) -> None:
    oracle = Doubter()
    oracle.counts_ = np.array(3.0)
    oracle.save(tmp_path / "oracle")
    assert Doubter.load(tmp_path / "oracle").counts_.shape == ()
    oracle.counts_ = np.array(["text"])
    with pytest.raises(UserError, match="What the oracle 'doubter' has learnt cannot be saved"):
        oracle.save(tmp_path / "oracle")


@pytest.mark.parametrize(
    "damage",
    [
        {"state": "[]"},
        {"params": "[]"},
        {"params": '{"margin": {"input_rules": {"classes": []}}}'},
        {"params": '{"margin": {"input_rules": [1]}}'},
        {"params": '{"trace": {"trace": {"nonsense": 1}}}'},
    ],
)
def test_damage_is_told_with_the_file(damage: dict[str, str], tmp_path: Path) -> None:
    card = {"secondguess": "1", "oracle": "doubter", "params": "{}", "state": "{}"} | damage
    save_file({}, tmp_path / "torn", metadata=card)
    with pytest.raises(UserError, match="torn is damaged, or was saved by another version of secondguess: "):
        Doubter.load(tmp_path / "torn")


def test_a_clone_has_the_very_same_parameters() -> None:
    heavy = object()  # a classifier, say, which nobody wants copied
    assert Doubter(heavy).clone().margin is heavy  # type: ignore[arg-type]


def test_an_oracle_that_needs_the_images_says_so(evidence: Make) -> None:
    class Looking(Doubter):
        @property
        def needs(self) -> Needs:
            return Needs(images=True)

    known = evidence([0, 1], [0, 1])
    fitted = Looking().fit(known, known)
    assert len(fitted.judge(known)) == 2
    with pytest.raises(UserError, match="needs the images, which this observation does not hold"):
        fitted.judge(Observation(known.probabilities))


def test_an_observation_without_class_names_agrees_with_any(evidence: Make) -> None:
    named, unnamed = evidence([0, 1], [0, 1], class_names=("a", "b", "c")), evidence([0, 1], [0, 1])
    assert len(Doubter().fit(named, named).judge(unnamed)) == 2
    bare = Observation(unnamed.probabilities, images=unnamed.images)
    assert bare.class_names == ("0", "1", "2")
