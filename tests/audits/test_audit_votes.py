"""Votes of people on the test images: read from every file, kept with their image, compared with every score."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import spearmanr
from torch import nn

import secondguess as sg
from secondguess import Classifier, Dataset, UserError
from secondguess.audits.votes import votes_in, with_votes
from secondguess.metrics import auroc, relative_hubris, vote_shares

SECTIONS = ["accuracy", "human_doubt"]


@pytest.fixture(scope="module")
def votes(net: nn.Module, digits: Dataset) -> np.ndarray:
    """Twenty people each, who hesitate where a milder copy of the model does, and now and then for no reason."""
    seen = Classifier(net, device="cpu", output_kind="logits").observe(digits.test, sg.Needs(logits=True))
    mild = np.exp(seen.logits / 3.0)
    mild = 0.95 * mild / mild.sum(axis=1, keepdims=True) + 0.005
    return np.random.default_rng(0).multinomial(20, mild / mild.sum(axis=1, keepdims=True)).astype(np.float64)


def audited(net: nn.Module, test: sg.ImageSet, **options) -> sg.AuditResult:
    classifier = Classifier(net, name="tiny", device="cpu")
    return sg.audit(classifier, test, supervisors=["entropy", "pcs"], stress=[], sections=SECTIONS, **options)


def test_scores_are_compared_with_human_doubt(net: nn.Module, digits: Dataset, votes: np.ndarray) -> None:
    result = audited(net, digits.test, votes=votes)
    numbers = {name: number.value for name, number in result.numbers.items()}
    seen = Classifier(net, device="cpu").observe(digits.test)
    shares = votes / votes.sum(axis=1, keepdims=True)
    doubt = -np.where(shares > 0, shares * np.log2(np.maximum(shares, 1e-300)), 0).sum(axis=1)
    score = -(seen.probabilities * np.log2(seen.probabilities)).sum(axis=1)
    assert numbers["human_doubt.entropy.correlation"] == pytest.approx(spearmanr(score, doubt).statistic, abs=1e-6)
    disputed = shares.max(axis=1) < 0.75
    assert numbers["human_doubt.disputed"] == pytest.approx(disputed.mean())
    expected = auroc(score[~disputed], score[disputed])
    assert numbers["human_doubt.entropy.disputed.auroc"] == pytest.approx(expected, abs=1e-6)
    against = relative_hubris(seen.probabilities, vote_shares(votes))
    assert numbers["human_doubt.hubris"] == pytest.approx(against, abs=1e-6)
    page = next(one for one in result.sections if one.name == "human_doubt").html
    assert "20.0 of them on each on average" in page and "Surer than people are" in page
    assert "Does it doubt what people doubt?" in result.summary()


def test_votes_stay_with_their_image(net: nn.Module, digits: Dataset, votes: np.ndarray, tmp_path: Path) -> None:
    """A random part of the images has the votes on that part, whatever the form of the file."""
    rows = np.sort(np.random.default_rng(3).choice(len(digits.test), 200, replace=False))
    expected = audited(net, digits.test.take(rows), votes=votes[rows]).numbers["human_doubt.pcs.correlation"].value
    np.savez(tmp_path / "several.npz", counts=votes, people=np.zeros(3))
    np.savez(tmp_path / "one.npz", votes)
    np.save(tmp_path / "counts.npy", votes)
    header = ",".join(f"counts{k}" for k in range(10))
    np.savetxt(tmp_path / "counts.csv", votes, delimiter=",", header=header, comments="")
    for name in ("several.npz", "one.npz", "counts.npy", "counts.csv"):
        found = audited(net, digits.test, votes=tmp_path / name, max_test=200, seed=3)
        assert found.numbers["human_doubt.pcs.correlation"].value == expected


def test_votes_follow_the_models_order_of_classes(digits: Dataset, votes: np.ndarray) -> None:
    names = digits.test.class_names
    turned = replace(with_votes(digits.test, votes), class_names=names[::-1])
    found = votes_in(turned, names)
    assert found is not None
    np.testing.assert_array_equal(found, votes[:, ::-1])
    assert votes_in(digits.test, names) is None


def test_without_votes_the_section_is_left_out(net: nn.Module, digits: Dataset) -> None:
    result = audited(net, digits.test)
    assert next(one for one in result.sections if one.name == "human_doubt").status == "skipped"
    everything = sg.audit(Classifier(net, device="cpu"), digits.test.head(40), supervisors=["entropy"], stress=[])
    assert "human_doubt" not in [one.name for one in everything.sections]


def test_votes_that_cannot_be_used_are_refused(
    net: nn.Module, digits: Dataset, votes: np.ndarray, tmp_path: Path
) -> None:
    np.savez(tmp_path / "several.npz", a=votes, b=votes)
    for given, message in (
        (votes[:-1], "give one row for each test image"),
        (votes[:, :9], "and one column for each class"),
        (-votes, "hold a negative or missing number"),
        (tmp_path / "several.npz", "none is called 'counts'"),
        (tmp_path / "nowhere.npz", "There is no file"),
    ):
        with pytest.raises(UserError, match=message):
            audited(net, digits.test, votes=given)
