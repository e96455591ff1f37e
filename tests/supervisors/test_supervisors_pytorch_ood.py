"""The adapters, with detectors of their own making and with pytorch-ood itself.

pytorch-ood imports torchvision for its data sets and pretrained models, and torchvision cannot be imported beside every
build of torch. Its detectors use none of it, so where torchvision is missing an empty stand-in lets them be imported.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import secondguess as sg
import torchvision_here
from secondguess import Classifier, ImageSet, Needs, Observation, Supervisor, Trace, UserError
from secondguess.supervisors import checks, make, make_all, names
from secondguess.supervisors.checks import example_observation
from secondguess.supervisors.knn import KNN
from secondguess.supervisors.logits import Energy, MaxLogit
from secondguess.supervisors.pytorch_ood import FromPytorchOOD, SupervisorDetector, to_pytorch_ood
from secondguess.supervisors.relative_mahalanobis import RelativeMahalanobis
from secondguess.supervisors.vim import ViM

# A detector cannot be compared with its copy, nor saved without a pickle.
KEPT = [check for check in checks.CHECKS if check.__name__ not in ("check_parameters", "check_save_and_load")]


class Centre:
    """A detector of features, as pytorch-ood 0.4 has them: distance to the mean of what it was fitted on."""

    requires_fit = True

    def __init__(self) -> None:
        self.centre: torch.Tensor | None = None

    def fit_features(self, x: torch.Tensor, y: torch.Tensor) -> Centre:
        assert (y >= 0).all()
        if not len(x):
            raise ValueError("No ID samples")
        self.centre = x.mean(dim=0)
        return self

    def predict_features(self, x: torch.Tensor) -> torch.Tensor:
        assert self.centre is not None
        return (x - self.centre).norm(dim=1)


class LogitNorm:
    """A detector of logits that need not be fitted."""

    requires_fit = False

    def predict_logits(self, logits: torch.Tensor) -> torch.Tensor:
        return -logits.norm(dim=1)


class OldEnergy:
    """A detector of logits as versions before 0.4 had them: the method is called `predict_features` all the same."""

    requires_fit = False

    def predict_features(self, logits: torch.Tensor) -> torch.Tensor:
        return -logits.logsumexp(dim=1)


class _Empty(Loader, MetaPathFinder):
    """Stands in for torchvision: every module exists, and every name in it is a class without content."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        return ModuleSpec(name, self, is_package=True) if name.partition(".")[0] == "torchvision" else None

    def exec_module(self, module: ModuleType) -> None:
        def missing(attribute: str) -> type:
            if attribute.startswith("__"):
                raise AttributeError(attribute)
            return type(attribute, (), {})

        module.__getattr__ = missing  # type: ignore[method-assign]


@pytest.fixture(scope="module")
def ood() -> Iterator[ModuleType]:
    """pytorch-ood itself."""
    if importlib.util.find_spec("pytorch_ood") is None:
        pytest.skip("pytorch-ood is not installed: pip install --no-deps pytorch-ood")
    before = set(sys.modules)
    stand_in = None if torchvision_here.prepare() else _Empty()
    with pytest.MonkeyPatch.context() as patch:
        if stand_in:
            patch.setattr(sys, "meta_path", [*sys.meta_path, stand_in])
        yield importlib.import_module("pytorch_ood")
    for name in set(sys.modules) - before:
        if name.partition(".")[0] in ("pytorch_ood", "torchvision"):
            del sys.modules[name]


@pytest.fixture(scope="module")
def both() -> tuple[Observation, Observation]:
    """A training and a test observation with a linear last layer, all four classes predicted in both."""
    rng = np.random.default_rng(0)
    weight, bias = rng.normal(0, 1, (4, 8)), rng.normal(0, 1, 4)

    def draw(rows: int) -> Observation:
        traces = (rng.normal(0, 3, (4, 8))[np.arange(rows) % 4] + rng.normal(0, 2, (rows, 8))).astype(np.float32)
        logits = (traces @ weight.T + bias).astype(np.float32)
        powers = np.exp(logits.astype(np.float64) - logits.max(axis=1, keepdims=True))
        return Observation(powers / powers.sum(axis=1, keepdims=True), logits=logits, traces={Trace(): traces})

    return draw(600), draw(60)


@pytest.fixture
def classifier() -> Classifier:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = nn.Sequential(nn.Flatten(), nn.Linear(16, 12), nn.ReLU(), nn.Linear(12, 4)).eval()
    return Classifier(net, device="cpu", output_kind="logits")


@pytest.fixture
def images() -> NDArray[np.float32]:
    return np.random.default_rng(3).random((90, 1, 4, 4), dtype=np.float32)


def loader(images: NDArray[np.float32], labels: NDArray[np.int64]) -> DataLoader[Any]:
    return DataLoader(TensorDataset(torch.from_numpy(images), torch.from_numpy(labels)), batch_size=32)


def assert_kept(check: Any, supervisor: FromPytorchOOD) -> None:
    """One check of the contract, which raises where it is not kept."""
    nominal, suspicious = (example_observation(supervisor.needs, 60, seed=s, suspicious=bool(s)) for s in (0, 1))
    assert check(checks._Kit(supervisor, nominal, suspicious, np.arange(60) % 4)) is None


@pytest.mark.parametrize("detector", [Centre(), LogitNorm()])
@pytest.mark.parametrize("check", KEPT)
def test_a_wrapped_detector_keeps_the_contract(check: Any, detector: Any) -> None:
    assert_kept(check, FromPytorchOOD(detector))


def test_what_a_detector_reads_is_found_out() -> None:
    assert FromPytorchOOD(LogitNorm()).needs == Needs(logits=True)
    assert FromPytorchOOD(Centre()).needs == Needs(traces=frozenset({Trace()}))
    assert FromPytorchOOD(Centre(), layers="conv").needs == Needs(traces=frozenset({Trace("conv")}))
    assert FromPytorchOOD(OldEnergy(), reads="logits").needs == Needs(logits=True)


def test_a_detector_of_an_older_version_gets_its_logits(both: tuple[Observation, Observation]) -> None:
    scores = FromPytorchOOD(OldEnergy(), reads="logits").score(both[1])
    np.testing.assert_allclose(scores, Energy().score(both[1]), rtol=1e-5)


def test_the_detector_of_the_user_stays_as_it_was(both: tuple[Observation, Observation]) -> None:
    detector = Centre()
    supervisor = FromPytorchOOD(detector).fit(both[0])
    assert detector.centre is None
    assert supervisor.detector is detector
    traces = both[0].trace("penultimate")
    expected = np.linalg.norm(both[1].trace("penultimate") - traces.mean(axis=0), axis=1)
    np.testing.assert_allclose(supervisor.score(both[1]), expected, rtol=1e-5)


def test_images_of_unknown_label_are_not_learnt_from(both: tuple[Observation, Observation]) -> None:
    labels = np.where(np.arange(600) < 200, -1, 0)
    supervisor = FromPytorchOOD(Centre()).fit(both[0], labels)
    expected = both[0].trace("penultimate")[200:].mean(axis=0)
    np.testing.assert_allclose(supervisor.detector_.centre, expected, rtol=1e-4, atol=1e-4)


def test_detectors_are_told_apart_by_name() -> None:
    assert FromPytorchOOD(Centre()).name == "ood_centre"
    assert FromPytorchOOD(LogitNorm()).name == "ood_logit_norm"
    assert FromPytorchOOD(Centre(), name="mine").name == "mine"
    assert FromPytorchOOD(Centre(), name="mine").clone().name == "mine"
    assert FromPytorchOOD(LogitNorm()).requires_fit is False


def test_a_detector_cannot_be_saved(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="A value of type Centre cannot be saved"):
        FromPytorchOOD(Centre()).save(tmp_path / "s.safetensors")
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_wrapped_is_refused(both: tuple[Observation, Observation]) -> None:
    with pytest.raises(UserError, match="A dict has neither predict_logits nor predict_features"):
        FromPytorchOOD({})
    with pytest.raises(UserError, match="reads 'logits' or 'features', or 'auto' finds out, not 'images'"):
        FromPytorchOOD(Centre(), reads="images")  # type: ignore[arg-type]
    with pytest.raises(UserError, match="A LogitNorm has no predict_features"):
        FromPytorchOOD(LogitNorm(), reads="features").score(both[0])
    with pytest.raises(UserError, match="Centre could not be fitted on 0 images: No ID samples"):
        FromPytorchOOD(Centre()).fit(both[0], np.full(600, -1))


@pytest.mark.parametrize("name", ["EnergyBased", "MaxLogit", "KNN", "ViM", "RMD"])
def test_ours_agree_with_theirs(name: str, ood: ModuleType, both: tuple[Observation, Observation]) -> None:
    training, test = both
    traces, logits = training.trace("penultimate"), training.logits
    solution = np.linalg.lstsq(np.c_[traces, np.ones(len(traces))].astype(np.float64), logits, rcond=None)[0]
    weight, bias = torch.tensor(solution[:-1].T), torch.tensor(solution[-1])
    made: dict[str, tuple[Any, Supervisor, float]] = {
        "EnergyBased": (lambda d: d(None), Energy(), 1),
        "MaxLogit": (lambda d: d(None), MaxLogit(), 1),
        "KNN": (lambda d: d(None, k=10), KNN(k=10), 1),
        "ViM": (lambda d: d(None, d=4, w=weight, b=bias), ViM(), 1),
        "RMD": (lambda d: d(None), RelativeMahalanobis(), 1 / len(training)),  # theirs does not divide by n
    }
    make_theirs, ours, factor = made[name]
    theirs = FromPytorchOOD(make_theirs(getattr(ood.detector, name))).fit(training)
    np.testing.assert_allclose(
        theirs.score(test), factor * ours.fit(training).score(test), rtol=2e-3, atol=2e-3 * factor
    )


@pytest.fixture(scope="module")
def rectified() -> tuple[Observation, Observation, nn.Linear]:
    """As `both`, behind a ReLU, with sixteen units, a known last layer, and labels that are sometimes wrong."""
    rng = np.random.default_rng(1)
    head = nn.Linear(16, 4)
    with torch.no_grad():
        head.weight.copy_(torch.tensor(rng.normal(0, 0.4, (4, 16))))
        head.bias.copy_(torch.tensor(rng.normal(3, 0.5, 4)))  # a positive log-sum-exp, as nnguide wants it
    centres = rng.normal(0.5, 1, (4, 16))

    def draw(rows: int) -> Observation:
        traces = np.maximum(centres[np.arange(rows) % 4] + rng.normal(0, 1, (rows, 16)), 0).astype(np.float32)
        logits = head(torch.from_numpy(traces)).detach()
        probabilities = logits.double().softmax(dim=1).numpy()
        return Observation(probabilities, logits=logits.numpy(), traces={Trace(): traces})

    return draw(800), draw(80), head


def _theirs_of_maps(detector: Any, training: torch.Tensor, test: torch.Tensor) -> NDArray[np.floating[Any]]:
    """A detector of feature maps, with units as maps of one pixel; ReAct learns its limit."""
    if getattr(detector, "requires_fit", False):
        detector.fit_feature_maps(training[:, :, None, None], torch.zeros(len(training), dtype=torch.long))
    return np.asarray(detector.predict_feature_maps(test[:, :, None, None]))


@pytest.mark.parametrize("name", ["ReAct", "ASH-s", "ASH-p", "ASH-b", "SCALE"])
def test_shaped_activations_agree_with_theirs(
    name: str, ood: ModuleType, rectified: tuple[Observation, Observation, nn.Linear]
) -> None:
    training, test, head = rectified
    kind, _, variant = name.partition("-")
    options: dict[str, Any] = {"percentile": 0.75} | ({"variant": f"ash-{variant}"} if variant else {})
    theirs = getattr(ood.detector, kind)(None, lambda maps: head(maps.flatten(1)), **options)
    traces = [torch.from_numpy(np.asarray(one.trace("penultimate"))) for one in (training, test)]
    ours = make(kind.lower(), percentile=75.0, **({"variant": variant} if variant else {})).fit(training)
    np.testing.assert_allclose(ours.score(test), _theirs_of_maps(theirs, *traces), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", ["GEN", "KLMatching", "fDBD", "NNGuide", "SHE", "Mahalanobis"])
def test_newer_scores_agree_with_theirs(
    name: str, ood: ModuleType, rectified: tuple[Observation, Observation, nn.Linear]
) -> None:
    training, test, head = rectified
    labels = np.where(np.arange(len(training)) % 7, training.predictions, (training.predictions + 1) % 4)
    kind, y = getattr(ood.detector, name), torch.from_numpy(labels)
    h, asked = (torch.from_numpy(np.asarray(one.trace("penultimate"))) for one in (training, test))
    logits, others = (torch.from_numpy(np.asarray(one.logits)) for one in (training, test))
    unit = nn.functional.normalize
    # Theirs averages over classes where GEN's paper sums; its Mahalanobis distance is halved, its covariance a sum.
    made: dict[str, tuple[Any, str, float]] = {
        "GEN": (lambda: kind(None, gamma=0.1).predict_logits(others), "gen", 1 / 4),
        "KLMatching": (lambda: kind(None).fit_logits(logits).predict_logits(others), "kl_matching", 1),
        "fDBD": (lambda: kind(None, head).fit_features(h).predict_features(asked), "fdbd", 1),
        "NNGuide": (lambda: kind(None, head, k=10).fit_features(h, y).predict_features(asked), "nnguide", 1),
        "SHE": (lambda: kind(None, head).fit_features(h, y).predict_features(asked), "she", 1),
        "Mahalanobis": (
            lambda: kind(None).fit_features(unit(h), y).predict_features(unit(asked)),
            "normalised_mahalanobis",
            0.5 / len(training),
        ),
    }
    theirs, ours, factor = made[name]
    scores = factor * make(ours).fit(training, labels).score(test)
    np.testing.assert_allclose(scores, theirs().numpy(force=True), rtol=2e-3, atol=2e-4 * np.abs(scores).max())


@pytest.mark.parametrize("name", ["EnergyBased", "KNN", "GMM", "KLMatching", "Entropy"])
def test_their_detectors_keep_our_contract(name: str, ood: ModuleType) -> None:
    kind = getattr(ood.detector, name)
    supervisor = FromPytorchOOD(kind(None, k=5) if name == "KNN" else kind(None))
    for check in KEPT:
        assert_kept(check, supervisor)


def test_a_detector_is_found_by_name(ood: ModuleType, both: tuple[Observation, Observation], tmp_path: Path) -> None:
    energy, knn = make_all(["pytorch-ood:energy_based", 'pytorch_ood:KNN:options={"k": 10}:layers=penultimate'])
    assert (energy.name, knn.name) == ("ood_energy_based", "ood_knn")
    np.testing.assert_allclose(energy.score(both[1]), Energy().score(both[1]), rtol=1e-5)
    np.testing.assert_allclose(knn.fit(both[0]).score(both[1]), KNN(k=10).fit(both[0]).score(both[1]), rtol=2e-3)
    assert knn.clone().options == {"k": 10} and "pytorch_ood" not in names()
    energy.save(tmp_path / "energy.safetensors")
    again = Supervisor.load(tmp_path / "energy.safetensors")
    assert again.name == "ood_energy_based"
    np.testing.assert_array_equal(again.score(both[1]), energy.score(both[1]))
    for name, message in {
        "pytorch_ood": "Say which detector of pytorch-ood",
        "pytorch_ood:KNM": "There is no detector of pytorch-ood 'KNM'; did you mean 'KNN'",
        "pytorch_ood:ViM": "'ViM' of pytorch-ood cannot be made by name: .*hand FromPytorchOOD",
    }.items():
        with pytest.raises(UserError, match=message):
            make(name)


def test_without_their_library_a_name_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pytorch_ood.detector", None)
    with pytest.raises(UserError, match=r'pip install "secondguess\[ood\]"'):
        make("pytorch_ood:KNN")


def test_a_mistake_of_theirs_is_a_sentence_of_ours(ood: ModuleType, both: tuple[Observation, Observation]) -> None:
    with pytest.raises(UserError, match=r"KNN could not be fitted on 600 images: k=1000 exceeds"):
        FromPytorchOOD(ood.detector.KNN(None, k=1000)).fit(both[0])


def test_a_supervisor_becomes_a_detector(classifier: Classifier, images: NDArray[np.float32]) -> None:
    labels = np.arange(90) % 4
    detector = to_pytorch_ood(KNN(k=3), classifier)
    assert detector.requires_fit
    assert detector.to("cpu") is detector
    assert detector.device is None
    assert detector.fit(loader(images, labels)) is detector
    scores = detector(torch.from_numpy(images[:7]))
    observation = classifier.observe(images, KNN().needs)
    expected = KNN(k=3).fit(observation).score(observation.take(slice(0, 7)))
    assert scores.dtype == torch.float64
    np.testing.assert_allclose(scores.numpy(), expected, atol=1e-6)
    assert "SupervisorDetector(KNN[fitted]" in repr(detector)


def test_a_detector_is_not_fitted_on_what_is_out_of_distribution(
    classifier: Classifier, images: NDArray[np.float32]
) -> None:
    labels = np.where(np.arange(90) < 40, -1, 0)
    detector = to_pytorch_ood(KNN(), classifier).fit(loader(images, labels))
    assert isinstance(detector.supervisor, KNN)
    assert len(detector.supervisor.traces_) == 50
    with pytest.raises(UserError, match="no image with a label of 0 or more"):
        detector.fit(loader(images, np.full(90, -1)))


def test_a_supervisor_without_fit_is_a_detector_at_once(classifier: Classifier, images: NDArray[np.float32]) -> None:
    entropy = make("entropy")
    detector = to_pytorch_ood(entropy, classifier)
    assert not detector.requires_fit
    expected = entropy.score(classifier.observe(images))
    np.testing.assert_allclose(detector.predict(torch.from_numpy(images)).numpy(), expected, atol=1e-9)


def test_a_classifier_that_cannot_give_what_is_needed_is_named(images: NDArray[np.float32]) -> None:
    box = Classifier(lambda x: np.full((len(x), 4), 0.25, np.float32), name="box")
    with pytest.raises(UserError, match="The supervisor 'knn' needs traces, but box"):
        to_pytorch_ood(KNN(), box)


def test_their_benchmark_takes_our_detector(
    ood: ModuleType, classifier: Classifier, images: NDArray[np.float32]
) -> None:
    detector = to_pytorch_ood(KNN(k=3), classifier).fit(loader(images, np.arange(90) % 4))
    assert isinstance(detector, ood.api.Detector)
    base = importlib.import_module("pytorch_ood.benchmark.base")
    ours, several = base.Benchmark._normalize_detectors(detector)
    assert ours == [detector]
    assert several is False
    metrics = ood.metrics.OODMetrics()
    for x, y in loader(images, np.where(np.arange(90) < 45, 0, -1)):
        metrics.update(detector(x), y)
    assert 0 <= metrics.compute()["AUROC"] <= 1


def test_without_their_library_a_detector_is_made_all_the_same(
    classifier: Classifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "pytorch_ood.api", raising=False)
    assert isinstance(to_pytorch_ood(Energy(), classifier), SupervisorDetector)


def test_a_detector_stands_in_an_audit_beside_the_others(
    classifier: Classifier, images: NDArray[np.float32], tmp_path: Path
) -> None:
    test = ImageSet.from_arrays(images, np.arange(90) % 4)
    train = ImageSet.from_arrays(1 - images, np.arange(90) % 4)
    detectors = [FromPytorchOOD(Centre()), FromPytorchOOD(LogitNorm())]
    options = {"supervisors": ["entropy", *detectors], "stress": ["invalid"], "sections": ["supervisors"]}
    result = sg.audit(classifier, test, train=train, folder=tmp_path, **options)
    assert "supervisor.ood_centre.invalid.auroc" in result.numbers
    assert "supervisor.ood_logit_norm.invalid.auroc" in result.numbers
