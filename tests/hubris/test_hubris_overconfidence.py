from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import secondguess as sg
from secondguess import Classifier, Dataset, UserError
from secondguess.hubris import CompanionSet, benchmark, score
from secondguess.images import ImageSet
from secondguess.metrics import vote_shares
from secondguess.stress.ambiguous import PixelBlend

SMALL = {"resamples": 20, "seed": 3}


def test_bare_predictions_and_every_kind_of_reference(tmp_path: Path) -> None:
    p, r = np.array([0.9, 0.2, 0.6]), np.array([0.6, 0.5, 0.7])
    np.savez(tmp_path / "p.npz", p=p, r=r)
    np.savez(tmp_path / "r.npz", p=r)
    plain = score(p, seed=0).to_dict()
    for predictions in (p, p.tolist(), tmp_path / "p.npz", str(tmp_path / "p.npz")):
        assert sg.overconfidence(predictions=predictions).to_dict() == plain
    assert sg.overconfidence(predictions=p, reference="constant").to_dict() == plain
    relative = score(p, r, seed=0).to_dict()
    for reference in (r, r.tolist(), tmp_path / "r.npz"):
        assert sg.overconfidence(predictions=p, reference=reference).to_dict() == relative
    assert sg.overconfidence(predictions=tmp_path / "p.npz", reference="r").to_dict() == relative
    assert sg.overconfidence(predictions=p, reference=0.6).to_dict() == score(p, 0.6).to_dict()
    with pytest.raises(UserError, match="There is no file r"):
        sg.overconfidence(predictions=p, reference="r")


def test_votes_are_a_reference(tmp_path: Path) -> None:
    p, counts = np.array([[0.9, 0.1], [0.2, 0.8]]), np.array([[3, 0], [5, 5]])
    found = sg.overconfidence(predictions=p, votes=counts)
    assert found.to_dict() == score(p, vote_shares(counts)).to_dict()
    more = sg.overconfidence(predictions=p, votes=counts, smoothing=1)
    assert more.to_dict() == score(p, vote_shares(counts, 1)).to_dict()


def test_the_result_of_predictions(tmp_path: Path) -> None:
    result = sg.overconfidence(predictions=[0.1, 0.5, 0.9], reference=0.6)
    assert str(result) == result.details() == result.summary()
    assert len(result.summary().splitlines()) <= 10 and "relative hubris" in result.summary()
    assert "<td" in result._repr_html_() and "relative hubris" in result._repr_html_()
    assert repr(result) == "OverconfidenceResult(3 predictions)"
    assert result.save(tmp_path / "out") == tmp_path / "out"
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["hubris.json"]
    assert json.loads((tmp_path / "out" / "hubris.json").read_text()) == result.to_dict()
    assert result.scores.relative is not None
    with pytest.raises(UserError, match="no table"):
        _ = result.table


def test_models_on_images_given_in_every_way(
    digits: Dataset, blends: ImageSet, models: dict[str, Classifier], tmp_path: Path
) -> None:
    compared = [models["hasty"], models["thorough"]]
    expected = benchmark(compared, digits.test, CompanionSet.of(blends, (9, 8)), **SMALL).to_dict()
    from secondguess.images import save_npz

    save_npz(blends, tmp_path / "images.npz")
    ways = [
        sg.overconfidence(compared, digits, on=blends, between="9,8", **SMALL),
        sg.overconfidence(compared, digits.test, on=CompanionSet.of(blends, (9, 8)), **SMALL),
        sg.overconfidence(compared, "digits", on=tmp_path, between=("9", 8), **SMALL),
    ]
    for way in ways:
        found = way.to_dict()
        assert found["models"] == expected["models"] and found["matched"] == expected["matched"]
        assert way.made is None


def test_the_result_of_models(digits: Dataset, blends: ImageSet, models: dict[str, Classifier], tmp_path: Path) -> None:
    result = sg.overconfidence(models["hasty"], digits, on=blends, folder=tmp_path, **SMALL)
    assert len(result.summary().splitlines()) == 5
    assert result.summary().splitlines()[0] == "300 ambiguous images, reference: soft_labels"
    assert result.summary() in result.details()
    assert {path.name for path in tmp_path.iterdir()} == {"hubris.json", "hubris.csv", "hubris.png"}
    assert "hasty" in result._repr_html_() and result._repr_html_().count("<tr>") == 2
    with pytest.raises(UserError, match="not bare predictions"):
        _ = result.scores
    many = [Classifier(models["hasty"].backend.module, name=f"model {k}", device="cpu") for k in range(9)]
    table = sg.overconfidence(many, digits.test.head(60), on=blends.head(40), resamples=2)
    assert len(table.summary().splitlines()) == 10 and "and 4 more models" in table.summary()
    assert all(f"model {k}" in table.details() for k in range(9))


def test_ambiguous_images_are_made_and_kept(digits: Dataset, models: dict[str, Classifier], tmp_path: Path) -> None:
    result = sg.overconfidence(models["hasty"], digits, on="blend", between=(3, 8), count=40, **SMALL)
    made = PixelBlend(pairs=[(3, 8)]).generate(digits.train, 40, seed=SMALL["seed"]).images
    expected = benchmark([models["hasty"]], digits.test, CompanionSet.of(made, (3, 8)), **SMALL)
    assert result.to_dict()["models"] == expected.to_dict()["models"]
    result.save(tmp_path)
    again = sg.overconfidence(models["hasty"], digits, on=tmp_path / "companion", between=(3, 8), **SMALL)
    assert again.to_dict()["models"] == result.to_dict()["models"]


def test_what_contradicts_itself_is_refused(digits: Dataset, models: dict[str, Classifier]) -> None:
    one = models["hasty"]
    for message, given in {
        "either models with data, or predictions": {},
        "are for models": {"predictions": [0.5], "between": "3,8"},
        "without data": {"models": one},
        "for bare predictions": {"models": one, "data": digits, "votes": [[1, 2]]},
        "no labelled training images": {"models": one, "data": digits.test},
        "two different classes": {"models": one, "data": digits, "between": "9"},
        "one of them twice": {"models": ["zoo:lenet", "zoo:lenet"], "data": digits},
        "No model was given": {"models": [], "data": digits},
    }.items():
        with pytest.raises(UserError, match=message):
            sg.overconfidence(**given)


def test_models_of_one_name_are_called_by_their_paths(tmp_path: Path) -> None:
    from secondguess.hubris import open_models

    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "model.toml").write_text('import = "zoo:lenet"\n')
    paths = [str(tmp_path / folder / "model.toml") for folder in ("a", "b")]
    assert [one.name for one in open_models(paths)] == paths
    assert [one.name for one in open_models(paths[0])] != paths[:1]
