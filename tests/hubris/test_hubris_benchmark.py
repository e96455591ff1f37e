from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy.optimize import minimize_scalar

from secondguess import Classifier, Dataset, UserError
from secondguess.hubris import CompanionSet, HubrisTable, benchmark, measure
from secondguess.hubris.benchmark import _matched
from secondguess.hubris.picture import response_chart, save_picture
from secondguess.images import ImageSet
from secondguess.metrics import absolute_hubris, acd, relative_hubris

SMALL = {"resamples": 60}


@pytest.fixture(scope="module")
def pair(blends: ImageSet) -> CompanionSet:
    return CompanionSet.of(blends, (9, 8))


@pytest.fixture(scope="module")
def table(models: dict[str, Classifier], digits: Dataset, pair: CompanionSet) -> HubrisTable:
    return benchmark(list(models.values()), digits.test, pair, **SMALL)


def two(classifier: Classifier, images: ImageSet, outputs: tuple[int, int]) -> np.ndarray:
    """The probability of the first class among two, by hand."""
    p = classifier.predict(images)[:, list(outputs)]
    return p[:, 0] / p.sum(axis=1)


@pytest.mark.parametrize(("name", "outputs"), [("hasty", (9, 8)), ("thorough", (9, 8)), ("binary", (0, 1))])
def test_a_row_by_hand(
    table: HubrisTable,
    models: dict[str, Classifier],
    digits: Dataset,
    pair: CompanionSet,
    name: str,
    outputs: tuple[int, int],
) -> None:
    row = next(one for one in table.rows if one.model == name)
    answers = two(models[name], pair.images, outputs)
    assert row.answers == pytest.approx(answers, abs=1e-9)
    assert row.ambiguous.absolute.value.value == pytest.approx(absolute_hubris(answers), abs=1e-9)
    assert row.ambiguous.relative.value.value == pytest.approx(relative_hubris(answers, pair.dial), abs=1e-9)
    assert row.ambiguous.acd.value == pytest.approx(acd(answers), abs=1e-9)
    real = digits.test.take(np.isin(digits.test.labels, (9, 8)))
    right = (two(models[name], real, outputs) > 0.5) == (real.labels == 9)
    assert row.accuracy.value == pytest.approx(right.mean()) and row.accuracy.n == len(real)
    mass = models[name].predict(pair.images)[:, list(outputs)].sum(axis=1).mean()
    assert row.mass == pytest.approx(mass) and (name != "binary" or row.mass == pytest.approx(1))


def test_the_temperature_is_the_likeliest_on_half_of_the_real_images(
    models: dict[str, Classifier], digits: Dataset, pair: CompanionSet
) -> None:
    model = models["hasty"]
    real = digits.test.take(np.isin(digits.test.labels, (9, 8)))
    half = np.random.default_rng(3).permutation(len(real))[: len(real) // 2]
    p, first = two(model, real.take(half), (9, 8)), real.labels[half] == 9
    logit = np.log(p / (1 - p))

    def loss(log_t: float) -> float:
        q = 1 / (1 + np.exp(-logit / np.exp(log_t)))
        return -np.log(np.where(first, q, 1 - q)).mean()

    expected = float(np.exp(minimize_scalar(loss, bounds=(-3, 3), method="bounded").x))
    (row,) = benchmark([model], digits.test, pair, seed=3, **SMALL).rows
    assert row.temperature == pytest.approx(expected, rel=1e-3)
    ambiguous = two(model, pair.images, (9, 8))
    scaled = 1 / (1 + np.exp(-np.log(ambiguous / (1 - ambiguous)) / row.temperature))
    assert row.scaled == pytest.approx(scaled, abs=1e-6)
    assert row.ambiguous_scaled.absolute.value.value == pytest.approx(absolute_hubris(scaled), abs=1e-6)
    rest = np.setdiff1d(np.arange(len(real)), half)
    assert row.clean.absolute.value.value == pytest.approx(absolute_hubris(p_clean(model, real, rest)), abs=1e-9)
    assert row.clean.relative is None


def p_clean(model: Classifier, real: ImageSet, rows: np.ndarray) -> np.ndarray:
    return two(model, real.take(rows), (9, 8))


def test_validation_images_leave_all_test_images_clean(
    models: dict[str, Classifier], digits: Dataset, pair: CompanionSet
) -> None:
    model = models["hasty"]
    (row,) = benchmark([model], digits.test, pair, validation=digits.train, **SMALL).rows
    assert row.clean.absolute.value.n == row.accuracy.n
    swapped = benchmark([model], digits.train, pair, validation=digits.train, **SMALL).rows[0]
    assert swapped.temperature == row.temperature


def test_a_model_that_is_never_wrong_has_no_temperature(
    models: dict[str, Classifier], digits: Dataset, pair: CompanionSet
) -> None:
    (row,) = benchmark([models["binary"]], digits.train, pair, **SMALL).rows
    assert row.accuracy.value == 1 and row.temperature == 1
    assert "never wrong" in row.notes[0]
    assert row.ambiguous_scaled.absolute.value == row.ambiguous.absolute.value


def test_outputs_the_other_way_round_are_noticed(
    digits: Dataset, blends: ImageSet, models: dict[str, Classifier]
) -> None:
    (row,) = benchmark([models["binary"]], digits.test, CompanionSet.of(blends, (8, 9)), **SMALL).rows
    assert row.accuracy.value < 0.5 and "gives the class named first first" in row.notes[-1]


def test_every_image_may_have_its_own_pair(models: dict[str, Classifier], digits: Dataset, blends: ImageSet) -> None:
    companion = CompanionSet.of(blends)
    model = models["thorough"]
    (row,) = benchmark([model], digits.test, companion, **SMALL).rows
    p = model.predict(blends)
    rows = np.arange(len(blends))
    first, second = p[rows, companion.pairs[:, 0]], p[rows, companion.pairs[:, 1]]
    assert row.answers == pytest.approx(first / (first + second), abs=1e-9)
    real = model.predict(digits.test)
    assert row.accuracy.value == pytest.approx((real.argmax(axis=1) == digits.test.labels).mean())
    half = np.random.default_rng(0).permutation(len(real))[len(real) // 2 :]
    top = np.sort(real[half], axis=1)[:, ::-1][:, :2]
    assert row.clean.absolute.value.value == pytest.approx(absolute_hubris(top[:, 0] / top.sum(axis=1)), abs=1e-9)


def test_only_equally_accurate_models_are_compared(table: HubrisTable) -> None:
    right = {row.model: row.right for row in table.rows}
    for one in table.matched:
        assert one.accuracy.low <= 0 <= one.accuracy.high
        assert one.accuracy.value == pytest.approx(right[one.first].mean() - right[one.second].mean())
        first, second = (next(row for row in table.rows if row.model == name) for name in (one.first, one.second))
        expected = first.ambiguous.main.value.value - second.ambiguous.main.value.value
        assert one.hubris.value == pytest.approx(expected, abs=1e-9)
    assert table.matched


def test_models_of_unequal_accuracy_are_not_matched(digits: Dataset, pair: CompanionSet) -> None:
    rng = np.random.default_rng(0)
    companion, labels = pair, np.repeat([9, 8], 200)
    sure = np.full((400, 10), 1e-3)
    sure[np.arange(400), labels] = 1 - 9e-3
    guess = rng.dirichlet(np.ones(10), 400)
    seen = rng.dirichlet(np.ones(10), len(pair))
    rows = [measure(seen, companion, real, labels, name=name, **SMALL) for name, real in (("a", sure), ("b", guess))]
    assert rows[0].accuracy.value == 1 and rows[1].accuracy.value < 0.7
    assert list(_matched(rows, pair.dial, 60, 0)) == []


def test_the_table_as_json_and_csv(table: HubrisTable) -> None:
    content = json.loads(json.dumps(table.to_dict(), allow_nan=False))
    assert (
        content["classes"] == [9, 8] and content["reference"] == "soft_labels" and content["companion"]["images"] == 100
    )
    assert [row["model"] for row in content["models"]] == ["hasty", "thorough", "binary"]
    values = {row["model"]: row["ambiguous"]["relative"]["value"] for row in content["models"]}
    by_value = sorted(values, key=values.__getitem__)
    assert sorted(content["ranks"], key=content["ranks"].__getitem__) == by_value
    lines = list(csv.DictReader(io.StringIO(table.to_csv())))
    assert len(lines) == 12
    assert [line["images"] for line in lines[:4]] == ["ambiguous", "ambiguous", "clean", "clean"]
    assert float(lines[0]["absolute"]) == pytest.approx(table.rows[0].ambiguous.absolute.value.value, abs=1e-5)
    assert lines[2]["relative"] == "" and lines[2]["rank"] == ""
    assert float(lines[1]["temperature"]) == pytest.approx(table.rows[0].temperature, rel=1e-4)


def test_the_response_follows_the_dial(table: HubrisTable) -> None:
    slopes = {row.model: row.response.slope.value for row in table.rows}
    assert slopes["thorough"] > max(1, slopes["hasty"]), "a thorough model overstates the dial of a blend"
    for row in table.rows:
        assert row.response.count.sum() == 100
        assert np.sign(row.response_scaled.slope.value - slopes[row.model]) == np.sign(1 - row.temperature)


def test_without_a_dial_there_is_neither_relative_hubris_nor_a_curve(
    models: dict[str, Classifier], digits: Dataset, blends: ImageSet
) -> None:
    companion = CompanionSet.of(blends, (9, 8), "constant")
    table = benchmark([models["hasty"]], digits.test, companion, **SMALL)
    (row,) = table.rows
    assert row.ambiguous.relative is None and row.response is None and row.response_scaled is None
    assert table.values() == table.values("absolute")
    assert table.values("acd")["hasty"] == row.ambiguous.acd.value
    assert table.to_dict()["models"][0]["response"] is None


def test_pictures(
    table: HubrisTable, models: dict[str, Classifier], digits: Dataset, blends: ImageSet, tmp_path: Path
) -> None:
    save_picture(table, tmp_path / "hubris.png")
    with Image.open(tmp_path / "hubris.png") as picture:
        assert picture.size[0] > 800 and len(set(picture.convert("L").resize((60, 30)).tobytes())) > 5
    lone = benchmark([models["hasty"]], digits.test, CompanionSet.of(blends, (9, 8), "constant"), **SMALL)
    save_picture(lone, tmp_path / "lone.png")
    assert (tmp_path / "lone.png").stat().st_size > 5000
    row = table.rows[0]
    assert 'aria-label="Response curve' in response_chart(row.response, row.response_scaled)


def test_the_seed_repeats_everything(models: dict[str, Classifier], digits: Dataset, pair: CompanionSet) -> None:
    once, again, other = (
        benchmark([models["hasty"]], digits.test, pair, seed=seed, **SMALL).to_dict() for seed in (1, 1, 2)
    )
    assert once == again
    assert once["models"] != other["models"]


def test_mistakes_are_explained(models: dict[str, Classifier], digits: Dataset, pair: CompanionSet) -> None:
    with pytest.raises(UserError, match="No model was given"):
        benchmark([], digits.test, pair)
    with pytest.raises(UserError, match="same name"):
        benchmark([models["hasty"]] * 2, digits.test, pair)
    zeros = digits.test.take(digits.test.labels == 0)
    with pytest.raises(UserError, match="0 real images of the classes 9 and 8"):
        benchmark([models["hasty"]], zeros, pair)
