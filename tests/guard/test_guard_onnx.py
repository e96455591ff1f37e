"""The exported guard: the same scores and judgements, by ONNX Runtime alone."""

from __future__ import annotations

import logging
import subprocess
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

from secondguess import Classifier, Dataset, Needs, Observation, Supervisor, Trace, UserError, check_supervisor, load
from secondguess.guard import Guard, StressSplit
from secondguess.guard.onnx_export import export_onnx
from secondguess.guard.runtime import Runtime
from secondguess.images import ImageSet
from secondguess.model.outputs import restricted
from secondguess.model.tensors import read_output, reduce_trace
from secondguess.supervisors import SupervisorSet, get, make, names, registry
from secondguess.supervisors.graph import Graph
from secondguess.supervisors.scored_module import ScoredModule, ScoreHead

pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")
logging.getLogger("torch.onnx").setLevel(logging.ERROR)


@pytest.fixture(scope="module")
def jury(classifier: Classifier, digits: Dataset) -> SupervisorSet:
    """Every supervisor that can be exported, fitted."""
    options = {"dsa": {"other_distances": "fit", "subsampling": 300}, "dissector": {"epochs": 2}}
    made = [make(name, **options.get(name, {})) for name in names() if get(name).has_graph()]
    made.append(make("mdsa", layers=Trace("50%", "grid"), shrinkage=0.2))
    made.append(make("vim", layers="pool2", dimension=20))
    made.append(make("relative_mahalanobis", layers=[Trace("conv1", "mean"), Trace("conv2", "mean")]))
    jury = SupervisorSet(made)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return jury.fit(classifier.observe(digits.train, jury.needs), digits.train.labels)


def test_the_graph_computes_what_the_supervisors_compute(
    jury: SupervisorSet, classifier: Classifier, digits: Dataset, strangers: ImageSet
) -> None:
    images = np.concatenate([digits.test.materialise(), strangers.materialise()])
    seen = classifier.observe(images, jury.needs)
    layers = sorted({trace.layer for trace in jury.needs.traces})
    names = {layer: classifier._resolve(Trace(layer), (1, 8, 8)) for layer in layers}
    raw, activations = classifier.backend.forward(images, list(names.values()))
    graph = ScoreHead(jury, logits=True, places={trace: layers.index(trace.layer) for trace in jury.needs.traces})
    with torch.no_grad():
        tensors = [torch.from_numpy(activations[names[layer]]) for layer in layers]
        probabilities, scores = graph(torch.from_numpy(raw), torch.from_numpy(images), *tensors)
    assert probabilities.numpy() == pytest.approx(seen.probabilities, abs=1e-12)
    expected = jury.score(seen)
    for column, label in enumerate(jury.labels):
        spread = max(1.0, float(expected[:, column].std()))
        assert scores[:, column].numpy() == pytest.approx(expected[:, column], rel=1e-4, abs=1e-4 * spread), label


def test_a_module_with_its_scores_is_one_module(
    jury: SupervisorSet, classifier: Classifier, digits: Dataset, strangers: ImageSet
) -> None:
    chosen = SupervisorSet([one for one in jury.supervisors if one.name in ("max_softmax", "knn", "vim", "appearance")])
    images = np.concatenate([digits.test.materialise(), strangers.materialise()])
    seen = classifier.observe(images, chosen.needs | Needs(images=True))
    module = ScoredModule(classifier, chosen, (1, 8, 8))
    with torch.inference_mode():
        probabilities, scores = module(torch.from_numpy(classifier.normalised(images)))
    assert probabilities.numpy() == pytest.approx(seen.probabilities, abs=1e-6)
    assert scores.numpy() == pytest.approx(chosen.score(seen), rel=1e-4, abs=1e-4)


@pytest.mark.parametrize("shape", [(5, 7), (5, 6, 7), (5, 3, 9, 10), (5, 200, 4, 4), (5, 3000)])
@pytest.mark.parametrize("reduce", ["flatten", "mean", "grid"])
def test_traces_are_reduced_alike(shape: tuple[int, ...], reduce: str) -> None:
    values = np.random.default_rng(0).random(shape, dtype=np.float32)
    trace = Trace("layer", reduce)  # type: ignore[arg-type]
    assert reduce_trace(trace, torch.from_numpy(values)).numpy() == pytest.approx(trace.apply(values), abs=1e-5)


def test_an_exported_guard_judges_alike_without_torch(
    classifier: Classifier, digits: Dataset, stress_split: StressSplit, strangers: ImageSet, tmp_path: Path
) -> None:
    normalised = Classifier(
        classifier.backend.module, class_names=classifier.class_names, mean=0.05, std=0.9, device="cpu"
    )
    guard = Guard(["appearance", "mdsa", "relative_mahalanobis"], false_alarms=0.1, actions={"invalid": "ask"})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        guard.fit(normalised, digits.train, digits.test, stress_split)
    export_onnx(guard, tmp_path / "exported")
    images = np.concatenate([digits.train.head(60).materialise(), strangers.materialise()])
    np.save(tmp_path / "images.npy", images)
    program = (
        "import sys, numpy as np\n"
        "from secondguess.guard.runtime import Runtime\n"
        f"judged = Runtime({str(tmp_path / 'exported')!r}).judge(np.load({str(tmp_path / 'images.npy')!r}))\n"
        f"np.savez({str(tmp_path / 'told.npz')!r}, scores=judged.scores, p=judged.p_values, actions=judged.actions,"
        " probabilities=judged.probabilities)\n"
        "assert 'torch' not in sys.modules\n"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    told, expected = np.load(tmp_path / "told.npz"), guard.judge(images)
    assert told["scores"] == pytest.approx(expected.scores, rel=1e-4, abs=1e-4)
    assert told["probabilities"] == pytest.approx(expected.probabilities, abs=1e-5)
    assert np.abs(told["p"] - expected.p_values).max() < 0.02
    assert np.mean(told["actions"] == np.array(expected.actions)) > 0.98
    alone = Runtime(tmp_path / "exported")  # the Gaussians of all classes but one have nothing to measure
    assert np.concatenate([alone.judge(image).scores for image in images[:30]]) == pytest.approx(
        told["scores"][:30], rel=1e-6, abs=1e-6
    )


def test_a_softmax_restricted_to_some_classes_stays_so(classifier: Classifier, digits: Dataset, tmp_path: Path) -> None:
    some = classifier.keeping(classifier.class_names[2:6])
    guard = Guard(["entropy", "max_logit"], false_alarms=0.1, rule="cauchy")
    guard.fit(some, digits.train, digits.test, None)
    images = digits.test.head(20).materialise()
    expected = guard.judge(images)
    told = Runtime(export_onnx(guard, tmp_path / "exported")).judge(images)
    assert told.probabilities.shape == (20, 4)
    assert told.probabilities == pytest.approx(expected.probabilities, abs=1e-5)
    assert told.scores == pytest.approx(expected.scores, rel=1e-4, abs=1e-4)
    shares = torch.tensor([[0.5, 0.3, 0.2], [1.0, 0.0, 0.0]])
    found = read_output(shares, logits=False, kept=[1, 2])[0].numpy()
    assert found == pytest.approx(restricted(shares.double().numpy(), None, [1, 2])[0])


@pytest.mark.parametrize("resize", ["crop", "pad", "stretch"])
def test_pictures_of_another_shape_are_resized_as_the_guard_does(
    classifier: Classifier, digits: Dataset, tmp_path: Path, resize: str
) -> None:
    model = Classifier(
        classifier.backend.module, class_names=classifier.class_names, input_shape=(1, 8, 8), resize=resize
    )
    guard = Guard(["entropy", "max_logit"], false_alarms=0.1, rule="cauchy")
    guard.fit(model, digits.train, digits.test, None)
    wide = [
        Image.fromarray(np.pad(np.rint(255 * image[0]).astype(np.uint8), ((0, 0), (4, 4)), constant_values=90))
        for image in digits.test.head(20).materialise()
    ]
    expected, told = guard.judge(wide), Runtime(export_onnx(guard, tmp_path / "exported")).judge(wide)
    assert told.probabilities == pytest.approx(expected.probabilities, abs=1e-5)


class CentreDistance(Supervisor):
    """What another package may add: the distance to the mean of the predicted class, in two forms."""

    name = "centre_distance"

    @property
    def needs(self) -> Needs:
        return Needs(traces=frozenset({Trace()}))

    def _fit(self, observation: Observation, labels: np.ndarray | None) -> None:
        traces, classes = observation.trace(Trace()), observation.predictions
        overall = traces.mean(axis=0)
        self.centres_ = np.stack(
            [
                traces[classes == label].mean(axis=0) if (classes == label).any() else overall
                for label in range(observation.num_classes)
            ]
        ).astype(np.float64)

    def _score(self, observation: Observation) -> np.ndarray:
        return np.linalg.norm(observation.trace(Trace()) - self.centres_[observation.predictions], axis=1)

    def _graph(self) -> Graph:
        return Graph(
            lambda seen, centres: torch.linalg.vector_norm(seen.traces[Trace()] - centres[seen.predictions], dim=1),
            centres=self.centres_,
        )


@pytest.mark.parametrize("by", ["object", "entry point"])
def test_a_supervisor_of_another_package_is_exported_without_touching_ours(
    by: str,
    classifier: Classifier,
    digits: Dataset,
    stress_split: StressSplit,
    strangers: ImageSet,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    check_supervisor(CentreDistance())
    if by == "entry point":
        entry = SimpleNamespace(name="centre_distance", value="theirs:CentreDistance", load=lambda: CentreDistance)
        monkeypatch.setattr("secondguess.contracts.registry.entry_points", lambda group: [entry])
        monkeypatch.setattr(registry.REGISTRY, "known", dict(registry.REGISTRY.known))
        monkeypatch.setattr(registry.REGISTRY, "complete", False)
    chosen = CentreDistance() if by == "object" else "centre_distance"
    guard = Guard(["pcs", chosen], false_alarms=0.1).fit(classifier, digits.train, digits.test, stress_split)
    runtime = Runtime(export_onnx(guard, tmp_path / "exported"), threads=1)
    expected = guard.judge(strangers)
    assert runtime.decisions.labels == ("pcs", "centre_distance")
    assert runtime.judge(strangers).scores == pytest.approx(expected.scores, rel=1e-4, abs=1e-4)
    assert np.abs(runtime.judge(strangers).p_values - expected.p_values).max() < 0.02


@pytest.mark.slow
def test_an_onnx_file_is_guarded_and_exported_in_two_graphs(
    classifier: Classifier, digits: Dataset, stress_split: StressSplit, strangers: ImageSet, tmp_path: Path
) -> None:
    from secondguess.guard.onnx_export import _exported

    path = tmp_path / "model.onnx"
    path.write_bytes(_exported(classifier.backend.module, [torch.rand(2, 1, 8, 8)], ["images"], ["raw"]))
    model = Classifier(str(path), class_names=classifier.class_names, device="cpu")
    guard = Guard(["pcs", "appearance", make("mdsa", layers="penultimate")], false_alarms=0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        guard.fit(model, digits.train, digits.test, stress_split)
    runtime = Runtime(export_onnx(guard, tmp_path / "exported"), threads=1)
    expected = guard.judge(strangers)
    assert runtime.judge(strangers).scores == pytest.approx(expected.scores, rel=1e-4, abs=1e-4)
    assert runtime.judge(strangers.materialise()[0])[0].verdict == expected[0].verdict


def test_an_export_that_is_killed_leaves_the_one_of_before(
    guard: Guard, strangers: ImageSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from secondguess.guard import onnx_export

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    (tmp_path / "model-of-mine.onnx").write_bytes(b"not ours")
    folder = export_onnx(guard, tmp_path)
    before = Runtime(folder, threads=1).judge(strangers).p_values.tolist()
    first = {path.name for path in folder.iterdir()}
    changed = Guard(["pcs"], false_alarms=0.1, rule="bonferroni")
    digits = load("digits")
    changed.fit(guard.classifier, digits.train, digits.test, stress=None)
    with monkeypatch.context() as patched:
        patched.setattr(onnx_export, "write_json_sealed", killed)
        with pytest.raises(KeyboardInterrupt):
            export_onnx(changed, folder)
    assert Runtime(folder, threads=1).judge(strangers).p_values.tolist() == before
    export_onnx(changed, folder)
    assert Runtime(folder, threads=1).decisions.labels == ("pcs",)
    second = {path.name for path in folder.iterdir()}
    assert len(second) == len(first) and "model-of-mine.onnx" in second, "nothing of the older one is left"


def test_what_cannot_be_exported_is_said(
    classifier: Classifier, digits: Dataset, stress_split: StressSplit, tmp_path: Path
) -> None:
    guard = Guard(["entropy", "lsa"], false_alarms=0.1).fit(classifier, digits.train, digits.test, stress_split)
    with pytest.raises(UserError, match="'lsa' cannot be exported to ONNX; these can: appearance, ash, deep_gini"):
        export_onnx(guard, tmp_path / "exported")
    asked = Classifier(classifier.predict, class_names=classifier.class_names)
    guard = Guard(["entropy"], false_alarms=0.1).fit(asked, digits.train, digits.test, stress_split)
    with pytest.raises(UserError, match="cannot be exported to ONNX; wrap the torch module itself"):
        export_onnx(guard, tmp_path / "exported")
    with pytest.raises(UserError, match="There is no exported guard"):
        Runtime(tmp_path / "nothing")
