"""A model that fails at some images, or altogether: who is concerned, what is counted, and how it goes on."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
from distance_house import NAMES, Linear, assert_same

from secondguess import Classifier
from secondguess.errors import UserError
from secondguess.search.attacks import Boundary, checkpoint, engine
from secondguess.search.distance import measure_distances


class Refusing(Linear):
    """Has no answer to images near that at `SICK`, itself left out: NaN, or an error for the whole batch.

    Rows are summed one by one, so that an answer is the same in every batch.
    """

    SICK, NEAR = 3, 0.05

    def __init__(self, how: str, *, itself: bool = False) -> None:
        super().__init__()
        self.how, self.itself = how, itself

    def __call__(self, images: np.ndarray) -> np.ndarray:
        lead = np.array([float(self.w @ image.ravel().astype(np.float64)) + self.b for image in images])
        far = np.abs(images - self.images[self.SICK]).mean(axis=(1, 2, 3))
        sick = (far < self.NEAR) & (self.itself | (far > 0)) & (self.how != "well")
        if self.how == "raise" and sick.any():
            raise ValueError("an image is not to my liking")
        return np.where(sick[:, None], np.nan, np.stack([-lead, lead], axis=1))

    def opened(self, kind: str) -> Classifier:
        """As a function, or as a torch module, which attacks ask in another way."""
        import torch

        answer = self.__call__

        class Module(torch.nn.Module):
            def forward(self, images: torch.Tensor) -> torch.Tensor:
                return torch.from_numpy(answer(images.numpy())).float()

        model = answer if kind == "function" else Module()
        return Classifier(model, output_kind="logits", device="cpu", version="1" if kind == "function" else None)


WALK = Boundary(iterations=20)


@pytest.mark.parametrize(
    ("attack", "kind", "how", "batch_size"),
    [
        ("hop_skip_jump", "function", "nan", 64),
        ("hop_skip_jump", "module", "nan", 64),
        ("hop_skip_jump", "function", "raise", 64),
        ("hop_skip_jump", "module", "raise", 1),
        (WALK, "function", "raise", 64),
        (WALK, "module", "nan", 64),
    ],
)
def test_an_answer_that_cannot_be_used_concerns_its_image_alone(
    attack: str | Boundary, kind: str, how: str, batch_size: int
) -> None:
    options = {"attack": attack, "budget": 200, "batch_size": batch_size}
    model = Refusing(how)
    found = measure_distances(model.opened(kind), model.images, **options)
    sound = measure_distances(Refusing("well").opened("function"), model.images, **options)
    assert np.flatnonzero(found.unusable).tolist() == [model.SICK]
    assert found.unusable[model.SICK] < found.queries[model.SICK] <= 200
    assert model.NEAR <= found.mae[model.SICK] < np.inf  # a counterexample that the model has an answer to
    others = np.arange(17) != model.SICK
    for name in NAMES:
        np.testing.assert_array_equal(getattr(found, name)[others], getattr(sound, name)[others], err_msg=name)


class Shaky(Linear):
    """Answers otherwise in a small batch, by a little, as a GPU does; the last check is one."""

    SHIFT = 2e-4

    def __call__(self, images: np.ndarray) -> np.ndarray:
        lead = np.array([float(self.w @ image.ravel().astype(np.float64)) + self.b for image in images])
        lead -= self.SHIFT if len(images) <= len(self.images) else 0
        return np.stack([-lead, lead], axis=1)


def test_a_counterexample_that_is_not_confirmed_is_moved_away(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Shaky()
    options = {"attack": Boundary(iterations=100), "batch_size": 64}
    classifier = Classifier(model, output_kind="logits")
    found = measure_distances(classifier, model.images, **options)
    assert not found.failed.any()
    assert (found.counterexample_predictions != classifier.predict(model.images).argmax(axis=1)).all()
    change = np.abs(found.counterexamples.astype(np.float64) - model.images).reshape(len(model.images), -1)
    np.testing.assert_allclose(found.mae, change.mean(axis=1))
    monkeypatch.setattr(engine, "FARTHER", ())
    before = measure_distances(classifier, model.images, **options)
    lost = before.failed
    assert 2 <= lost.sum() < len(lost)
    assert (found.queries[lost] > before.queries[lost]).all() and (found.queries[~lost] == before.queries[~lost]).all()
    np.testing.assert_array_equal(found.mae[~lost], before.mae[~lost])


@pytest.mark.parametrize(("spare", "asked"), [(0, 1), (2, 3), (20, 1 + len(engine.FARTHER))])
def test_a_last_check_that_always_says_no_ends_with_the_budget_or_the_moves(
    monkeypatch: pytest.MonkeyPatch, spare: int, asked: int
) -> None:
    """What an image has spent before its last check is the same in every case."""
    model = Linear()
    options = {"attack": Boundary(iterations=2), "batch_size": 64}
    classifier = Classifier(model, output_kind="logits")
    before = int(measure_distances(classifier, model.images, **options).queries.max()) - 1
    checked = engine.AttackRun._checked

    def denied(run, walk):
        run.decide.budget = before + 1 + spare
        run.decide.spent[walk.rows] = before
        with monkeypatch.context() as patch:
            patch.setattr(run.decide, "_answers", lambda images: walk.classes[:1].expand(len(images)))
            return checked(run, walk.take(walk.classes == walk.classes[0]))

    walks = []
    monkeypatch.setattr(engine.AttackRun, "_checked", lambda run, walk: walks.append((run, walk)) or checked(run, walk))
    measure_distances(classifier, model.images, **options)
    run, walk = walks[0]
    rows = walk.rows[walk.classes == walk.classes[0]]
    answers = denied(run, walk)
    assert (answers == walk.classes[0]).all()
    assert (run.decide.spent[rows] == before + asked).all()


def test_gradients_that_are_not_numbers_concern_their_image_alone() -> None:
    import torch

    model = Refusing("nan")
    sick = torch.from_numpy(model.images[model.SICK])

    class Plane(torch.nn.Module):
        def __init__(self, well: bool) -> None:
            super().__init__()
            self.well = well

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            lead = (images.flatten(1) * torch.from_numpy(model.w).float()).sum(dim=1) + model.b
            far = (images - sick).abs().mean(dim=(1, 2, 3))
            bad = (far < model.NEAR) & (far > 0) & (not self.well)
            return torch.where(bad, torch.nan, lead)[:, None]

    found, sound = (
        measure_distances(Classifier(Plane(well), output_kind="logits", device="cpu"), model.images, attack="gradient")
        for well in (False, True)
    )
    others = np.arange(17) != model.SICK
    assert found.failed[model.SICK]  # every step ends where nothing can be followed
    assert found.unusable[model.SICK] > 0
    for name in NAMES:
        np.testing.assert_array_equal(getattr(found, name)[others], getattr(sound, name)[others], err_msg=name)


@pytest.mark.parametrize("kind", ["function", "module"])
@pytest.mark.parametrize("how", ["nan", "raise"])
def test_an_image_without_an_answer_fails_and_the_others_are_as_if_it_were_not_there(kind: str, how: str) -> None:
    model = Refusing(how, itself=True)
    found = measure_distances(model.opened(kind), model.images, budget=200)
    others = np.arange(17) != model.SICK
    without = measure_distances(Refusing("well").opened("function"), model.images[others], budget=200)
    for name in NAMES:
        np.testing.assert_array_equal(getattr(found, name)[others], getattr(without, name), err_msg=name)
    sick = {name: getattr(found, name)[model.SICK].tolist() for name in NAMES if name != "counterexamples"}
    nowhere = {"mae": np.inf, "l2": np.inf, "linf": np.inf, "failed": True, "counterexample_predictions": -1}
    assert sick == nowhere | {"queries": 1, "unusable": 1}
    np.testing.assert_array_equal(found.counterexamples[model.SICK], model.images[model.SICK])


def test_what_could_not_be_used_is_remembered_by_a_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "SECONDS", 0.0)
    model = Refusing("nan")
    whole = measure_distances(model.opened("module"), model.images, budget=300)
    calls, stopped = 0, 0

    class Stop:
        def task(self, label: str, total: int):
            def advance(done: int, total: int) -> None:
                nonlocal calls, stopped
                calls += 1  # after every forward pass, of which a step that is saved has some
                if calls % 25 == 0:
                    stopped += 1
                    raise KeyboardInterrupt

            return nullcontext(advance)

    for _ in range(100):
        try:
            again = measure_distances(
                model.opened("module"), model.images, budget=300, checkpoint=tmp_path, progress=Stop()
            )
            break
        except KeyboardInterrupt:
            continue
    assert stopped > 2
    assert_same(again, whole)


class Endpoint(Refusing):
    """Is gone after so many questions."""

    left = 10**9

    def __call__(self, images: np.ndarray) -> np.ndarray:
        self.left -= len(images)
        if self.left < 0:
            raise ConnectionError("no route to host")
        return super().__call__(images)


@pytest.mark.parametrize("left", [0, 1000])
def test_a_model_that_is_gone_spoils_no_image_and_the_work_goes_on_later(
    left: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint, "SECONDS", 0.0)
    model = Endpoint("well")
    options = {"budget": 200, "batch_size": 32}
    whole = measure_distances(model.opened("function"), model.images, **options)
    model.left = left
    gone = r"answers no more \(ConnectionError: no route to host\); once it does, the same call goes on from the check"
    with pytest.raises(UserError, match=gone):
        measure_distances(model.opened("function"), model.images, checkpoint=tmp_path, **options)
    assert model.left > -600  # it is not asked about every image of the batch
    model.left = 10**9
    assert_same(measure_distances(model.opened("function"), model.images, checkpoint=tmp_path, **options), whole)


@pytest.mark.parametrize("kind", ["function", "module"])
def test_a_model_that_answers_nothing_but_nan_is_reported(kind: str) -> None:
    class Nothing(Linear):
        opened = Refusing.opened

        def __call__(self, images: np.ndarray) -> np.ndarray:
            return np.full((len(images), 2), np.nan)

    model = Nothing()
    with pytest.raises(UserError, match="returned NaN or infinity for"):
        measure_distances(model.opened(kind), model.images)


def test_a_damaged_counterexample_is_said_and_its_image_attacked_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint, "SECONDS", 0.0)
    model = Linear()
    classifier = Classifier(model, output_kind="logits", version="1")
    options = {"budget": 200, "batch_size": 64, "checkpoint": tmp_path / "run"}
    whole = measure_distances(classifier, model.images, **options)
    kept = {name: np.array(getattr(whole, name)) for name in NAMES}
    file = tmp_path / "run" / "counterexamples.npy"
    content = bytearray(file.read_bytes())
    content[-5] ^= 64
    content[-3 * 256 - 5] ^= 64  # of another image
    file.write_bytes(content)
    model.asked = 0
    with pytest.warns(UserWarning, match="2 of 17 counterexamples in the checkpoint .* are not those that were"):
        again = measure_distances(classifier, model.images, **options)
    for name in NAMES:
        np.testing.assert_array_equal(getattr(again, name), kept[name], err_msg=name)
    assert 17 < model.asked < 2 * 200 + 100
    model.asked = 0
    measure_distances(classifier, model.images, **options)
    assert model.asked <= 17
