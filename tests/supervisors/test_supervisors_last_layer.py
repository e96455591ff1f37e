"""ReAct, ASH, SCALE and fDBD against their papers' steps, with the weights that they never see."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.special import logsumexp, softmax
from torch import nn

from secondguess import Classifier, Observation, Trace, UserError, check_supervisor
from secondguess.supervisors import Supervisor, make
from secondguess.supervisors.activation_shaping import ASH, ReAct, Scale
from secondguess.supervisors.fdbd import FastDecisionBoundary
from secondguess.supervisors.logits import energy

Floats = NDArray[np.float64]
WIDTH, CLASSES = 20, 4
NAMES = ["react", "ash", "ash:variant=p:percentile=60", "ash:variant=b:percentile=65", "scale", "fdbd"]
WEIGHT = np.random.default_rng(0).normal(0, 1, (CLASSES, WIDTH))
BIAS = np.random.default_rng(1).normal(0, 2, CLASSES)


def draw(rows: int, seed: int, scale: float = 1.0) -> NDArray[np.float32]:
    """Rectified features, many of them zero."""
    return np.maximum(0, scale * np.random.default_rng(seed).normal(0.3, 1, (rows, WIDTH))).astype(np.float32)


def seen(traces: NDArray[np.float32]) -> Observation:
    logits = (traces.astype(np.float64) @ WEIGHT.T + BIAS).astype(np.float32)
    return Observation(softmax(logits.astype(np.float64), axis=1), logits=logits, traces={Trace(): traces})


def react(h: Floats, training: Floats, *, percentile: float = 90) -> Floats:
    return WEIGHT @ np.minimum(h, np.percentile(training, percentile)) + BIAS


def ash(h: Floats, training: Floats, *, variant: str = "s", percentile: float = 90) -> Floats:
    """The algorithm of the paper, on one image."""
    order = np.argsort(-h)[: len(h) - round(len(h) * percentile / 100)]
    pruned = np.zeros_like(h)
    pruned[order] = h[order]
    nonzero = pruned > 0
    if variant == "s":
        pruned *= np.exp(h.sum() / pruned.sum())
    if variant == "b":
        pruned[nonzero] = h.sum() / nonzero.sum()
    return WEIGHT @ pruned + BIAS


def scale(h: Floats, training: Floats, *, percentile: float = 85) -> Floats:
    large = np.sort(h)[-(len(h) - round(len(h) * percentile / 100)) :]
    return WEIGHT @ (h * np.exp(h.sum() / large.sum())) + BIAS


def fdbd(h: Floats, training: Floats) -> float:
    f = WEIGHT @ h + BIAS
    y = int(f.argmax())
    distances = [(f[y] - f[c]) / np.linalg.norm(WEIGHT[y] - WEIGHT[c]) for c in range(CLASSES) if c != y]
    return -float(np.mean(distances) / np.linalg.norm(h - training.mean(axis=0)))


SHAPED: list[tuple[Supervisor, Callable[..., Floats], dict[str, object]]] = [
    (ReAct(), react, {}),
    (ReAct(percentile=60), react, {"percentile": 60}),
    (ASH(), ash, {}),
    (ASH(variant="p", percentile=60), ash, {"variant": "p", "percentile": 60}),
    (ASH(variant="b", percentile=65), ash, {"variant": "b", "percentile": 65}),
    (Scale(), scale, {}),
    (Scale(percentile=50), scale, {"percentile": 50}),
]


@pytest.mark.parametrize(
    ("supervisor", "paper", "options"), SHAPED, ids=lambda one: getattr(one, "__name__", str(one)[:40])
)
def test_it_is_the_papers_energy_without_seeing_the_weights(
    supervisor: Supervisor, paper: Callable[..., Floats], options: dict[str, object]
) -> None:
    training, queries = draw(500, 2), draw(60, 3, 2.0)
    expected = [-logsumexp(paper(h, training.astype(np.float64), **options)) for h in queries.astype(np.float64)]
    np.testing.assert_allclose(supervisor.fit(seen(training)).score(seen(queries)), expected, rtol=1e-5, atol=1e-4)


def test_the_distance_to_boundaries_is_the_papers() -> None:
    training, queries = draw(500, 2), draw(60, 3, 2.0)
    expected = [fdbd(h, training.astype(np.float64)) for h in queries.astype(np.float64)]
    found = FastDecisionBoundary().fit(seen(training)).score(seen(queries))
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_it_keeps_the_contract(name: str) -> None:
    check_supervisor(make(name))


class Net(nn.Module):
    """A convolution, a ReLU, a pooling, and the last layer."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Conv2d(1, 12, 3)
        self.head = nn.Linear(12, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self.body(x)).mean((2, 3)))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """One network in all forms."""
    folder = tmp_path_factory.mktemp("net")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = Net().eval()
    example, shapes = (torch.rand(3, 1, 8, 8),), ({0: torch.export.Dim("n", min=1, max=512)},)
    torch.export.save(torch.export.export(net, example, dynamic_shapes=shapes), folder / "net.pt2")
    torch.onnx.export(net, example, folder / "net.onnx", dynamic_shapes=shapes, verbose=False)
    return {"torch": net, "pt2": folder / "net.pt2", "onnx": folder / "net.onnx"}


@pytest.mark.parametrize("name", [*NAMES, "nnguide", "she", "normalised_mahalanobis", "vim"])
def test_torch_exported_programs_and_onnx_give_the_same(name: str, files: dict[str, object]) -> None:
    rng = np.random.default_rng(0)
    training = rng.random((300, 1, 8, 8), dtype=np.float32)
    queries = rng.random((20, 1, 8, 8), dtype=np.float32) ** 2
    scores = {}
    for form, model in files.items():
        given = str(model) if isinstance(model, Path) else model
        classifier = Classifier.open(given, device="cpu", output_kind="logits")
        supervisor = make(name)
        supervisor.fit(classifier.observe(training, supervisor.needs))
        scores[form] = supervisor.score(classifier.observe(queries, supervisor.needs))
    for form in ("pt2", "onnx"):
        np.testing.assert_allclose(scores[form], scores["torch"], rtol=1e-3, atol=1e-4)


def test_the_weights_of_a_real_network_come_out(files: dict[str, object]) -> None:
    net = files["torch"]
    assert isinstance(net, Net)
    images = np.random.default_rng(0).random((300, 1, 8, 8), dtype=np.float32)
    fitted = ReAct().fit(Classifier(net, device="cpu", output_kind="logits").observe(images, ReAct().needs))
    weight, bias = net.head.weight.detach().numpy(), net.head.bias.detach().numpy()
    alive = np.abs(fitted.weight_).max(axis=0) > 1e-9
    np.testing.assert_allclose(fitted.weight_[:, alive], weight[:, alive], atol=1e-3)
    np.testing.assert_allclose(fitted.bias_, bias, atol=1e-3)


@pytest.mark.parametrize("name", NAMES)
def test_a_layer_that_does_not_feed_the_last_one_is_refused(name: str) -> None:
    observation = seen(draw(500, 1))
    other = Observation(observation.probabilities, logits=observation.logits, traces={Trace(): draw(500, 7)})
    with pytest.raises(UserError, match=r"no linear function of the traces given to .* is left over\); give it the"):
        make(name).fit(other)


@pytest.mark.parametrize("name", NAMES)
def test_too_few_images_are_refused_rather_than_fitted_exactly(name: str) -> None:
    with pytest.raises(UserError, match="do not determine the last layer, which takes traces of 20 neurons"):
        make(name).fit(seen(draw(WIDTH + 5, 1)))


@pytest.mark.parametrize("name", NAMES)
def test_dead_and_silent_units_make_no_nan(name: str) -> None:
    training = draw(300, 1)
    training[:, :3] = 0.0
    fitted = make(name).fit(seen(training))
    odd = np.zeros((3, WIDTH), np.float32)
    odd[1, 0], odd[2] = 5.0, -1.0  # a unit that never spoke, and a layer that is no ReLU
    assert np.isfinite(fitted.score(seen(odd))).all()


def test_a_unit_that_wakes_up_counts_with_its_true_weight() -> None:
    """W is unknown there, but the model's own logits are not."""
    training = draw(300, 1)
    training[:, 0] = 0.0
    woken = draw(5, 2)
    woken[:, 0] = 0.5 * np.percentile(training, 90)  # below the limit, so that nothing of it is cut away
    observation = seen(woken)
    fitted = ReAct(percentile=99.999).fit(seen(training))
    assert observation.logits is not None
    np.testing.assert_allclose(fitted.score(observation), energy(observation.logits), rtol=1e-4, atol=1e-3)


def test_two_classes_with_the_same_row_have_no_boundary() -> None:
    traces = draw(300, 1)
    logits = np.repeat(traces.astype(np.float64) @ WEIGHT[:2].T, 2, axis=1).astype(np.float32)
    observation = Observation(softmax(logits.astype(np.float64), axis=1), logits=logits, traces={Trace(): traces})
    scores = FastDecisionBoundary().fit(observation).score(observation)
    assert np.isfinite(scores).all()
    gap = np.abs(logits[:, 0] - logits[:, 2]) / np.linalg.norm(WEIGHT[0] - WEIGHT[1])
    away = np.linalg.norm(traces - traces.mean(axis=0, dtype=np.float64), axis=1)
    np.testing.assert_allclose(scores, -gap / away, rtol=1e-3)


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda: ReAct(percentile=100), "The percentile of 'react' is 100; it must be from 0 and below 100"),
        (lambda: ASH(variant="x"), "There is no variant 'x' of ASH; there is s, p and b"),
    ],
)
def test_parameters_are_checked(made: Callable[[], Supervisor], message: str) -> None:
    with pytest.raises(UserError, match=message):
        made()
