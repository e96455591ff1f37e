"""`sg.find_errors` from Python: ask, tell, read, save, and go on."""

from __future__ import annotations

import csv
import json
import threading
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import secondguess as sg
from secondguess.errors import UserError
from secondguess.images import ImageSet, load
from secondguess.progress import Lines
from secondguess.results import Result
from secondguess.search import find, make
from secondguess.search.low_confidence import LowConfidenceSearch
from secondguess.search.pool import Pool


@pytest.fixture(scope="module")
def images() -> ImageSet:
    return load("digits").test.take(np.arange(60))


@pytest.fixture(scope="module")
def model() -> Any:
    """The nearest of ten means, as a bare function."""
    train = load("digits").train
    assert train is not None
    flat = train.materialise().reshape(len(train), -1)
    centres = np.stack([flat[train.labels == k][:3].mean(axis=0) for k in range(10)])

    def answer(pixels: np.ndarray) -> np.ndarray:
        apart = ((pixels.reshape(len(pixels), 1, -1) - centres) ** 2).sum(axis=2)
        scores = np.exp(2 * (apart.min(axis=1, keepdims=True) - apart))
        return scores / scores.sum(axis=1, keepdims=True)

    return answer


def test_a_search_begins_without_distances_and_goes_on_with_them(model: Any, images: ImageSet, tmp_path: Path) -> None:
    found = sg.find_errors(model, images, min_confidence=0, budget=150, behind=True, folder=tmp_path)
    with found:
        assert found.pool.distances is None
        rows = found.ask(3)
        found.tell(rows[:2], images.labels[rows[:2]])
        found.measure()
        assert found.pool.distances is not None and found.session.search.pool is found.pool
        assert set(found.labelled) == set(rows[:2]), "what was answered stands"
        assert found.ask(1) == rows[2:], "and so does what was asked"
        before = found.pool
        found.measure()
        assert found.pool is before, "once is enough"
    whole = sg.find_errors(model, images, min_confidence=0, budget=150)
    assert whole.pool.distances is not None
    np.testing.assert_array_equal(before.distances.mae, whole.pool.distances.mae)


def test_a_page_opens_with_as_many_images_as_the_model_sees_at_once(
    model: Any, images: ImageSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from secondguess.planning import Pace

    monkeypatch.setattr(find, "FEWEST", 20)
    monkeypatch.setattr(Pace, "observing", lambda self, needs=None: find.OPENING / 25)
    settings: Any = {"min_confidence": 0, "attack": None, "behind": True, "folder": tmp_path}
    said = StringIO()
    with sg.find_errors(model, images, **settings, progress=Lines(said)) as found:
        assert len(found.pool.images) == 25
        kept = [int(name) for name in found.pool.images.ids or ()]
        np.testing.assert_array_equal(found.pool.images.materialise(), images.materialise()[kept])
    assert "25 of the 60 images are searched" in said.getvalue() and "--max-images 60" in said.getvalue()
    monkeypatch.setattr(Pace, "observing", lambda self, needs=None: 1e-9)
    with sg.find_errors(model, images, **settings) as again:
        assert again.pool.images.ids == found.pool.images.ids, "a session keeps its images"
    assert len(sg.find_errors(model, images, **settings | {"folder": None}, max_images=60).pool.images) == 60


def test_a_search_that_cannot_wait_measures_first(model: Any, images: ImageSet) -> None:
    few = images.head(30)
    found = sg.find_errors(model, few, search="adversarial_distance", min_confidence=0, budget=130, behind=True)
    assert found.pool.distances is not None


def test_minutes_set_the_questions_and_a_session_keeps_them(
    model: Any, images: ImageSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from secondguess.planning import Pace

    settings: Any = {"min_confidence": 0, "behind": True, "folder": tmp_path, "minutes": 1.0}
    monkeypatch.setattr(Pace, "observing", lambda self, needs=None: 60 / (200 * len(images)))
    with sg.find_errors(model, images, **settings) as found:
        assert found.to_dict()["settings"]["budget"] == 200
    monkeypatch.setattr(Pace, "observing", lambda self, needs=None: 1.0)
    with sg.find_errors(model, images, **settings) as again:
        assert again.to_dict()["settings"]["budget"] == 200
    slow = sg.find_errors(model, images, **settings | {"folder": None})
    assert slow.to_dict()["settings"]["budget"] == 128, "the attack cannot do with fewer"
    monkeypatch.setattr(Pace, "observing", lambda self, needs=None: 1e-9)
    quick = sg.find_errors(model, images.head(10), **settings | {"folder": None})
    assert quick.to_dict()["settings"]["budget"] is None, "the attack's own number"


def test_a_bare_function_and_a_set_of_images_are_enough(model: Any, images: ImageSet) -> None:
    """No supervisors, no labels, no folder: the adaptive search, which is the default."""
    found = sg.find_errors(model, images, min_confidence=0, budget=150)
    assert isinstance(found, Result)
    assert found.session.search.name == "adaptive" and found.pool.distances is not None
    for _ in range(10):
        rows = found.ask(2)
        found.tell(rows, images.labels[rows])
    predictions = sg.Classifier(model).predict(images).argmax(axis=1)
    wrong = [row for row in found.labelled.tolist() if predictions[row] != images.labels[row]]
    assert wrong and [one.image for one in found.errors] == wrong[::-1]
    assert [row["image"] for row in found.rows()] == wrong[::-1]
    for one in found.errors:
        assert (one.said, one.model) == (str(images.labels[one.image]), str(predictions[one.image]))
    assert found.ratio is not None
    announced = (1 - found.pool.confidence[found.labelled]).sum()
    assert found.ratio.value == pytest.approx(len(wrong) / announced)


def test_it_asks_what_the_search_asks(model: Any, images: ImageSet) -> None:
    """The same images in the same order as the search alone, told the same answers."""
    found = sg.find_errors(model, images, min_confidence=0, attack=None, seed=3)
    alone = make("adaptive", seed=3).fit(Pool.of(sg.Classifier(model), images, min_confidence=0))
    for _ in range(12):
        rows, referee = found.ask(3), alone.ask(3)
        assert rows.tolist() == referee.tolist()
        found.tell(rows, images.labels[rows])
        alone.tell(rows, images.labels[rows])
    assert found.labelled.tolist() == alone.labelled.tolist()
    assert found.why(5) == alone.why(5)


def test_what_was_asked_for_comes_again_until_it_is_answered(model: Any, images: ImageSet) -> None:
    found = sg.find_errors(model, images, search="low-confidence", min_confidence=0)
    order = np.argsort(found.pool.confidence, kind="stable")
    assert isinstance(found.session.search, LowConfidenceSearch)
    assert found.ask(3).tolist() == found.ask(3).tolist() == order[:3].tolist()
    found.tell(order[1:2], [4])
    found.skip(order[:1])
    assert found.ask(3).tolist() == order[2:5].tolist()
    assert found.session.upcoming("code", 5) == order[2:7].tolist()
    assert found.ask(100).tolist() == order[2:].tolist()
    assert found.labelled.tolist() == [order[1]]


def test_a_second_label_replaces_the_first(model: Any, images: ImageSet) -> None:
    found = sg.find_errors(model, images, search="random", min_confidence=0)
    predicted = int(found.pool.predictions[7])
    found.tell([7, 8], [(predicted + 1) % 10, int(found.pool.predictions[8])])
    assert [one.image for one in found.errors] == [7]
    found.tell([7], [predicted])
    assert found.errors == [] and sorted(found.labelled.tolist()) == [7, 8]
    found.skip([7])
    assert found.labelled.tolist() == [8]


def test_soft_labels_and_images_of_nothing(model: Any, images: ImageSet) -> None:
    found = sg.find_errors(model, images, search="random", min_confidence=0)
    predicted = int(found.pool.predictions[0])
    soft = np.zeros((2, 10))
    soft[0, [predicted, (predicted + 1) % 10]] = 0.7, 0.3
    found.tell([0, 1], soft)
    assert [(one.image, one.said) for one in found.errors] == [(1, "invalid")]


def test_a_folder_keeps_the_labels_and_the_same_call_goes_on(model: Any, images: ImageSet, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"min_confidence": 0, "search": "random", "folder": tmp_path / "labels"}
    with sg.find_errors(model, images, **settings) as found:
        rows = found.ask(4)
        found.tell(rows[:3], images.labels[rows[:3]])
        with pytest.raises(UserError, match="Another process is labelling"):
            sg.find_errors(model, images, **settings)
    with sg.find_errors(model, images, **settings) as again:
        assert again.labelled.tolist() == rows[:3].tolist()
        assert again.ask(2)[0] == rows[3]
        assert str(tmp_path / "labels") in again.summary()
    with pytest.raises(UserError, match=r'were begun with search "random", not "adaptive"'):
        sg.find_errors(model, images, **settings | {"search": "adaptive", "attack": None})
    assert {one.name for one in tmp_path.iterdir()} == {"labels"}


def test_what_is_saved(model: Any, images: ImageSet, tmp_path: Path) -> None:
    found = sg.find_errors(model, images, search="random", min_confidence=0)
    rows = found.ask(20)
    found.tell(rows, images.labels[rows])
    assert found.save(tmp_path / "kept") == tmp_path / "kept"
    assert sorted(one.name for one in (tmp_path / "kept").iterdir()) == ["errors.json", "labels.csv"]
    card = json.loads((tmp_path / "kept/errors.json").read_text())
    assert card == json.loads(json.dumps(found.to_dict()))
    assert card["labelled"] == 20 and [one["image"] for one in card["errors"]] == [one.image for one in found.errors]
    with (tmp_path / "kept/labels.csv").open() as file:
        table = list(csv.DictReader(file))
    assert [int(row["index"]) for row in table] == rows.tolist()
    assert [int(row["label"]) for row in table] == images.labels[rows].tolist()


def test_what_a_person_reads(model: Any, images: ImageSet) -> None:
    found = sg.find_errors(model, images, search="random", min_confidence=0)
    assert "Nothing is labelled yet." in str(found)
    assert found._repr_html_().count("<img") == 8
    rows = found.ask(30)
    found.tell(rows, images.labels[rows])
    lines = found.summary().splitlines()
    assert len(lines) <= 10
    assert "60 predictions with a confidence above 0 may be asked about, by the search 'random'." in lines
    assert any(line.startswith(f"30 labelled: {len(found.errors)} errors, ") for line in lines)
    html = found._repr_html_()
    assert "Errors found" in html and "Asked about next" in html and "<script" not in html
    assert found.session.upcoming("code", 1)[0] not in rows, "looking asks for nothing"


def test_folders_below_a_folder_are_no_classes(model: Any, images: ImageSet, tmp_path: Path) -> None:
    from PIL import Image

    for number, image in enumerate(images.materialise()[:6]):
        place = tmp_path / "in" / "ab"[number % 2]
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.rint(image[0] * 255).astype(np.uint8)).save(place / f"{number}.png")
    found = sg.find_errors(model, tmp_path / "in", search="random", min_confidence=0)
    assert found.pool.observation.class_names == tuple(map(str, range(10)))
    assert found.to_dict()["may_be_asked_about"] == 6


def test_the_models_own_object_stays_as_it_is(model: Any, images: ImageSet) -> None:
    classifier = sg.Classifier(model)
    before = classifier.class_names
    sg.find_errors(classifier, images, search="random", min_confidence=0)
    assert classifier.class_names == before == ()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"search": "psychic"}, "There is no search 'psychic'"),
        ({"min_confidence": 0.9999999}, "lower `min_confidence`"),
        ({"search": "adversarial_distance", "attack": None}, "distance"),
        ({"critical": "owl"}, "There is no class 'owl'"),
    ],
)
def test_mistakes_get_one_sentence(model: Any, images: ImageSet, more: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        sg.find_errors(model, images, **more)


def test_labels_by_name(model: Any, images: ImageSet) -> None:
    named = sg.Classifier(model, class_names=[f"digit {k}" for k in range(10)])
    found = sg.find_errors(named, images, search="random", min_confidence=0)
    found.tell([0, 1], ["digit 3", "digit 4"])
    found.tell(2, "digit 5")
    numbers = sg.find_errors(named, images, search="random", min_confidence=0)
    numbers.tell([0, 1, 2], [3, 4, 5])
    assert found.errors == numbers.errors and found.labelled.tolist() == [0, 1, 2]
    with pytest.raises(UserError, match="There is no class 'digit 33'; did you mean 'digit 3'"):
        found.tell([3], ["digit 33"])


def test_the_page_is_served_beside_the_program(model: Any, images: ImageSet, tmp_path: Path) -> None:
    import urllib.request

    links: list[str] = []
    with sg.find_errors(model, images, search="random", min_confidence=0, folder=tmp_path / "kept") as found:
        page = found.open(browser=False, announce=links.append, block=False)
        assert page is not None
        assert links == [page.link] and page.link in page._repr_html_()
        with urllib.request.urlopen(page.link) as answer:
            assert answer.status == 200
        rows = found.ask(2)
        found.tell(rows, images.labels[rows])
        assert len(found.labelled) == 2
        page.close()
        again = found.open(browser=False, announce=links.append, block=False)
        assert again is not None
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(again.link)


def test_positions_and_labels_are_checked(model: Any, images: ImageSet) -> None:
    found = sg.find_errors(model, images, search="random", min_confidence=0)
    for rows, labels in (([60], [0]), ([-1], [0]), ([0.5], [0]), ([0], [10]), ([0, 1], [0])):
        with pytest.raises(UserError):
            found.tell(rows, labels)
    with pytest.raises(UserError, match="at least 1"):
        found.ask(0)
    with pytest.raises(UserError, match="kept in a folder"):
        found.open()
    assert len(found.labelled) == 0


def test_the_end_of_a_session_ends_the_measuring_behind_its_page(model: Any, images: ImageSet, tmp_path: Path) -> None:
    found = sg.find_errors(model, images, min_confidence=0, budget=5000, behind=True, folder=tmp_path)
    page = found.open(browser=False, announce=lambda link: None, block=False)
    assert page is not None
    found.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "distances"]
    assert found.pool.distances is None
