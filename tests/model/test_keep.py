"""Classes of data that are not those of the model: some of them, other names, and a softmax that is restricted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.special import softmax
from torch import nn

import secondguess as sg
from secondguess import Classifier, ImageSet, UserError
from secondguess.model.agreement import agree, relabelled
from secondguess.model.description import Description

NAMES = ("cat", "dog", "eel", "fox")


@pytest.fixture(scope="module")
def net() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 4)).eval()


def photos(names: tuple[str, ...], per_class: int = 6, seed: int = 0) -> ImageSet:
    count = per_class * len(names)
    pixels = np.random.default_rng(seed).random((count, 1, 8, 8), dtype=np.float32)
    return ImageSet.from_arrays(pixels, np.arange(count) % len(names), class_names=names, name="photos")


def logits_of(net: nn.Module, images: ImageSet) -> np.ndarray:
    with torch.no_grad():
        return net(torch.from_numpy(images.materialise())).numpy().astype(np.float64)


def test_a_softmax_over_some_classes_is_the_softmax_of_their_logits(net: nn.Module) -> None:
    images = photos(("dog", "cat"))
    kept = Classifier.open(net, classes=NAMES, keep=["fox", "dog"], device="cpu")
    assert kept.class_names == ("dog", "fox"), "in the model's order"
    seen = kept.observe(images, sg.Needs(logits=True))
    np.testing.assert_allclose(seen.probabilities, softmax(logits_of(net, images)[:, [1, 3]], axis=1), atol=1e-7)
    assert seen.logits.shape == (12, 2) and seen.class_names == ("dog", "fox")
    few = kept.session().observe(images.images[:3])
    np.testing.assert_allclose(few.probabilities, seen.probabilities[:3], atol=1e-6)
    attacked = kept.differentiable()(torch.from_numpy(images.images[:3])).detach().numpy()
    np.testing.assert_allclose(attacked, logits_of(net, images)[:3, [1, 3]], atol=1e-5)


def test_probabilities_are_divided_by_their_sum(net: nn.Module) -> None:
    images = photos(("dog", "cat"))
    whole = nn.Sequential(net, nn.Softmax(1)).eval()
    kept = Classifier.open(whole, classes=NAMES, keep=["cat", "eel"], device="cpu")
    expected = softmax(logits_of(net, images)[:, [0, 2]], axis=1)
    np.testing.assert_allclose(kept.observe(images).probabilities, expected, atol=1e-6)
    zeros = Classifier(lambda x: np.eye(4)[np.full(len(x), 3)], class_names=NAMES, output_kind="probabilities")
    assert zeros.keeping(["cat", "dog"]).observe(images).probabilities == pytest.approx(0.5)


def test_the_cache_knows_what_was_kept(net: nn.Module, tmp_path: Path) -> None:
    images = photos(("dog", "cat"))
    all_of_them = Classifier.open(net, classes=NAMES, cache=tmp_path, device="cpu")
    some = all_of_them.keeping(["cat", "dog"])
    assert all_of_them.observe(images).num_classes == 4 and some.observe(images).num_classes == 2
    assert some.observe(images).num_classes == 2 and some.fingerprint != all_of_them.fingerprint


def test_the_classes_that_are_present(net: nn.Module) -> None:
    test, train = photos(("fox", "cat")), photos(("fox", "dog", "cat"), seed=1)
    kept, tested, trained = agree(Classifier.open(net, classes=NAMES, keep="present", device="cpu"), test, train)
    assert kept.class_names == tested.class_names == trained.class_names == ("cat", "fox")
    assert len(tested) == 12 and len(trained) == 12, "training images of other classes are left out"
    np.testing.assert_array_equal(tested.labels, 1 - test.labels)
    all_of_them, tested, _ = agree(Classifier.open(net, classes=NAMES, device="cpu"), test)
    assert all_of_them.class_names == NAMES and set(tested.labels) == {0, 3}, "judged among all classes unless asked"


def test_names_of_data_become_those_of_the_model() -> None:
    images = photos(("kitten", "puppy", "tabby"), per_class=2)
    shares = np.tile([0.5, 0.2, 0.3], (6, 1))
    soft = ImageSet.from_arrays(images.images[:], soft_labels=shares, class_names=images.class_names)
    mapping = {"kitten": "cat", "tabby": "cat", "puppy": "dog"}
    named = relabelled(images, NAMES, mapping)
    assert named.class_names == NAMES and named.labels.tolist() == [0, 1, 0, 0, 1, 0]
    np.testing.assert_allclose(relabelled(soft, NAMES, mapping).soft_labels[0], [0.8, 0.2, 0, 0])
    with pytest.raises(UserError, match=r"has the class 'kitten'.*\[names\] kitten = "):
        relabelled(images, NAMES)


def test_a_file_holds_both(net: nn.Module, tmp_path: Path) -> None:
    known = Description(path=Path("m.onnx"), classes=NAMES, keep=("cat", "dog"), names={"kitten": "cat"})
    path = tmp_path / "model.toml"
    path.write_text(known.to_toml())
    again = Description.read(path)
    assert again.keep == ("cat", "dog") and again.names == {"kitten": "cat"}
    path.write_text('path = "m.onnx"\n[output]\nkeep = "present"\n')
    assert Description.read(path).keep == ("present",)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"classes": NAMES, "keep": ["cat", "cow"]}, "'cow' is to be kept, but the model has no such class"),
        ({"classes": NAMES, "keep": ["cat"]}, "a model needs two classes"),
        ({"classes": NAMES, "keep": 3}, "keep is 3"),
        ({"names": {"kitten": 1}}, "a table of classes"),
    ],
)
def test_bad_input(net: nn.Module, changes: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        Classifier.open(net, device="cpu", **changes)


def test_kept_classes_need_names(net: nn.Module) -> None:
    with pytest.raises(UserError, match="its classes have no names"):
        Classifier.open(net, keep=["cat", "dog"], device="cpu").predict(photos(("dog", "cat")))


def test_an_audit_of_two_of_four_classes(net: nn.Module) -> None:
    test = photos(("fox", "cat"), per_class=30)
    options = {"stress": [], "supervisors": ["entropy"], "sections": ["overview", "accuracy"]}
    among_all = sg.audit(Classifier.open(net, classes=NAMES, device="cpu"), test, **options)
    among_two = sg.audit(Classifier.open(net, classes=NAMES, keep="present", device="cpu"), test, **options)
    assert among_two.numbers["accuracy.test"].value >= among_all.numbers["accuracy.test"].value
    assert "of 2 of the model&#39;s 4 classes" in str(among_all.sections[0].html)
    assert "--keep present" not in str(among_two.sections[0].html)
    expected = logits_of(net, test)[:, [0, 3]].argmax(axis=1) == 1 - test.labels
    assert among_two.numbers["accuracy.test"].value == pytest.approx(expected.mean())
