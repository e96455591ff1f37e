from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from distance_house import NAMES, Linear, assert_same

from secondguess import Classifier, ImageSet
from secondguess.errors import UserError
from secondguess.search.attacks import Boundary, Gradient, HopSkipJump, checkpoint, engine
from secondguess.search.distance import Distances, measure_distances

QUICK = HopSkipJump(probes=16)


@pytest.fixture
def linear() -> Linear:
    return Linear()


@pytest.fixture(scope="module")
def digits():
    """A small network trained on digits 8x8, and 60 images it has not seen."""
    import torch
    from sklearn.datasets import load_digits
    from torch import nn

    data = load_digits()
    pixels = torch.from_numpy((data.images / 16).astype(np.float32))[:, None]
    labels = torch.from_numpy(data.target)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(128, 32), nn.ReLU(),
            nn.Linear(32, 10),
        )  # fmt: skip
        optimiser = torch.optim.Adam(model.parameters(), 1e-2)
        for _ in range(8):
            for rows in torch.randperm(1700).split(100):
                optimiser.zero_grad()
                nn.functional.cross_entropy(model(pixels[rows]), labels[rows]).backward()
                optimiser.step()
    return model.eval(), pixels[-60:].numpy()


def rowwise(linear: Linear) -> Classifier:
    """The same plane; a sum of one row is the same in every batch, unlike a matrix product's."""
    return Classifier(
        lambda x: np.array([[-s, s] for s in (float(linear.w @ i.ravel()) + linear.b for i in x)]),
        output_kind="logits",
        version="1",
    )


def assert_sound(found: Distances, classifier: Classifier, images: np.ndarray) -> None:
    """Distances are those of the counterexamples, within bounds and decided otherwise; failures are themselves."""
    change = np.abs(found.counterexamples.astype(np.float64) - images).reshape(len(images), -1)
    ok = ~found.failed
    np.testing.assert_allclose(found.mae[ok], change[ok].mean(axis=1))
    np.testing.assert_allclose(found.l2[ok], np.linalg.norm(change[ok], axis=1))
    np.testing.assert_allclose(found.linf[ok], change[ok].max(axis=1))
    assert np.isinf(np.stack([found.mae, found.l2, found.linf])[:, found.failed]).all()
    np.testing.assert_array_equal(found.counterexamples[found.failed], images[found.failed])
    assert found.counterexamples.dtype == np.float32
    assert found.counterexamples.min() >= 0
    assert found.counterexamples.max() <= 1
    said = classifier.predict(found.counterexamples).argmax(axis=1)
    np.testing.assert_array_equal(said, found.counterexample_predictions)
    np.testing.assert_array_equal(said != classifier.predict(images).argmax(axis=1), ok)


def test_the_distance_from_a_plane_is_found(linear: Linear) -> None:
    classifier = Classifier(linear, output_kind="logits")
    found = measure_distances(classifier, linear.images)
    assert (found.l2 >= linear.distances * (1 - 1e-5)).all()
    assert (found.l2 <= linear.distances * 1.06).all()
    # The nearest point changes pixel i in proportion to |w_i|.
    expected = linear.distances * np.abs(linear.w).mean() / np.linalg.norm(linear.w)
    assert np.median(found.mae / expected) == pytest.approx(1, abs=0.06)
    np.testing.assert_allclose(found.log_mae, np.log(found.mae))
    assert_sound(found, classifier, linear.images)


def test_the_boundary_attack_comes_near_the_plane_too(linear: Linear) -> None:
    classifier = Classifier(linear, output_kind="logits")
    found = measure_distances(classifier, linear.images[:5], attack=Boundary(iterations=300), starts=linear.images)
    ratio = found.l2 / linear.distances[:5]
    assert ratio.min() >= 1 - 1e-5
    assert ratio.max() < 1.15
    assert_sound(found, classifier, linear.images[:5])


def test_the_gradient_attack_is_exact_on_a_plane(linear: Linear) -> None:
    import torch

    plane = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 1))
    with torch.no_grad():
        plane[1].weight.copy_(torch.from_numpy(linear.w))
        plane[1].bias.fill_(linear.b)
    found = measure_distances(Classifier(plane, output_kind="logits"), linear.images, attack="gradient")
    np.testing.assert_allclose(found.l2, linear.distances, rtol=0.01, atol=2e-3)


@pytest.mark.parametrize("attack", [HopSkipJump(), QUICK, Boundary(iterations=7)])
@pytest.mark.parametrize("budget", [150, 333])
def test_every_query_is_in_the_ledger_and_within_the_budget(
    linear: Linear, attack: HopSkipJump | Boundary, budget: int
) -> None:
    found = measure_distances(Classifier(linear, output_kind="logits"), linear.images, attack=attack, budget=budget)
    assert found.queries.sum() == linear.asked
    assert found.queries.max() <= budget
    assert found.start_queries == 0
    assert not found.failed.any()
    assert not found.unusable.any()


def test_the_gradient_attack_counts_its_forward_passes(digits) -> None:
    model, images = digits
    asked = []
    handle = model.register_forward_hook(lambda _module, inputs, _output: asked.append(len(inputs[0])))
    try:
        found = measure_distances(Classifier(model, output_kind="logits"), images, attack="gradient", budget=80)
    finally:
        handle.remove()
    assert found.queries.sum() == sum(asked)
    assert found.queries.max() <= 80


@pytest.mark.parametrize("attack", ["hop_skip_jump", Boundary(iterations=20)])
def test_neither_batches_nor_blocks_nor_other_images_change_a_result(
    linear: Linear, attack: str | Boundary, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, options = rowwise(linear), {"attack": attack, "budget": 250, "seed": 3}
    whole = measure_distances(model, linear.images, **options)
    assert_same(measure_distances(model, linear.images, batch_size=7, **options), whole)
    monkeypatch.setattr(engine, "BLOCK_IMAGES", 4)
    assert_same(measure_distances(model, linear.images, batch_size=1, **options), whole)


def test_a_seed_is_a_result_and_another_seed_another(linear: Linear) -> None:
    classifier = Classifier(linear, output_kind="logits")
    runs = [measure_distances(classifier, linear.images, budget=200, seed=seed) for seed in (1, 1, 2)]
    assert_same(runs[0], runs[1])
    assert (runs[0].l2 != runs[2].l2).any()


def test_a_torch_model_and_the_same_model_as_a_callable_agree(digits) -> None:
    import torch

    model, images = digits

    def run(batch: np.ndarray) -> np.ndarray:
        with torch.inference_mode():
            return model(torch.from_numpy(batch)).numpy()

    fast, slow = (
        measure_distances(Classifier(which, output_kind="logits"), images[:20], attack=QUICK, budget=200)
        for which in (model, run)
    )
    np.testing.assert_array_equal(fast.queries, slow.queries)
    np.testing.assert_allclose(fast.l2, slow.l2, rtol=1e-3)


@pytest.mark.parametrize("attack", ["hop_skip_jump", "gradient", Boundary(iterations=30)])
def test_counterexamples_of_a_network_are_decided_otherwise(digits, attack: str | Boundary) -> None:
    model, images = digits
    classifier = Classifier(model, output_kind="logits")
    found = measure_distances(classifier, images, attack=attack)
    assert not found.failed.any()
    assert_sound(found, classifier, images)


def test_distances_rank_images_as_the_gradient_does(digits) -> None:
    from scipy.stats import spearmanr

    model, images = digits
    classifier = Classifier(model, output_kind="logits")
    black, white = (measure_distances(classifier, images, attack=name) for name in ("hop_skip_jump", "gradient"))
    assert spearmanr(black.mae, white.mae).statistic > 0.9
    assert np.median(black.l2 / white.l2) < 1.25


def test_distances_are_smaller_than_foolbox_finds_with_as_many_queries(digits) -> None:
    import torch

    from secondguess.stress.adversarial.attacks import require_foolbox

    model, images = digits
    foolbox = require_foolbox()
    pixels = torch.from_numpy(images[:20])
    with torch.inference_mode():
        labels = model(pixels).argmax(dim=1)
    asked = []
    handle = model.register_forward_hook(lambda _module, inputs, _output: asked.append(len(inputs[0])))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        target, criterion = foolbox.PyTorchModel(model, bounds=(0, 1)), foolbox.criteria.Misclassification(labels)
        theirs = foolbox.attacks.HopSkipJumpAttack(steps=5).run(target, pixels, criterion)
    handle.remove()
    budget = sum(asked) // 20
    ours = measure_distances(Classifier(model, output_kind="logits"), images, budget=budget)
    lengths = np.linalg.norm((theirs - pixels).numpy().reshape(20, -1), axis=1)
    assert 500 < budget < 2000
    assert np.median(ours.l2[:20]) <= np.median(lengths)


def test_the_gradient_attack_finds_less_than_foolbox_deepfool(digits) -> None:
    import torch

    from secondguess.stress.adversarial.attacks import require_foolbox

    model, images = digits
    foolbox = require_foolbox()
    pixels = torch.from_numpy(images)
    with torch.inference_mode():
        labels = model(pixels).argmax(dim=1)
    peer = foolbox.attacks.L2DeepFoolAttack()
    theirs = peer.run(foolbox.PyTorchModel(model, bounds=(0, 1)), pixels, foolbox.criteria.Misclassification(labels))
    lengths = np.linalg.norm((theirs - pixels).detach().numpy().reshape(60, -1), axis=1)
    ours = measure_distances(Classifier(model, output_kind="logits"), images, attack=Gradient())
    assert np.median(ours.l2 / lengths) < 1
    assert (ours.l2 < 1.1 * lengths).all()


def test_an_onnx_file_is_measured_without_gradients(digits, tmp_path: Path) -> None:
    import torch

    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    model, images = digits
    path = tmp_path / "model.onnx"
    batch = torch.export.Dim("batch")
    torch.onnx.export(
        model, (torch.from_numpy(images[:2]),), path, dynamo=True, dynamic_shapes=({0: batch},), verbose=False
    )
    classifier = Classifier(path, output_kind="logits")
    found = measure_distances(classifier, images[:20], budget=300)
    assert_sound(found, classifier, images[:20])
    same = measure_distances(Classifier(model, output_kind="logits"), images[:20], budget=300)
    np.testing.assert_allclose(np.median(found.l2 / same.l2), 1, atol=0.02)
    with pytest.raises(UserError, match=r"gradient attack needs gradients, but model.onnx gives decisions only"):
        measure_distances(classifier, images[:20], attack="gradient")


def test_without_any_other_decision_all_images_fail_after_fifty_tries(linear: Linear) -> None:
    stubborn = Classifier(lambda images: np.tile([3.0, -1.0], (len(images), 1)), output_kind="logits")
    found = measure_distances(stubborn, linear.images)
    assert found.failed.all()
    assert (found.queries == 1 + 50).all()
    assert_sound(found, stubborn, linear.images)


def test_an_image_that_cannot_be_moved_fails_alone(linear: Linear) -> None:
    """Bright images have no gradient to follow; the others are attacked as if these were not there."""
    import torch

    class Plane(torch.nn.Module):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            lead = (images.flatten(1) * torch.from_numpy(linear.w).float()).sum(dim=1) + linear.b
            return torch.where(images.mean(dim=(1, 2, 3)) > 0.9, 5 + 0 * lead, lead)[:, None]

    mixed = np.concatenate([linear.images[:4], np.full((2, 1, 8, 8), 0.95, dtype=np.float32), linear.images[4:]])
    classifier = Classifier(Plane(), output_kind="logits", device="cpu")
    found = measure_distances(classifier, mixed, attack="gradient")
    np.testing.assert_array_equal(np.flatnonzero(found.failed), [4, 5])
    np.testing.assert_allclose(found.l2[~found.failed], linear.distances, rtol=0.01, atol=2e-3)
    assert_sound(found, classifier, mixed)


def test_a_boundary_far_away_is_found_too(linear: Linear) -> None:
    """Around one image no other decision is to be had: a dent in the boundary, larger than its distance."""
    anchor = linear.images[3]

    def answer(images: np.ndarray) -> np.ndarray:
        near = np.abs(images - anchor).mean(axis=(1, 2, 3)) < 0.08
        return np.where(near[:, None], linear(anchor[None]), linear(images))

    classifier = Classifier(answer, output_kind="logits")
    found = measure_distances(classifier, linear.images, budget=300)
    assert not found.failed.any()
    assert found.mae[3] >= 0.08
    assert_sound(found, classifier, linear.images)


def test_noise_stands_in_where_all_images_have_one_decision() -> None:
    """Dark images are one class; noise is bright enough to be the other."""
    images = np.linspace(0, 0.3, 9, dtype=np.float32).reshape(9, 1, 1, 1) * np.ones((9, 1, 8, 8), dtype=np.float32)

    def brightness(batch: np.ndarray) -> np.ndarray:
        return np.stack([np.zeros(len(batch)), 50 * (batch.mean((1, 2, 3)) - 0.4)], axis=1)

    classifier = Classifier(brightness, output_kind="logits")
    found = measure_distances(classifier, images)
    assert not found.failed.any()
    np.testing.assert_allclose(found.mae, 0.4 - images[:, 0, 0, 0], rtol=0.05)


def test_starts_are_paid_for_by_nobody_but_counted(linear: Linear) -> None:
    classifier = Classifier(linear, output_kind="logits")
    found = measure_distances(classifier, linear.images[:3], starts=ImageSet.from_arrays(linear.images), budget=150)
    assert found.start_queries == 17
    assert found.queries.sum() + 17 == linear.asked


def test_some_images_are_measured_and_the_others_are_where_they_start(linear: Linear, tmp_path: Path) -> None:
    rows = np.array([2, 5, 11])
    whole = measure_distances(rowwise(linear), linear.images, budget=200)
    options = {"budget": 200, "checkpoint": tmp_path}
    found = measure_distances(rowwise(linear), linear.images, rows=rows, **options)
    for name in NAMES:
        np.testing.assert_array_equal(getattr(found, name)[rows], getattr(whole, name)[rows], err_msg=name)
    assert found.start_queries == 14
    others = np.setdiff1d(np.arange(17), rows)
    assert found.failed[others].all()
    assert np.isinf(found.mae[others]).all()
    assert not found.queries[others].any()
    assert (found.counterexample_predictions[others] == -1).all()
    assert_same(measure_distances(rowwise(linear), linear.images, rows=rows[::-1], **options), found)
    with pytest.raises(UserError, match=r"belongs to another measurement \(other rows\)"):
        measure_distances(rowwise(linear), linear.images, rows=rows[:2], **options)
    with pytest.raises(UserError, match=r"positions of the 17 images; give numbers in 0\.\.16"):
        measure_distances(rowwise(linear), linear.images, rows=np.array([17]))


class Interrupted(Linear):
    """Breaks off after so many questions, as Ctrl-C does."""

    left = 10**9

    def __call__(self, images: np.ndarray) -> np.ndarray:
        self.left -= len(images)
        if self.left < 0:
            raise KeyboardInterrupt
        return super().__call__(images)


@pytest.mark.parametrize("attack", ["hop_skip_jump", Boundary(iterations=12)])
def test_a_run_broken_off_anywhere_ends_as_if_it_had_not_been(
    attack: str | Boundary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "BLOCK_IMAGES", 6)
    monkeypatch.setattr(checkpoint, "SECONDS", 0.0)
    model = Interrupted()
    classifier = Classifier(model, output_kind="logits", version="1")
    options = {"attack": attack, "budget": 300, "batch_size": 64}
    whole = measure_distances(classifier, model.images, **options)
    once, breaks = model.asked, 0
    model.asked = 0
    while True:
        model.left = 700
        try:
            again = measure_distances(classifier, model.images, checkpoint=tmp_path / "run", **options)
            break
        except KeyboardInterrupt:
            breaks += 1
    assert breaks >= 3
    assert_same(again, whole)
    assert model.asked < 1.5 * once  # broken rounds are asked again, finished ones are not
    model.left = 0
    assert_same(measure_distances(classifier, model.images, checkpoint=tmp_path / "run", **options), whole)
    assert isinstance(again.counterexamples, np.memmap)


def test_a_checkpoint_of_another_measurement_is_refused(linear: Linear, tmp_path: Path) -> None:
    classifier = Classifier(linear, output_kind="logits", version="1")
    measure_distances(classifier, linear.images, budget=150, checkpoint=tmp_path)
    with pytest.raises(UserError, match=r"belongs to another measurement \(other budget, seed\); name another folder"):
        measure_distances(classifier, linear.images, budget=160, seed=1, checkpoint=tmp_path)
    whole = (tmp_path / "results.npz").read_bytes()
    for damaged in (b"no zip", whole[:500], b""):
        (tmp_path / "results.npz").write_bytes(damaged)
        with pytest.raises(UserError, match=r"results.npz in the checkpoint .* cannot be read"):
            measure_distances(classifier, linear.images, budget=150, checkpoint=tmp_path)


def test_distances_are_saved_and_loaded(linear: Linear, tmp_path: Path) -> None:
    found = measure_distances(Classifier(linear, output_kind="logits"), linear.images, budget=150)
    found.save(tmp_path / "distances.npz")
    assert_same(Distances.load(tmp_path / "distances.npz"), found)
    with pytest.raises(UserError, match="There are no distances at"):
        Distances.load(tmp_path / "nowhere.npz")
    np.savez(tmp_path / "other.npz", x=np.zeros(3))
    (tmp_path / "half.npz").write_bytes((tmp_path / "distances.npz").read_bytes()[:500])
    for name in ("other.npz", "half.npz"):
        with pytest.raises(UserError, match="does not hold distances"):
            Distances.load(tmp_path / name)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"attack": "nonsense"}, r"no attack 'nonsense'; known are: hop_skip_jump, boundary, gradient"),
        ({"budget": 20}, r"budget of 20 queries per image was given; hop_skip_jump needs at least \d+"),
        ({"batch_size": 0}, "batch size is 0"),
        ({"starts": np.zeros((2, 1, 9, 9), dtype=np.float32)}, r"shape \(1, 8, 8\), but the starts \(1, 9, 9\)"),
    ],
)
def test_a_mistake_is_explained(linear: Linear, change: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        measure_distances(Classifier(linear, output_kind="logits"), linear.images, **change)


def test_a_measurement_that_cannot_begin_leaves_no_checkpoint_in_the_way(linear: Linear, tmp_path: Path) -> None:
    classifier, options = (
        Classifier(linear, output_kind="logits", version="1"),
        {"budget": 200, "checkpoint": tmp_path / "d"},
    )
    with pytest.raises(UserError, match=r"The gradient attack needs gradients, but .* take the attack hop_skip_jump"):
        measure_distances(classifier, linear.images, attack="gradient", **options)
    assert not (tmp_path / "d").exists()
    assert not measure_distances(classifier, linear.images, **options).failed.any()


def test_an_attack_that_cannot_work_is_refused() -> None:
    with pytest.raises(UserError, match=r"grids=\(\).* cannot work; it needs at least 2 probes, 1 grid"):
        HopSkipJump(grids=())


def test_the_cache_of_a_classifier_is_left_alone(linear: Linear, tmp_path: Path) -> None:
    classifier = Classifier(linear, output_kind="logits", version="1", cache=tmp_path)
    measure_distances(classifier, linear.images, budget=150)
    assert not list(tmp_path.rglob("*.npy"))


def test_progress_ends_at_its_total(linear: Linear) -> None:
    from contextlib import contextmanager

    told: list[tuple[int, int]] = []

    class Notes:
        @contextmanager
        def task(self, label: str, total: int):
            assert label == "Measuring distances"
            yield lambda done, total: told.append((done, total))

    measure_distances(Classifier(linear, output_kind="logits"), linear.images, budget=200, progress=Notes())
    assert told[-1] == (17 * 200, 17 * 200)
    assert told == sorted(told)
