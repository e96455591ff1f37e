from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import tiny_models
from secondguess import Classifier, Needs, UserError, zoo
from secondguess.model.backends import dropout_passes
from secondguess.model.backends.dropout_passes import DropoutPasses, dropouts


class Headed(nn.Module):
    """A stem and a head, with something between them that subclasses do their own way."""

    def __init__(self, drop: nn.Module | None = None) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 4, 3, stride=2, padding=1)
        self.drop = drop or nn.Dropout(0.5)
        self.mix = nn.Conv2d(4, 4, 3, padding=1)
        self.again = nn.Dropout(0.2)
        self.head = nn.Linear(64, 3)

    def between(self, x: torch.Tensor) -> torch.Tensor:
        return self.again(torch.relu(self.mix(self.drop(x))))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.between(torch.relu(self.stem(x))).flatten(1))


class Around(Headed):
    """A connection goes around the first dropout layer."""

    def between(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.mix(self.drop(x))


class Parallel(Headed):
    """Two branches, each with a dropout layer of its own, fed the same."""

    def between(self, x: torch.Tensor) -> torch.Tensor:
        return self.drop(x) + self.mix(self.again(x))


class Twice(Headed):
    """One layer called twice."""

    def between(self, x: torch.Tensor) -> torch.Tensor:
        return self.drop(self.mix(self.drop(x)))


class FixedBatch(Headed):
    """A reshape that knows the batch size from the images."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        count = len(x)
        return self.head(self.between(torch.relu(self.stem(x))).reshape(count, -1)[:, :64])


class Interleaved(Headed):
    """Rows are counted from the images after the dropout, so that copies would be taken for channels."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        count = len(x)
        mixed = self.between(torch.relu(self.stem(x)))
        return self.head(mixed.reshape(-1, count, 4, 4, 4).transpose(0, 1).reshape(-1, 64))


class InPlaceIgnored(Headed):
    """The layer writes into its input, and what it returns is not looked at."""

    def __init__(self) -> None:
        super().__init__(nn.Dropout(0.5, inplace=True))

    def between(self, x: torch.Tensor) -> torch.Tensor:
        self.drop(x)
        return self.mix(x)


class TokensFirst(Headed):
    """Dropout on (tokens, n, d), where the images are not the first axis."""

    def between(self, x: torch.Tensor) -> torch.Tensor:
        tokens = x.flatten(2).permute(2, 0, 1)
        return self.drop(tokens).permute(1, 2, 0).reshape(len(x), 4, 4, 4)


MULTIPLIES = {
    "cnn": lambda: tiny_models.TinyCNN(),
    "attention": lambda: tiny_models.Attention(),
    "headed": Headed,
    "parallel": Parallel,
    "twice": Twice,
    "channels": lambda: Headed(nn.Dropout2d(0.4)),
    "alpha": lambda: Headed(nn.AlphaDropout(0.3)),
    "in place": lambda: Headed(nn.Dropout(0.5, inplace=True)),
}
REPEATS = {
    "around": Around,
    "fixed batch": FixedBatch,
    "interleaved": Interleaved,
    "in place, ignored": InPlaceIgnored,
    "tokens first": TokensFirst,
}


def made(kind: Any) -> tuple[nn.Module, DropoutPasses]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = kind().eval()
    return model, DropoutPasses(model, model, torch.device("cpu"))


def shape_of(images: np.ndarray) -> tuple[int, ...]:
    return images.shape[1:]


@pytest.mark.parametrize("name", MULTIPLIES | REPEATS)
def test_rows_are_multiplied_at_the_first_dropout_where_the_model_allows(name: str, images: np.ndarray) -> None:
    _, passes = made((MULTIPLIES | REPEATS)[name])
    passes.sample(torch.from_numpy(images), 2, seed=0)
    assert (passes._widest[shape_of(images)] is not None) == (name in MULTIPLIES)


@pytest.mark.parametrize("name", MULTIPLIES | REPEATS)
def test_few_samples_are_the_first_of_many(name: str, images: np.ndarray) -> None:
    model, _ = made((MULTIPLIES | REPEATS)[name])
    few, many = (
        Classifier(model, output_kind="logits").observe(images, Needs(samples=count)).samples for count in (3, 11)
    )
    assert few is not None and many is not None
    np.testing.assert_allclose(few, many[:, :3], rtol=1e-4, atol=1e-6)
    assert np.abs(many[:, 3:] - many[:, :1]).max() > 1e-3


@pytest.mark.parametrize("name", MULTIPLIES)
def test_multiplied_rows_say_what_one_pass_after_another_says(name: str, images: np.ndarray) -> None:
    _, passes = made(MULTIPLIES[name])
    shown = torch.from_numpy(images)
    together = passes.sample(shown, 6, seed=4)
    with torch.inference_mode():
        alone = torch.stack([passes._alone(shown, number, 4) for number in range(6)])
    np.testing.assert_allclose(together.numpy(), alone.numpy(), rtol=1e-4, atol=1e-5)


def test_other_dropout_layers_draw_what_torch_draws_from_the_same_seed(images: np.ndarray) -> None:
    model = nn.Sequential(nn.Dropout2d(0.5), nn.Flatten(), nn.Linear(64, 3))
    passes = DropoutPasses(model.eval(), model, torch.device("cpu"))
    found = passes.sample(torch.from_numpy(images), 4, seed=9)
    for number in range(4):
        with torch.random.fork_rng(devices=[]), torch.inference_mode():
            torch.manual_seed(dropout_passes._mixed(9, 0, number))
            expected = model.train()(torch.from_numpy(images))
        np.testing.assert_allclose(found[number].numpy(), expected.numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("p", [0.0, 0.2, 0.5, 0.9, 1.0])
def test_plain_dropout_drops_the_share_it_says_and_scales_the_rest(p: float) -> None:
    model = nn.Sequential(nn.Flatten(), nn.Dropout(p), nn.Identity()).eval()
    passes = DropoutPasses(model, model, torch.device("cpu"))
    shown = torch.rand(50, 1, 8, 8) + 0.5
    found = passes.sample(shown, 40, seed=0)
    kept = found != 0
    assert float(kept.double().mean()) == pytest.approx(1 - p, abs=4 * np.sqrt(p * (1 - p) / kept.numel()) + 1e-9)
    expected = shown.flatten(1).expand_as(found)[kept] / (1 - p) if p < 1 else found[kept]
    torch.testing.assert_close(found[kept], expected)
    for axis in (0, 1, 2):  # no image, pass or neuron is favoured
        others = tuple({0, 1, 2} - {axis})
        assert float((kept.double().mean(dim=others) - (1 - p)).abs().max()) < 0.12


def test_groups_of_passes_change_nothing(images: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    _, passes = made(Headed)
    shown = torch.from_numpy(images)
    whole = passes.sample(shown, 10, seed=1)
    monkeypatch.setattr(dropout_passes, "WIDEST_BYTES", 3 * len(images) * 64 * 4)
    sizes: list[int] = []
    original = passes._together
    monkeypatch.setattr(passes, "_together", lambda *given: (sizes.append(len(given[1])), original(*given))[1])
    np.testing.assert_allclose(passes.sample(shown, 10, seed=1).numpy(), whole.numpy(), rtol=1e-5, atol=1e-6)
    assert sizes == [3, 3, 3, 1]
    monkeypatch.setattr(dropout_passes, "WIDEST_BYTES", 1)
    np.testing.assert_allclose(passes.sample(shown, 10, seed=1).numpy(), whole.numpy(), rtol=1e-5, atol=1e-6)


def test_what_comes_before_the_first_dropout_runs_once() -> None:
    model = zoo.make("simple_cnn", seed=0).eval()
    rows: dict[str, list[int]] = {"conv1": [], "logits": []}
    for name, seen in rows.items():
        model.get_submodule(name).register_forward_pre_hook(lambda _m, args, seen=seen: seen.append(len(args[0])))
    classifier = Classifier(model, output_kind="logits")
    shown = np.random.default_rng(0).random((130, 1, 28, 28), dtype=np.float32)
    classifier.observe(shown[:4], Needs(samples=1))  # tries it on a probe
    rows["conv1"].clear(), rows["logits"].clear()
    classifier.observe(shown, Needs(samples=20))
    assert rows["conv1"] == [130, 128, 2]  # a pass without dropout, then two chunks
    assert rows["logits"] == [130, 128 * 20, 2 * 20]


def test_images_that_the_model_cannot_tell_apart_prove_nothing(images: np.ndarray) -> None:
    model, passes = made(Headed)
    with torch.no_grad():
        model.stem.weight.zero_()
    shown = torch.from_numpy(images)
    assert passes.sample(shown, 3, seed=0).shape == (3, 19, 3)
    assert passes._widest == {}


def test_nothing_is_left_behind(images: np.ndarray) -> None:
    model, passes = made(Around)
    model.drop.train()
    flags = [part.training for part in model.modules()]
    Classifier(model, output_kind="logits").observe(images, Needs(samples=2))
    assert [part.training for part in model.modules()] == flags
    assert all(not part._forward_hooks for part in model.modules())
    model.eval()
    with pytest.raises(RuntimeError):
        passes.sample(torch.zeros(2, 3, 8, 8), 2, seed=0)
    assert all(not part._forward_hooks and not part.training for part in model.modules())


def test_dropout_that_no_pass_goes_through_is_an_error(images: np.ndarray) -> None:
    class Unused(Headed):
        def between(self, x: torch.Tensor) -> torch.Tensor:
            return self.mix(x)

    with pytest.raises(UserError, match="a forward pass goes through none of them"):
        Classifier(Unused(), output_kind="logits").observe(images, Needs(samples=2))


def test_dropouts_of_every_kind_are_found() -> None:
    kinds = (nn.Dropout(), nn.Dropout1d(), nn.Dropout2d(), nn.Dropout3d(), nn.AlphaDropout(), nn.FeatureAlphaDropout())
    assert len(dropouts(nn.Sequential(*kinds, nn.Linear(2, 2)))) == len(kinds)
