"""Models of other libraries describe themselves.

transformers is installed, and its own pipeline is the referee; timm and torchvision are played by stand-ins with the
attributes that their documentation names.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import secondguess as sg
from secondguess.errors import UserError
from secondguess.model import of_weights

SIDE = 16


def vit(**labels: Any) -> nn.Module:
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
    torch.manual_seed(0)
    config = transformers.ViTConfig(image_size=SIDE, patch_size=8, **sizes, **labels)
    model: nn.Module = transformers.ViTForImageClassification(config).eval()
    return model


def test_a_pipeline_gives_the_scores_that_it_gives_itself() -> None:
    transformers = pytest.importorskip("transformers")
    mean, std = [0.2, 0.3, 0.4], [0.5, 0.6, 0.7]
    processor = transformers.ViTImageProcessor(size={"height": SIDE, "width": SIDE}, image_mean=mean, image_std=std)
    names = {0: "cat", 1: "dog", 2: "fox"}
    pipeline = SimpleNamespace(model=vit(id2label=names), image_processor=processor, task="image-classification")
    classifier = sg.Classifier.open(pipeline, device="cpu")
    assert classifier.class_names == ("cat", "dog", "fox")
    assert classifier.input_shape == (3, SIDE, SIDE)
    assert (classifier.description.mean, classifier.description.std) == (tuple(mean), tuple(std))
    pixels = np.random.default_rng(0).integers(0, 256, (2, SIDE, SIDE, 3), dtype=np.uint8)
    with torch.no_grad():
        given = processor([Image.fromarray(one) for one in pixels], return_tensors="pt")
        expected = pipeline.model(**given).logits.softmax(dim=1).numpy()
    assert classifier.predict(pixels) == pytest.approx(expected, abs=1e-6)
    # what the user says goes before what the pipeline says
    assert sg.Classifier.open(pipeline, classes=["a", "b", "c"]).class_names == ("a", "b", "c")
    pipeline.task = "image-to-text"
    with pytest.raises(UserError, match="made for image-to-text"):
        sg.Classifier.open(pipeline)


def test_a_transformers_model_knows_its_names_but_no_normalisation() -> None:
    classifier = sg.Classifier.open(vit(id2label={0: "cat", 1: "dog"}), device="cpu")
    assert classifier.class_names == ("cat", "dog") and classifier.description.mean == (0.0,)
    assert sg.Classifier.open(vit(num_labels=4), device="cpu").class_names == ()  # LABEL_0 and so on are no names


def small() -> nn.Module:
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 2))


def test_a_timm_model_describes_itself() -> None:
    model = small()
    card = {"input_size": (3, 8, 10), "mean": (0.4, 0.5, 0.6), "std": (0.1, 0.2, 0.3), "label_names": ["cat", "dog"]}
    model.pretrained_cfg, model.num_classes = card, 2  # type: ignore[assignment]
    classifier = sg.Classifier.open(model, device="cpu")
    assert classifier.input_shape == (3, 8, 10) and classifier.class_names == ("cat", "dog")
    images = np.random.default_rng(0).random((2, 3, 8, 10), dtype=np.float32)
    shaped = (np.array(card["mean"]), np.array(card["std"]))
    fed = torch.from_numpy((images - shaped[0][:, None, None]) / shaped[1][:, None, None]).float()
    with torch.no_grad():
        assert classifier.predict(images) == pytest.approx(model(fed).softmax(dim=1).numpy(), abs=1e-6)
    model.num_classes = 5  # type: ignore[assignment]
    assert sg.Classifier.open(model, device="cpu").class_names == ()  # the names are those of another head


def test_weights_of_torchvision_are_arguments() -> None:
    transforms = SimpleNamespace(crop_size=[8], mean=[0.4, 0.5, 0.6], std=[0.1, 0.2, 0.3])
    weights = SimpleNamespace(meta={"categories": ["cat", "dog"]}, transforms=lambda: transforms)
    classifier = sg.Classifier.open(small(), device="cpu", **of_weights(weights))
    assert classifier.class_names == ("cat", "dog") and classifier.input_shape == (3, 8, 8)
    assert classifier.description.resize == "crop"
    with pytest.raises(UserError, match="no entry of torchvision's weights"):
        of_weights("DEFAULT")
