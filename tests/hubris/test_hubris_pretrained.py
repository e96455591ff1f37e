from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from secondguess import Classifier, UserError, load, train
from secondguess.zoo import pretrained
from secondguess.zoo.pretrained import convnext, vit

transformers = pytest.importorskip("transformers")

BUILDERS = [convnext, vit]


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.mark.parametrize("build", BUILDERS)
@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 40), (1, 9, 9)])
def test_small_networks_give_logits_for_any_shape(build: Callable[..., nn.Module], shape: tuple[int, int, int]) -> None:
    model = build(num_classes=7, input_shape=shape, seed=1).eval()
    images = torch.rand(3, *shape)
    with torch.no_grad():
        logits = model(images)
        assert logits.shape == (3, 7)
        assert torch.allclose(logits[:1], model(images[:1]), atol=1e-5)
        assert torch.equal(logits, build(num_classes=7, input_shape=shape, seed=1).eval()(images))
        assert not torch.equal(logits, build(num_classes=7, input_shape=shape, seed=2).eval()(images))


@pytest.mark.parametrize("build", BUILDERS)
def test_the_global_random_state_is_left_alone(build: Callable[..., nn.Module]) -> None:
    before = torch.get_rng_state()
    build(seed=3)
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("build", BUILDERS)
def test_they_learn(build: Callable[..., nn.Module]) -> None:
    digits = load("digits").train
    two = digits.take(np.isin(digits.labels, (0, 1))).head(160)
    model = build(num_classes=2, input_shape=two.shape, seed=0)
    history = train(model, two.images, two.labels, epochs=3, batch_size=16, lr=1e-3, device="cpu")
    assert history.column("loss")[-1] < 0.5 * history.column("loss")[0]
    observed = Classifier(model, device="cpu", output_kind="logits").predict(two)
    assert (observed.argmax(axis=1) == two.labels).mean() > 0.9


@pytest.mark.parametrize(("build", "kind"), [(convnext, "ConvNext"), (vit, "ViT")])
def test_given_weights_are_used_with_a_new_last_layer(
    build: Callable[..., nn.Module], kind: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    source = build(num_classes=3, input_shape=(3, 16, 16), seed=5)
    with pretrained._quiet(transformers):
        source.network.save_pretrained(tmp_path)
    said = {"image_mean": [0.1, 0.2, 0.3], "image_std": [0.5, 0.6, 0.7], "size": {"height": 16, "width": 16}}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(said))
    capfd.readouterr()
    tuned = build(num_classes=2, input_shape=(1, 8, 8), weights=tmp_path, seed=0).eval()
    assert capfd.readouterr().err == ""
    kept = dict(source.named_parameters())
    for name, value in tuned.named_parameters():
        assert "classifier" in name or torch.equal(value, kept[name]), name
    assert (tuned.size, tuned.channels, tuned.mean.flatten().tolist()) == (16, 3, pytest.approx([0.1, 0.2, 0.3]))
    grey = torch.rand(2, 1, 8, 8)
    colour = nn.functional.interpolate(grey, (16, 16), mode="bilinear").repeat(1, 3, 1, 1)
    normal = (colour - torch.tensor([0.1, 0.2, 0.3])[:, None, None]) / torch.tensor([0.5, 0.6, 0.7])[:, None, None]
    with torch.no_grad():
        assert torch.allclose(tuned(grey), tuned.network(pixel_values=normal).logits, atol=1e-5)
    other = vit if build is convnext else convnext
    with pytest.raises(UserError, match="holds a model of the type"):
        other(weights=tmp_path)


def test_nothing_is_downloaded_silently(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr("socket.socket.connect", lambda *args: asked.append(args))
    with pytest.raises(UserError, match="nothing is downloaded unless download=True"):
        convnext(weights="facebook/convnext-tiny-224")
    with pytest.raises(UserError, match=r"give a folder with config.json and model.safetensors"):
        vit(weights=tmp_path)
    assert asked == []


@pytest.mark.parametrize("options", [{"num_classes": 0}, {"input_shape": (2, 28, 28)}, {"input_shape": (1, 4, 28)}])
def test_impossible_sizes_are_told(options: dict[str, object]) -> None:
    with pytest.raises(UserError, match="1 or 3 channels and 8 pixels per side are needed"):
        vit(**options)


def test_the_recipes_are_arguments_of_train() -> None:
    assert pretrained.FINE_TUNING.lr < pretrained.FROM_SCRATCH.lr
    digits = load("digits").train.head(60)
    model = vit(num_classes=10, input_shape=digits.shape)
    settings = pretrained.FROM_SCRATCH.as_kwargs() | {"epochs": 1}
    assert len(train(model, digits.images, digits.labels, **settings, device="cpu").rows) == 1


def test_the_preprocessing_of_cached_weights_is_found_by_their_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "preprocessor_config.json").write_text(json.dumps({"image_mean": [0.5] * 3, "image_std": [0.5] * 3}))
    asked = []

    def cached_file(name: str, file: str, **options: object) -> str:
        asked.append((name, options))
        return str(tmp_path / file)

    monkeypatch.setattr(transformers.utils, "cached_file", cached_file)
    found = pretrained._beside(transformers, "google/vit-base-patch16-224", {"local_files_only": True})
    mean, std, size = pretrained._preprocessing(found, transformers.ViTConfig())
    assert (mean, std, size) == ((0.5,) * 3, (0.5,) * 3, 224)
    assert asked == [("google/vit-base-patch16-224", {"local_files_only": True})]
    monkeypatch.undo()
    nothing = pretrained._beside(transformers, str(tmp_path / "elsewhere"), {"local_files_only": True})
    assert nothing is None
    assert pretrained._preprocessing(nothing, transformers.ViTConfig())[0] == pretrained.IMAGENET_MEAN
