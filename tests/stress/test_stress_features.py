from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from secondguess import Classifier, Dataset, UserError, load
from secondguess.images import ImageSet
from secondguess.metrics import frechet_distance, kernel_distance, kernel_distance_interval
from secondguess.stress.ambiguous import features, train_extractor


@pytest.fixture(scope="module")
def digits() -> Dataset:
    return load("digits")


@pytest.fixture(scope="module")
def extractor(digits: Dataset) -> Classifier:
    torch.set_num_threads(1)
    return train_extractor(digits.train, epochs=3, device="cpu")


def test_features_are_what_the_last_layer_sees(extractor: Classifier, digits: Dataset) -> None:
    images = digits.test.head(50)
    found = features(images, extractor)
    assert found.shape[0] == 50 and found.dtype == np.float64
    last = [layer for layer in extractor.backend.module.modules() if isinstance(layer, torch.nn.Linear)][-1]
    with torch.no_grad():
        logits = last(torch.from_numpy(found.astype(np.float32)))
    assert logits.softmax(dim=1).numpy() == pytest.approx(extractor.predict(images), abs=1e-5)


def test_real_images_are_nearer_to_real_ones_than_noise_is(extractor: Classifier, digits: Dataset) -> None:
    first, second = digits.test.split(0.5, seed=0)
    noise = ImageSet.from_arrays(np.random.default_rng(0).random((200, 1, 8, 8), dtype=np.float32), layout="NCHW")
    real, other, wrong = (features(part, extractor) for part in (first, second, noise))
    assert frechet_distance(real, other) < 0.1 * frechet_distance(real, wrong)
    assert kernel_distance(real, other) < kernel_distance_interval(real, wrong).low


def test_the_default_trains_on_the_data_set(digits: Dataset) -> None:
    train = digits.train.head(120)
    once, again = (features(digits.test.head(9), train=train, seed=4, device="cpu") for _ in range(2))
    assert np.array_equal(once, again)
    with pytest.raises(UserError, match="give them with train"):
        features(digits.test)


def test_a_larger_image_gets_84_features() -> None:
    rng = np.random.default_rng(1)
    images = ImageSet.from_arrays(
        rng.random((40, 3, 16, 20), dtype=np.float32), np.arange(40) % 3 - 1, layout="NCHW", class_names=["a", "b"]
    )
    assert features(images, train=images, device="cpu").shape == (40, 84)


def test_a_function_extracts_batch_by_batch(digits: Dataset) -> None:
    images = digits.test
    found = features(images, lambda part: part.reshape(len(part), -1))
    assert np.array_equal(found, images.materialise().reshape(len(images), -1).astype(np.float64))
    with pytest.raises(UserError, match="one row for each image"):
        features(images, lambda part: part)
    with pytest.raises(UserError, match="one row for each image"):
        features(images, lambda part: part.reshape(len(part), -1)[:1])


def test_inception_is_never_downloaded(digits: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    with pytest.raises(UserError, match=r"weights are not at .*weights-inception-2015-12-05-6726825d\.pth"):
        features(digits.test, "inception")
    with pytest.raises(UserError, match=r"weights are not at nowhere\.pth"):
        features(digits.test, "inception:nowhere.pth")


def test_inception_gets_eight_bits_and_three_channels(
    digits: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    class Network(torch.nn.Module):
        def __init__(self, name: str, layers: list[str], weights: str) -> None:
            super().__init__()
            seen.append((name, layers, Path(weights).name))

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            assert images.dtype == torch.uint8 and images.shape[1:] == (3, 8, 8)
            return images.flatten(1)[:, :5].float()

    monkeypatch.setitem(sys.modules, "torchmetrics.image.fid", SimpleNamespace(NoTrainInceptionV3=Network))
    monkeypatch.setitem(sys.modules, "torch_fidelity", SimpleNamespace())
    file = tmp_path / "weights.pth"
    file.touch()
    found = features(digits.test.head(4), f"inception:{file}", device="cpu")
    assert found.shape == (4, 5) and seen == [("inception-v3-compat", ["2048"], "weights.pth")]
    assert np.array_equal(found, np.rint(digits.test.head(4).materialise()[:, 0].reshape(4, -1)[:, :5] * 255))


def test_mistakes_are_explained(digits: Dataset) -> None:
    with pytest.raises(UserError, match="no extractor 'dino'"):
        features(digits.test, "dino")
    with pytest.raises(UserError, match="fewer than two classes"):
        train_extractor(digits.train.take(digits.train.labels == 3))
