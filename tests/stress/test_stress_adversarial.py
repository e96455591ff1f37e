from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

from secondguess import Classifier, ImageSet, UserError
from secondguess.errors import MissingExtra
from secondguess.images import load_images, save_npz
from secondguess.progress import Advance
from secondguess.stress import Adversarial, make_all, names
from secondguess.stress.adversarial import ATTACKS, PAPER_GRID
from secondguess.stress.adversarial.attacks import open_attack
from secondguess.stress.adversarial.search import pieces

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # it imports from a module that SciPy has renamed
    import foolbox

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
SHAPE = (1, 6, 6)
N = 37


class Net(nn.Module):
    """A small smooth network with dropout, which must be off, for images of `SHAPE` and three classes."""

    def __init__(self, sharpness: float = 6.0) -> None:
        super().__init__()
        self.hidden, self.head = nn.Linear(36, 12), nn.Linear(12, 3)
        self.dropout = nn.Dropout(0.5)
        self.sharpness = sharpness

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(self.hidden(images.flatten(1) - 0.5))
        return self.sharpness * self.head(self.dropout(hidden))


class Breaks(nn.Module):
    """A model that raises if any image of the batch is white as snow, which no attack here makes of another."""

    def __init__(self, net: nn.Module, error: Callable[[], Exception] = lambda: RuntimeError("cosmic ray")) -> None:
        super().__init__()
        self.net, self.error = net, error

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        if (images.mean(dim=(1, 2, 3)) > 0.95).any():
            raise self.error()
        return self.net(images)


def seeded(kind: Callable[..., nn.Module] = Net, seed: int = 3, **options: Any) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return kind(**options).eval()


@pytest.fixture(scope="module")
def net() -> nn.Module:
    return seeded()


@pytest.fixture(scope="module")
def nominal(net: nn.Module) -> ImageSet:
    """Images with what the net says of them as labels, except for the first five, which it gets wrong."""
    images = np.random.default_rng(0).random((N, *SHAPE), dtype=np.float32) * np.float32(0.9) + np.float32(0.05)
    labels = said(net, images)
    labels[:5] = (labels[:5] + 1) % 3
    return ImageSet.from_arrays(images, labels, class_names=["a", "b", "c"], layout="NCHW", name="toys")


def said(net: nn.Module, images: Floats) -> Ints:
    with torch.no_grad():
        return net(torch.from_numpy(images)).argmax(1).numpy()


def gradient(net: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    given = images.clone().requires_grad_()
    (slope,) = torch.autograd.grad(functional.cross_entropy(net(given), labels, reduction="sum"), given)
    return slope


def by_hand(net: nn.Module, images: Floats, labels: Ints, epsilon: float, start: Floats, attack: str) -> Floats:
    """FGSM, BIM and PGD written out."""
    steps, size = {"fgsm": (1, 1.0), "bim": (10, 0.2), "pgd": (40, 1 / 30)}[attack]
    origin, truth = torch.from_numpy(images), torch.from_numpy(labels)
    moved = (origin + epsilon * torch.from_numpy(start)).clamp(0, 1)
    for _ in range(steps):
        moved = moved + size * epsilon * gradient(net, moved, truth).sign()
        moved = torch.max(torch.min(moved, origin + epsilon), origin - epsilon).clamp(0, 1)
    return moved.numpy()


def columns(made: ImageSet) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    return made.columns["attack"], made.columns["epsilon"], made.columns["success"]


@pytest.mark.parametrize("name", ["fgsm", "bim", "pgd"])
@pytest.mark.parametrize("epsilon", [0.001, 0.05, 0.4])
def test_steps_by_hand(name: str, epsilon: float, net: nn.Module, nominal: ImageSet) -> None:
    images, labels = nominal.materialise()[5:12], nominal.labels[5:12]
    attack = open_attack(name, Classifier(net).differentiable(), seed=7, transfer=False, legacy=False)
    start = attack.prepare(images, labels, np.arange(5, 12))
    assert start.any() == (name == "pgd")
    assert np.abs(start).max() <= 1
    seen = attack.perturb(images, labels, start, epsilon)
    np.testing.assert_allclose(seen, by_hand(net, images, labels, epsilon, start, name), atol=1e-5)


def test_the_random_start_is_uniform_and_an_images_own(net: nn.Module) -> None:
    attack = open_attack("pgd", Classifier(net).differentiable(), seed=7, transfer=False, legacy=False)
    images, labels = np.zeros((200, *SHAPE), np.float32), np.zeros(200, np.int64)
    start = attack.prepare(images, labels, np.arange(200))
    assert start.min() < -0.99 and start.max() > 0.99
    assert abs(start.mean()) < 0.03 and start.std() == pytest.approx(1 / np.sqrt(3), rel=0.03)
    np.testing.assert_array_equal(attack.prepare(images[:2], labels[:2], np.array([150, 3])), start[[150, 3]])


@pytest.mark.parametrize("name", ["fgsm", "bim", "deepfool"])
def test_one_image_as_foolbox_itself_does_it(name: str, net: nn.Module, nominal: ImageSet) -> None:
    images, labels = nominal.materialise()[9:10], nominal.labels[9:10]
    kinds = {
        "fgsm": foolbox.attacks.LinfFastGradientAttack,
        "bim": foolbox.attacks.LinfBasicIterativeAttack,
        "deepfool": foolbox.attacks.LinfDeepFoolAttack,
    }
    target = foolbox.PyTorchModel(net, bounds=(0, 1), device="cpu")
    sizes = [epsilon for epsilon in PAPER_GRID if epsilon > 0]
    _, expected, success = kinds[name]()(target, torch.from_numpy(images), torch.from_numpy(labels), epsilons=sizes)
    attack = open_attack(name, Classifier(net).differentiable(), seed=0, transfer=False, legacy=False)
    start = attack.prepare(images, labels, np.array([9]))
    for epsilon, wanted in zip(sizes, expected, strict=True):
        np.testing.assert_allclose(attack.perturb(images, labels, start, epsilon), wanted.numpy(), atol=1e-6)
    made = Adversarial([name]).make(nominal.take([9]), classifier=Classifier(net))
    assert made.columns["epsilon"][0] == sizes[int(success[:, 0].numpy().argmax())]


def test_the_order_of_the_classes_makes_no_difference(net: nn.Module, nominal: ImageSet) -> None:
    """A label that means another class would make every image a success without any change."""
    model, attack = Classifier(net, class_names=["a", "b", "c"]), Adversarial(["fgsm", "bim"])
    other = ImageSet.from_arrays(
        nominal.materialise(), np.array([2, 0, 1])[nominal.labels], class_names=["b", "c", "a"], layout="NCHW"
    )
    expected, found = (attack.make(one, classifier=model, seed=1) for one in (nominal, other))
    assert found.class_names == ("a", "b", "c")
    assert found.labels.tolist() == expected.labels.tolist()
    for mine, theirs in zip(columns(found), columns(expected), strict=True):
        assert mine.tolist() == theirs.tolist()
    np.testing.assert_array_equal(found.materialise(), expected.materialise())


def test_deepfool_on_a_linear_model_in_closed_form() -> None:
    model = seeded(lambda: nn.Sequential(nn.Flatten(), nn.Linear(36, 3)))
    images = np.random.default_rng(1).uniform(0.4, 0.6, (6, *SHAPE)).astype(np.float32)
    labels = said(model, images)
    attack = open_attack("deepfool", Classifier(model).differentiable(), seed=0, transfer=False, legacy=False)
    change = attack.prepare(images, labels, np.arange(6))
    weights, logits = model[1].weight.detach().numpy(), model(torch.from_numpy(images)).detach().numpy()
    for moved, label, row in zip(change, labels, logits, strict=True):
        others = [k for k in range(3) if k != label]
        # the nearest border: margin over the L1 norm, plus what foolbox adds for safety
        nearest = min((row[label] - row[k]) / np.abs(weights[k] - weights[label]).sum() for k in others)
        assert np.abs(moved).max() == pytest.approx(1.02 * (nearest + 1e-4), rel=1e-3)


def test_sizes_and_success_are_what_they_are_said_to_be(net: nn.Module, nominal: ImageSet) -> None:
    made = Adversarial().make(nominal, seed=1, classifier=Classifier(net))
    attack, epsilon, success = columns(made)
    change = np.abs(made.materialise() - nominal.materialise()).max(axis=(1, 2, 3))
    assert (change <= np.nan_to_num(epsilon) + 1e-6).all()
    np.testing.assert_array_equal(said(net, made.materialise()) != nominal.labels, success)
    assert set(attack) == set(ATTACKS)
    assert set(np.bincount([ATTACKS.index(name) for name in attack])) <= {N // 4, N // 4 + 1}
    assert set(epsilon[success]) <= set(PAPER_GRID)
    assert len(set(epsilon[success])) >= 3
    assert (change[success & (epsilon > 0)] > 0).all()
    np.testing.assert_array_equal(made.labels, nominal.labels)
    assert made.class_names == nominal.class_names
    assert made.name == "toys, adversarial"
    np.testing.assert_array_equal(made.columns["source_index"], np.arange(N))
    assert set(made.columns["mode"]) == {"white-box"}
    assert set(made.columns["reason"]) == {""}


@pytest.mark.parametrize("name", ATTACKS)
def test_no_smaller_size_of_the_grid_works(name: str, net: nn.Module, nominal: ImageSet) -> None:
    classifier = Classifier(net)
    _, epsilon, success = columns(Adversarial([name]).make(nominal, classifier=classifier))
    images, labels = nominal.materialise(), nominal.labels
    attack = open_attack(name, classifier.differentiable(), seed=0, transfer=False, legacy=False)
    start = attack.prepare(images, labels, np.arange(N))
    fooled = [said(net, images) != labels]
    fooled += [said(net, attack.perturb(images, labels, start, size)) != labels for size in PAPER_GRID[1:]]
    for row, works in enumerate(np.array(fooled).T):
        assert success[row] == works.any()
        if works.any():
            assert epsilon[row] == PAPER_GRID[int(works.argmax())]


def test_what_is_wrong_already_enters_unchanged(net: nn.Module, nominal: ImageSet) -> None:
    for grid in (PAPER_GRID, (0.5,), (0,)):
        made = Adversarial(epsilons=grid).make(nominal, classifier=Classifier(net))
        _, epsilon, success = columns(made)
        np.testing.assert_array_equal(made.materialise()[:5], nominal.materialise()[:5])
        assert (epsilon[:5] == 0).all() and success[:5].all()
        assert (epsilon[5:] != 0).all()


def test_what_withstands_is_kept_and_marked(net: nn.Module, nominal: ImageSet) -> None:
    made = Adversarial(epsilons=[1e-7]).make(nominal, classifier=Classifier(net))
    _, epsilon, success = columns(made)
    assert not success[5:].any()
    assert np.isnan(epsilon[5:]).all()
    np.testing.assert_array_equal(made.materialise(), nominal.materialise())
    assert made.notes == ("32 of 37 images withstood every attack and are unchanged.",)


def test_same_seed_same_images_whatever_the_batch_size(net: nn.Module, nominal: ImageSet) -> None:
    first = Adversarial().make(nominal, seed=5, classifier=Classifier(net, batch_size=256))
    second = Adversarial().make(nominal, seed=5, classifier=Classifier(net, batch_size=3))
    other = Adversarial().make(nominal, seed=6, classifier=Classifier(net))
    assert first.fingerprint == second.fingerprint != other.fingerprint
    for name in first.columns:
        np.testing.assert_array_equal(first.columns[name], second.columns[name])
    assert (first.columns["attack"] != other.columns["attack"]).any()


def test_the_chunk_matters_only_to_the_last_bits(net: nn.Module, nominal: ImageSet) -> None:
    whole, small = (Adversarial(chunk_size=size).make(nominal, classifier=Classifier(net)) for size in (None, 4))
    np.testing.assert_array_equal(whole.columns["epsilon"], small.columns["epsilon"])
    np.testing.assert_allclose(whole.materialise(), small.materialise(), atol=1e-5)


def test_nothing_of_the_user_is_touched(net: nn.Module, nominal: ImageSet, tmp_path: Path) -> None:
    model = seeded().train()
    classifier = Classifier(model, cache=tmp_path, batch_size=7)
    state, before = torch.get_rng_state(), nominal.materialise()
    Adversarial().make(nominal, classifier=classifier)
    assert torch.equal(torch.get_rng_state(), state)
    assert model.training and model.dropout.training
    assert all(weight.requires_grad and weight.grad is None for weight in model.parameters())
    assert classifier.batch_size == 7 and classifier.cache is not None
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]  # tries and errors are not worth a cache
    np.testing.assert_array_equal(nominal.materialise(), before)


def test_the_normalisation_is_the_classifiers(nominal: ImageSet) -> None:
    net = seeded()
    plain = Adversarial().make(nominal, classifier=Classifier(nn.Sequential(_Affine(0.3, 0.5), net).eval()))
    normalised = Adversarial().make(nominal, classifier=Classifier(net, mean=0.3, std=0.5))
    np.testing.assert_array_equal(plain.columns["epsilon"], normalised.columns["epsilon"])
    np.testing.assert_allclose(plain.materialise(), normalised.materialise(), atol=1e-5)


class _Affine(nn.Module):
    def __init__(self, mean: float, std: float) -> None:
        super().__init__()
        self.mean, self.std = mean, std

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return (images - self.mean) / self.std


@pytest.mark.parametrize("name", ["fgsm", "bim"])
def test_a_saturated_softmax_stops_the_legacy_attack_but_not_ours(name: str, nominal: ImageSet) -> None:
    sharp = seeded(sharpness=1e4)
    softmax = nn.Sequential(sharp, nn.Softmax(dim=1)).eval()
    ours, through, legacy = (
        Adversarial([name], legacy=legacy).make(nominal, classifier=Classifier(model))
        for model, legacy in ((sharp, False), (softmax, False), (sharp, True))
    )
    images, labels = torch.from_numpy(nominal.materialise()[5:]), torch.from_numpy(nominal.labels[5:])
    assert not gradient(sharp, images, labels).flatten(1).any(dim=1).all()  # even the gradient of the logits may vanish
    assert ours.columns["success"].mean() > 0.9
    assert through.fingerprint == ours.fingerprint
    confident = np.isnan(legacy.columns["epsilon"])
    assert confident.mean() > 0.5  # a gradient of zero leads nowhere
    np.testing.assert_array_equal(legacy.materialise()[confident], nominal.materialise()[confident])


def test_one_bad_image_costs_nobody_else_anything(net: nn.Module, nominal: ImageSet) -> None:
    images = nominal.materialise()
    images[11] = 1
    spoilt = ImageSet.from_arrays(images, nominal.labels, class_names=nominal.class_names, layout="NCHW")
    for error in (lambda: RuntimeError("cosmic ray\n  at 0x00"), lambda: KeyError("cosmic ray"), MemoryError):
        made = Adversarial().make(spoilt, classifier=Classifier(Breaks(net, error)))
        sound = Adversarial().make(spoilt, classifier=Classifier(net))
        others = np.arange(N) != 11
        np.testing.assert_array_equal(made.columns["epsilon"][others], sound.columns["epsilon"][others])
        np.testing.assert_allclose(made.materialise()[others], sound.materialise()[others], atol=1e-5)
        np.testing.assert_array_equal(made.materialise()[11], images[11])
        assert not made.columns["success"][11] and np.isnan(made.columns["epsilon"][11])
        reason = str(made.columns["reason"][11])
        assert "cosmic ray" in reason or "MemoryError" in reason
        assert "\n" not in made.columns["reason"][11]
        assert set(made.columns["reason"][others]) == {""}
        assert made.notes[-1].startswith("1 of 37 images could not be attacked")


def test_an_image_that_breaks_only_under_attack_is_isolated_too(net: nn.Module, nominal: ImageSet) -> None:
    class Fragile(nn.Module):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            if (images[:, 0, 0, 0] == 1).any():  # no nominal image is, but FGSM makes some so
                raise RuntimeError("too bright")
            return net(images)

    settings = Adversarial(["fgsm"], epsilons=[1])
    made = settings.make(nominal, classifier=Classifier(Fragile()))
    sound = settings.make(nominal, classifier=Classifier(net))
    broken = made.columns["reason"] != ""
    assert 0 < broken.sum() < N
    np.testing.assert_array_equal(made.materialise()[broken], nominal.materialise()[broken])
    np.testing.assert_allclose(made.materialise()[~broken], sound.materialise()[~broken], atol=1e-6)


def test_nan_from_the_model_is_a_reason(net: nn.Module, nominal: ImageSet) -> None:
    class Nan(nn.Module):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return torch.where(images[:, 0, 0, :1] == 1, torch.nan, net(images))

    images = nominal.materialise()
    images[20, 0, 0, 0] = 1
    made = Adversarial(epsilons=[0.01]).make(
        ImageSet.from_arrays(images, nominal.labels, layout="NCHW"), classifier=Classifier(Nan())
    )
    assert "NaN" in made.columns["reason"][20]
    assert (made.columns["reason"] != "").sum() == 1


def test_if_no_image_can_be_attacked_that_is_an_error(nominal: ImageSet) -> None:
    class Broken(nn.Module):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            raise RuntimeError("out of order")

    with pytest.raises(UserError, match=r"None of the 37 images could be attacked: .*out of order"):
        Adversarial().make(nominal, classifier=Classifier(Broken()))


def test_pieces_halve_until_the_culprits_stand_alone() -> None:
    calls: list[int] = []

    def work(positions: Ints) -> Ints:
        calls.append(len(positions))
        if {13, 77} & set(positions.tolist()):
            raise ValueError("unlucky")
        return positions * 10

    reasons = [""] * 128
    done = list(pieces(work, np.arange(128), reasons))
    good = np.delete(np.arange(128), [13, 77])
    np.testing.assert_array_equal(np.concatenate([part for part, _ in done]), good)
    np.testing.assert_array_equal(np.concatenate([result for _, result in done]), good * 10)
    assert {row: reason for row, reason in enumerate(reasons) if reason} == {13: "unlucky", 77: "unlucky"}
    assert len(calls) < 30
    assert list(pieces(work, np.arange(0), reasons)) == []


def black_box(net: nn.Module) -> Classifier:
    def answer(images: Floats) -> NDArray[Any]:
        with torch.no_grad():
            return net(torch.from_numpy(images)).softmax(1).numpy()

    return Classifier(answer, name="endpoint", output_kind="probabilities")


def noise(count: int) -> ImageSet:
    return ImageSet.from_arrays(np.random.default_rng(8).random((count, *SHAPE), dtype=np.float32), layout="NCHW")


def test_a_black_box_is_attacked_through_a_surrogate_of_its_own(net: nn.Module, nominal: ImageSet) -> None:
    first, again = (Adversarial(surrogate_images=noise(500)).make(nominal, classifier=black_box(net)) for _ in range(2))
    _, epsilon, success = columns(first)
    assert set(first.columns["mode"]) == {"transfer"}
    np.testing.assert_array_equal(said(net, first.materialise()) != nominal.labels, success)
    assert success[5:].mean() > 0.5
    assert (epsilon[:5] == 0).all()
    change = np.abs(first.materialise() - nominal.materialise()).max(axis=(1, 2, 3))
    assert (change <= np.nan_to_num(epsilon) + 1e-6).all()
    assert first.fingerprint == again.fingerprint
    assert first.notes[-1] == "The attacks used surrogate of endpoint, not the classifier."


def test_a_surrogate_may_be_handed_in(net: nn.Module, nominal: ImageSet) -> None:
    twin = Classifier(seeded())
    through = Adversarial(["pgd"], surrogate=twin).make(nominal, classifier=black_box(net))
    direct = Adversarial(["pgd"]).make(nominal, classifier=Classifier(net))
    np.testing.assert_array_equal(through.columns["epsilon"], direct.columns["epsilon"])
    assert set(through.columns["mode"]) == {"transfer"}
    stranger = Classifier(seeded(seed=99))
    blind = Adversarial(["pgd"], surrogate=stranger).make(nominal, classifier=Classifier(net))
    np.testing.assert_array_equal(said(net, blind.materialise()) != nominal.labels, blind.columns["success"])
    assert np.nan_to_num(blind.columns["epsilon"], nan=2).mean() > direct.columns["epsilon"].mean()


def test_deepfool_is_scaled_for_a_surrogate(net: nn.Module, nominal: ImageSet) -> None:
    made = Adversarial(["deepfool"], surrogate=Classifier(net)).make(nominal, classifier=black_box(net))
    _, epsilon, _ = columns(made)
    change = np.abs(made.materialise() - nominal.materialise()).max(axis=(1, 2, 3))
    small = (epsilon > 0) & (epsilon <= 0.05)  # larger ones may be cut by the range of a pixel
    np.testing.assert_allclose(change[small], epsilon[small], atol=1e-6)


def test_a_surrogate_may_learn_from_other_images(net: nn.Module, nominal: ImageSet) -> None:
    one = nominal.take([6])
    with pytest.raises(UserError, match=r"endpoint gives no gradients.* the same for all 1 images"):
        Adversarial(["fgsm"]).make(one, classifier=black_box(net))
    made = Adversarial(["fgsm"], surrogate_images=noise(100)).make(one, classifier=black_box(net))
    assert made.columns["mode"][0] == "transfer"


def test_where_no_surrogate_is_possible_the_message_says_what_to_do(nominal: ImageSet) -> None:
    stubborn = Classifier(lambda images: np.tile([0.8, 0.1, 0.1], (len(images), 1)), name="stubborn")
    with pytest.raises(UserError, match=r"stubborn gives no gradients.*give Adversarial\(surrogate=\.\.\.\)"):
        Adversarial().make(nominal, classifier=stubborn)

    def down(images: Floats) -> NDArray[Any]:
        raise ConnectionError("no route to host")

    with pytest.raises(UserError, match=r"endpoint cannot classify any of the 37 images: .*no route to host"):
        Adversarial().make(nominal, classifier=Classifier(down, name="endpoint"))


def test_a_surrogate_that_does_not_fit_is_refused(net: nn.Module, nominal: ImageSet) -> None:
    two = Classifier(nn.Sequential(nn.Flatten(), nn.Linear(36, 2)), name="two", output_kind="logits")
    with pytest.raises(UserError, match="The surrogate two tells 2 classes apart, but the images have 3"):
        Adversarial(surrogate=two).make(nominal, classifier=Classifier(net))
    with pytest.raises(UserError, match="Following gradients needs gradients, but endpoint"):
        Adversarial(surrogate=black_box(net)).make(nominal, classifier=Classifier(net))


def test_an_onnx_file_is_a_black_box(net: nn.Module, nominal: ImageSet, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    linear = seeded(lambda: nn.Linear(36, 3))
    weights = {"w": linear.weight.detach().numpy() * 9, "b": linear.bias.detach().numpy()}
    kinds = onnx.TensorProto.FLOAT
    graph = onnx.helper.make_graph(
        [
            onnx.helper.make_node("Flatten", ["x"], ["flat"]),
            onnx.helper.make_node("Gemm", ["flat", "w", "b"], ["y"], transB=1),
        ],
        "linear",
        [onnx.helper.make_tensor_value_info("x", kinds, ["n", *SHAPE])],
        [onnx.helper.make_tensor_value_info("y", kinds, ["n", 3])],
        [onnx.numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    opset = [onnx.helper.make_opsetid("", 17)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opset, ir_version=8), tmp_path / "m.onnx")
    made = Adversarial().make(nominal, classifier=Classifier(tmp_path / "m.onnx"))
    assert set(made.columns["mode"]) == {"transfer"}
    assert made.columns["success"].mean() > 0.5


def test_unlabelled_images_are_attacked_against_what_the_model_says(net: nn.Module, nominal: ImageSet) -> None:
    images = nominal.materialise()
    unlabelled = ImageSet.from_arrays(images, layout="NCHW")
    labelled = ImageSet.from_arrays(images, said(net, images), layout="NCHW")
    first, second = (Adversarial().make(given, classifier=Classifier(net)) for given in (unlabelled, labelled))
    np.testing.assert_array_equal(first.materialise(), second.materialise())
    assert (first.labels == -1).all()
    assert (first.columns["epsilon"] > 0).any() and not (first.columns["epsilon"] == 0).any()
    mixed = np.where(np.arange(N) % 2, said(net, images), -1)
    third = Adversarial().make(ImageSet.from_arrays(images, mixed, layout="NCHW"), classifier=Classifier(net))
    np.testing.assert_array_equal(third.materialise(), first.materialise())


def test_a_set_survives_a_file(net: nn.Module, nominal: ImageSet, tmp_path: Path) -> None:
    made = Adversarial(epsilons=[0.05]).make(nominal, classifier=Classifier(net))
    save_npz(made, tmp_path / "made.npz")
    read = load_images(tmp_path / "made.npz")
    assert read.fingerprint == made.fingerprint  # not rounded to 8 bits, which would undo small changes
    for name, values in made.columns.items():
        np.testing.assert_array_equal(read.columns[name], values)


def test_a_limit_attacks_a_random_part(net: nn.Module, nominal: ImageSet) -> None:
    made = Adversarial(["fgsm"], limit=5).make(nominal, classifier=Classifier(net), seed=3)
    np.testing.assert_array_equal(made.labels, nominal.head(5, seed=3).labels)


def test_progress_goes_up_to_the_number_of_images(net: nn.Module, nominal: ImageSet) -> None:
    seen: list[tuple[int, int]] = []

    class Watch:
        @contextmanager
        def task(self, label: str, total: int) -> Iterator[Advance]:
            yield lambda done, total: seen.append((done, total))

    Adversarial(chunk_size=5).make(nominal, classifier=Classifier(net), progress=Watch())
    assert seen == sorted(seen)
    assert seen[-1] == (N, N) and {total for _, total in seen} == {N}
    assert len(seen) > 8


def test_fewer_images_than_attacks_and_colour_will_do() -> None:
    model = seeded(lambda: nn.Sequential(nn.Flatten(), nn.Linear(75, 2)))
    images = np.random.default_rng(0).random((3, 3, 5, 5), dtype=np.float32)
    given = ImageSet.from_arrays(images, [0, 1, 1], layout="NCHW")
    made = Adversarial().make(given, classifier=Classifier(model))
    assert made.shape == (3, 5, 5)
    assert len(set(made.columns["attack"])) == 3


def test_names_and_shortcuts() -> None:
    assert {"adversarial", "adversarial:pgd"} <= set(names())
    whole, one = make_all(["adversarial", "adversarial:pgd"])
    assert isinstance(whole, Adversarial) and isinstance(one, Adversarial)
    assert (whole.name, whole.attacks, whole.epsilons) == ("adversarial", ATTACKS, PAPER_GRID)
    assert (one.name, one.attacks, one.kind) == ("adversarial_pgd", ("pgd",), "adversarial")


def test_bad_settings_are_refused(net: nn.Module, nominal: ImageSet) -> None:
    with pytest.raises(UserError, match="'adversarial' attacks a classifier, but none was given"):
        Adversarial().make(nominal)
    with pytest.raises(UserError, match="There is no attack 'fsgm'; did you mean 'fgsm'"):
        Adversarial(["fsgm"])
    with pytest.raises(UserError, match=r"at least one; none was given"):
        Adversarial([])
    with pytest.raises(UserError, match="Each attack is named once"):
        Adversarial(["pgd", "pgd"])
    for grid in ([], [-0.1], [2], [float("nan")]):
        with pytest.raises(UserError, match="between 0 and 1"):
            Adversarial(epsilons=grid)
    with pytest.raises(UserError, match="chunk size is 0"):
        Adversarial(chunk_size=0)


def test_without_foolbox_the_message_names_the_extra(
    net: nn.Module, nominal: ImageSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "foolbox", None)
    for classifier in (Classifier(net), black_box(net)):
        with pytest.raises(MissingExtra, match=r"'foolbox'.*secondguess\[attacks\]"):
            Adversarial().make(nominal, classifier=classifier)
