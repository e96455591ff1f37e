from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

from secondguess import Classifier, Needs, UserError

Floats = NDArray[np.float32]


class Ending(nn.Module):
    """A linear model of 1x8x8 images followed by a function."""

    def __init__(self, end: Callable[[torch.Tensor], torch.Tensor], outputs: int = 3, scale: float = 1.0) -> None:
        super().__init__()
        self.linear = nn.Linear(64, outputs)
        self.end, self.scale = end, scale
        with torch.no_grad():
            self.linear.weight.copy_(torch.linspace(-1, 1, 64 * outputs).reshape(outputs, 64).sin())

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.end(self.logits(images))

    def logits(self, images: torch.Tensor) -> torch.Tensor:
        return self.scale * self.linear(images.flatten(1))


def pixels(images: Floats) -> torch.Tensor:
    return torch.from_numpy(images).requires_grad_()


def test_logits_are_those_that_are_observed(cnn: nn.Module, images: Floats) -> None:
    classifier = Classifier(cnn, mean=0.3, std=0.2)
    logits = classifier.differentiable()(torch.from_numpy(images))
    observed = classifier.observe(images, Needs(logits=True)).logits
    np.testing.assert_allclose(logits.detach().numpy(), observed, atol=1e-5)


def test_gradients_are_those_of_the_pixels_before_normalisation(cnn: nn.Module, images: Floats) -> None:
    given = pixels(images)
    Classifier(cnn, mean=[0.3], std=[0.2]).differentiable()(given).sum().backward()
    by_hand = pixels(images)
    cnn((by_hand - 0.3) / 0.2).sum().backward()
    assert given.grad is not None and by_hand.grad is not None
    torch.testing.assert_close(given.grad, by_hand.grad)
    assert given.grad.abs().max() > 0


def test_the_model_is_left_as_it_was(make_cnn: Callable[..., nn.Module], images: Floats) -> None:
    model = make_cnn()
    model.train()
    model.bn.eval()
    model.conv.bias.requires_grad_(False)
    flags = [module.training for module in model.modules()]
    learning = [weight.requires_grad for weight in model.parameters()]
    statistics = model.bn.running_mean.clone()
    module = Classifier(model).differentiable()
    assert not module.training
    first, second = module(pixels(images)), module(pixels(images))
    first.sum().backward()
    torch.testing.assert_close(first, second)  # no dropout
    assert [module.training for module in model.modules()] == flags
    assert [weight.requires_grad for weight in model.parameters()] == learning
    assert all(weight.grad is None for weight in model.parameters())
    torch.testing.assert_close(model.bn.running_mean, statistics)
    assert not list(module.parameters())


@pytest.mark.parametrize(
    "end",
    [
        nn.Softmax(dim=1),
        lambda x: functional.softmax(x, dim=1),
        lambda x: torch.softmax(x, 1),
        lambda x: x.softmax(-1),
    ],
    ids=["module", "functional", "torch", "method"],
)
def test_a_final_softmax_is_seen_through(end: Callable[[torch.Tensor], torch.Tensor], images: Floats) -> None:
    model = Ending(end, scale=1000.0)
    classifier = Classifier(model)
    assert (classifier.predict(images).max(axis=1) == 1).all()  # saturated: its own gradient is exactly zero
    plain, seen = pixels(images), pixels(images)
    model(plain).max(dim=1).values.sum().backward()
    assert plain.grad is not None and not plain.grad.any()
    logits = classifier.differentiable()(seen)
    torch.testing.assert_close(logits, model.logits(seen))
    functional.cross_entropy(logits, torch.zeros(len(images), dtype=torch.int64)).backward()
    assert seen.grad is not None and seen.grad.any()


def test_a_softmax_within_the_model_is_none_of_its_business(images: Floats) -> None:
    model = Ending(lambda x: 5 * torch.softmax(x, 1) - 2)
    given = torch.from_numpy(images)
    torch.testing.assert_close(Classifier(model).differentiable()(given), model(given))


def test_other_probabilities_become_logarithms(images: Floats) -> None:
    model = Ending(lambda x: x.exp() / x.exp().sum(dim=1, keepdim=True))
    given = torch.from_numpy(images)
    logits = Classifier(model).differentiable()(given)
    torch.testing.assert_close(logits.softmax(1), model(given))
    certain = Ending(lambda x: functional.one_hot(x.argmax(1), 3).float())
    assert torch.isfinite(Classifier(certain).differentiable()(given)).all()


@pytest.mark.parametrize("end", [nn.Identity(), nn.Sigmoid(), lambda x: 1 / (1 + (-x).exp())], ids=["logit", "σ", "p"])
def test_a_single_score_is_the_second_of_two_classes(
    end: Callable[[torch.Tensor], torch.Tensor], images: Floats
) -> None:
    output = "logits" if isinstance(end, nn.Identity) else "probabilities"
    classifier = Classifier(Ending(end, outputs=1), output_kind=output)
    logits = classifier.differentiable()(torch.from_numpy(images))
    assert logits.shape == (len(images), 2)
    np.testing.assert_allclose(logits.softmax(1).detach().numpy(), classifier.predict(images), atol=1e-5)


def test_what_is_declared_as_logits_is_taken_at_its_word(images: Floats) -> None:
    model = Ending(nn.Softmax(dim=1))
    given = torch.from_numpy(images)
    torch.testing.assert_close(Classifier(model, output_kind="logits").differentiable()(given), model(given))


@pytest.mark.parametrize("batch", [None, 4], ids=["any batch", "batches of 4"])
def test_an_exported_program_has_gradients(batch: int | None, images: Floats, tmp_path: Path) -> None:
    model = Ending(nn.Softmax(dim=1)).eval()
    shapes = None if batch else ({0: torch.export.Dim("n")},)
    program = torch.export.export(model, (torch.from_numpy(images[: batch or 5]),), dynamic_shapes=shapes)
    torch.export.save(program, tmp_path / "m.pt2")
    given, by_hand = pixels(images), pixels(images)
    logits = Classifier(tmp_path / "m.pt2").differentiable()(given).log_softmax(1)
    expected = model.logits(by_hand).log_softmax(1)
    torch.testing.assert_close(logits, expected)
    (logits**2).sum().backward()
    (expected**2).sum().backward()
    assert given.grad is not None and by_hand.grad is not None
    torch.testing.assert_close(given.grad, by_hand.grad)


def test_a_callable_has_no_gradients(images: Floats) -> None:
    classifier = Classifier(lambda batch: np.full((len(batch), 2), 0.5), name="endpoint")
    with pytest.raises(UserError, match=r"Following gradients needs gradients, but endpoint .* use a torch module"):
        classifier.differentiable()
    with pytest.raises(UserError, match="A callable has no gradients"):
        classifier.backend.differentiable(torch.from_numpy(images))
