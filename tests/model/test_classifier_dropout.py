from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

from secondguess import Classifier, Needs, UserError


def samples(model: nn.Module, images: np.ndarray, count: int = 8, seed: int = 0, **options: object) -> np.ndarray:
    seen = Classifier(model, **options).observe(images, Needs(samples=count), seed=seed)
    assert seen.samples is not None
    return seen.samples


def test_samples_are_probabilities_that_differ(cnn: nn.Module, images: np.ndarray) -> None:
    drawn = samples(cnn, images)
    assert drawn.shape == (len(images), 8, 3)
    assert drawn.dtype == np.float32
    np.testing.assert_allclose(drawn.sum(axis=2), 1, rtol=1e-5)
    assert len(np.unique(drawn[0], axis=0)) > 1
    spread = drawn.std(axis=1).max(axis=1)
    assert (spread > 0).mean() > 0.9


@pytest.mark.parametrize("size", [1, 7, 256])
def test_the_same_seed_gives_the_same_samples_whatever_the_batch_size(
    cnn: nn.Module, images: np.ndarray, size: int
) -> None:
    np.testing.assert_array_equal(samples(cnn, images, batch_size=size), samples(cnn, images, batch_size=5))


def test_samples_of_a_set_of_several_chunks_differ_from_image_to_image(cnn: nn.Module, images: np.ndarray) -> None:
    # Equal images must not get equal masks, neither in one chunk nor in two.
    same = np.repeat(images[:1], 300, axis=0)
    drawn = samples(cnn, same, count=20)
    assert len(np.unique(drawn.reshape(300, -1), axis=0)) == 300


def test_another_seed_gives_other_samples(cnn: nn.Module, images: np.ndarray) -> None:
    assert not np.array_equal(samples(cnn, images, seed=1), samples(cnn, images, seed=2))


def test_the_samples_have_the_mean_and_spread_of_dropout_done_by_hand(
    make_cnn: Callable[..., nn.Module], images: np.ndarray
) -> None:
    model = make_cnn(dropout=0.5)
    with torch.no_grad():
        layers = (model.conv, model.bn, model.relu, model.pool, model.flatten, model.hidden, model.relu)
        features = nn.Sequential(*layers).eval()(torch.from_numpy(images[:1]))
        masks = torch.bernoulli(torch.full((20000, 8), 0.5), generator=torch.Generator().manual_seed(3))
        expected = torch.softmax(model.head(features * masks * 2), dim=1).numpy()
    drawn = samples(model, images[:1], count=3000)[0]
    np.testing.assert_allclose(drawn.mean(axis=0), expected.mean(axis=0), atol=5 * expected.std() / 3000**0.5)
    np.testing.assert_allclose(drawn.std(axis=0), expected.std(axis=0), rtol=0.1)


def test_rare_dropout_hardly_changes_the_answer(make_cnn: Callable[..., nn.Module], images: np.ndarray) -> None:
    model = make_cnn(dropout=1e-4)
    seen = Classifier(model).observe(images, Needs(samples=50))
    np.testing.assert_allclose(seen.samples.mean(axis=1), seen.probabilities, atol=1e-2)


def test_without_dropping_the_samples_are_the_deterministic_answer(
    make_cnn: Callable[..., nn.Module], images: np.ndarray
) -> None:
    # Batch-norm must stay in eval mode: with batch statistics these would differ.
    seen = Classifier(make_cnn(dropout=0.0)).observe(images, Needs(samples=3))
    expected = np.repeat(seen.probabilities[:, None], 3, axis=1)
    np.testing.assert_allclose(seen.samples, expected, rtol=1e-5)


def test_the_callers_random_numbers_are_untouched(cnn: nn.Module, images: np.ndarray) -> None:
    torch.manual_seed(99)
    state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    samples(cnn, images)
    assert torch.equal(torch.get_rng_state(), state)
    np.testing.assert_array_equal(np.random.get_state()[1], numpy_state)  # noqa: NPY002


def test_a_model_without_dropout_says_so(images: np.ndarray) -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 3))
    with pytest.raises(UserError, match=r"needs dropout, but Sequential \(a torch module\) gives .*Dropout layers"):
        Classifier(model).observe(images, Needs(samples=2))
    with pytest.raises(UserError, match=r"the model has no torch.nn.Dropout layer"):
        Classifier(model).backend.sample(images, 2, seed=0)
    with pytest.raises(UserError, match="A callable has no dropout layers"):
        Classifier(lambda x: x).backend.sample(images, 2, seed=0)


def test_a_negative_number_of_samples_is_refused() -> None:
    with pytest.raises(UserError, match="number of dropout samples is -1"):
        Needs(samples=-1)
