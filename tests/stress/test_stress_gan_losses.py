from __future__ import annotations

import numpy as np
import pytest
import torch

from secondguess import UserError
from secondguess.stress.ambiguous.gan_losses import Target, ambiguity_loss, confusion, guarded, target_distance

HALF = torch.tensor([[0.5, 0.5]])


def members(*probabilities: float) -> torch.Tensor:
    p = torch.tensor(probabilities, dtype=torch.float64)[:, None]
    return torch.stack([p, 1 - p], dim=-1)


@pytest.mark.parametrize(
    ("variance", "p", "expected"),
    [
        (0.1, 0.5, -1.15129),
        (0.1, 0.6, -1.10129),
        (0.1, 0.75, -0.83879),
        (0.1, 1.0, 0.09871),
        (0.01, 0.5, -2.30259),
        (0.01, 0.6, -1.80258),
        (0.01, 0.75, 0.82241),
        (0.01, 1.0, 10.19741),
    ],
)
def test_the_gaussian_likelihood_is_the_published_one(variance, p, expected):
    for name in ("gaussian", "agreement"):
        assert ambiguity_loss(name, members(p), HALF, variance) == pytest.approx(expected, abs=2e-5)
    torch_loss = torch.nn.GaussianNLLLoss()(torch.tensor([p]), torch.tensor([0.5]), torch.tensor([variance]))
    assert ambiguity_loss("gaussian", members(p), HALF, variance) == pytest.approx(float(torch_loss), abs=1e-6)


def test_its_gradient_is_the_distance_over_the_variance():
    p = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    both = torch.stack([p, 1 - p]).reshape(1, 1, 2)
    (gradient,) = torch.autograd.grad(ambiguity_loss("gaussian", both, HALF, 0.1), p)
    assert gradient == pytest.approx(2.0)


def test_only_agreement_sees_a_quarrel():
    quarrel, doubt = members(*[0.0] * 25, *[1.0] * 25), members(*[0.5] * 50)
    for name in ("gaussian", "confusion"):
        assert ambiguity_loss(name, quarrel, HALF, 0.1) == pytest.approx(float(ambiguity_loss(name, doubt, HALF, 0.1)))
    difference = ambiguity_loss("agreement", quarrel, HALF, 0.1) - ambiguity_loss("agreement", doubt, HALF, 0.1)
    assert difference == pytest.approx(0.25 / 0.2)


def test_agreement_is_the_gaussian_plus_the_variance_of_the_members():
    p = torch.rand(9, 20, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    everybody, r = torch.stack([p, 1 - p], dim=-1), torch.tensor([[0.3, 0.7]])
    gaussian, agreement = (ambiguity_loss(name, everybody, r, 0.05) for name in ("gaussian", "agreement"))
    assert agreement - gaussian == pytest.approx(float(p.var(dim=0, correction=0).mean() / 0.1))


def test_confusion_distance_is_that_of_the_mean():
    assert confusion(members(0.9, 0.5), HALF) == pytest.approx(0.2)
    assert ambiguity_loss("confusion", members(0.0), HALF, 0.1) == pytest.approx(0.5)
    three = torch.tensor([[[1.0, 0.0, 0.0]]])
    assert confusion(three, torch.full((1, 3), 1 / 3)) == pytest.approx(2 / 3)
    np.testing.assert_allclose(target_distance(np.array([[0.7, 0.3]]), np.array([[0.5, 0.5]])), [0.2])


def test_targets():
    assert Target.parse(0.5, 2) == Target(2, (0.5, 0.5))
    assert Target.parse("0.25", 2).probabilities == (0.25, 0.75)
    assert Target.parse(0.5, 4).probabilities == (0.25,) * 4
    assert Target.parse([0.2, 0.3, 0.5], 3).probabilities == (0.2, 0.3, 0.5)
    assert Target.parse("dial", 3).probabilities is None
    assert (Target.parse("dial", 2).inputs, Target.parse("dial", 3).inputs) == (1, 3)


@pytest.mark.parametrize("classes", [2, 3])
def test_a_dial_draws_another_target_for_every_image(classes):
    drawn = Target(classes, None).draw((4, 2000), torch.Generator().manual_seed(0))
    assert drawn.shape == (4, 2000, classes)
    torch.testing.assert_close(drawn.sum(dim=-1), torch.ones(4, 2000))
    torch.testing.assert_close(drawn.mean(dim=(0, 1)), torch.full((classes,), 1 / classes), atol=0.02, rtol=0)
    assert drawn.std() > 0.15 and drawn.min() >= 0


@pytest.mark.parametrize("r", [1.5, -0.1, "half", [0.5, 0.6], [0.1, 0.2, 0.7]])
def test_bad_targets(r):
    with pytest.raises(UserError, match="r is"):
        Target.parse(r, 2)


def gradients(seed: int = 0) -> list[torch.Tensor]:
    """Of realism, of ambiguity, and the images."""
    return list(torch.randn(3, 5, 2, 4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)))


def test_a_guarded_step_never_changes_brightness_or_contrast_for_the_sake_of_doubt():
    realism, ambiguity, images = gradients()
    wish = (guarded(realism, ambiguity, images, alpha=1e9) - realism).flatten(1)
    flat = images.flatten(1)
    for direction in (torch.ones_like(flat), flat):
        torch.testing.assert_close(
            (wish * direction).sum(dim=1), torch.zeros(5, dtype=torch.float64), atol=1e-9, rtol=0
        )
    # What is left is the nearest such gradient: least squares without the two directions, image by image.
    for index in range(5):
        basis = torch.stack([torch.ones(32, dtype=torch.float64), flat[index]], dim=1)
        asked = ambiguity[index].flatten()
        fitted = basis @ torch.linalg.lstsq(basis, asked[:, None]).solution[:, 0]
        torch.testing.assert_close(wish[index], asked - fitted)


def test_a_guarded_step_lets_no_image_shout_down_realism():
    realism, ambiguity, images = gradients()
    loudest = float(realism.flatten(1).norm(dim=1).mean())
    for alpha in (0.0, 0.5, 2.0):
        wish = guarded(realism, 1000 * ambiguity, images, alpha) - realism
        torch.testing.assert_close(wish.flatten(1).norm(dim=1), torch.full((5,), alpha * loudest, dtype=torch.float64))
    small = guarded(realism, 1e-6 * ambiguity, images, 1.0) - realism
    assert 0 < small.flatten(1).norm(dim=1).max() < 1e-4
    plain = guarded(realism, ambiguity, torch.zeros_like(images), 1.0)
    assert torch.isfinite(plain).all()
