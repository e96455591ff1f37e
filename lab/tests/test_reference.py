"""The networks that photographs are classified with: shapes, sizes, and a penultimate layer that is rectified."""

from __future__ import annotations

import pytest
import torch

from secondguess_lab.reference import NETWORKS, build

PARAMETERS = {"resnet20": 272_474, "resnet18": 11_689_512}  # He et al.: .27 M; the usual ImageNet one: 11.69 M


@pytest.mark.parametrize("name", sorted(set(NETWORKS) - {"resnet18"}))
def test_any_size_of_image(name: str) -> None:
    model = build(name, 7).eval()
    for size in (28, 32, 64):
        assert model(torch.rand(2, 3, size, size)).shape == (2, 7)


@pytest.mark.parametrize("name", ["resnet20", "vgg", "densenet22"])
def test_penultimate_activations_are_rectified(name: str) -> None:
    model = build(name, 10).eval()
    penultimate = model[:-1](torch.randn(4, 3, 32, 32))
    assert penultimate.ndim == 2
    assert penultimate.min() >= 0


@pytest.mark.parametrize(("name", "classes"), [("resnet20", 10), ("resnet18", 1000)])
def test_as_many_parameters_as_published(name: str, classes: int) -> None:
    count = sum(parameter.numel() for parameter in build(name, classes).parameters())
    # The 1x1 projections of resnet20 are the paper's option B, about 2,700 more than its option A.
    assert count == pytest.approx(PARAMETERS[name], rel=0.02)
