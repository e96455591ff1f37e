"""Beside other libraries, each of them real where it is installed.

transformers is a development package. The others are not, so that these tests skip and say what to install: timm,
torchvision, lightning, mlflow (or mlflow-skinny), wandb, fiftyone.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import secondguess as sg
import torchvision_here
from secondguess import UserError, integrations
from secondguess.integrations import GuardedPipeline, add_to_fiftyone, log_to_mlflow, log_to_wandb
from secondguess.integrations.trackers import metrics_of
from secondguess.model import of_weights
from secondguess.results import Result

SIDE = 16
NAMES = ("cat", "dog", "fox")
MEAN, STD = (0.2, 0.3, 0.4), (0.5, 0.6, 0.7)


def needs(package: str) -> Any:
    here = importlib.util.find_spec(package) is not None
    return pytest.mark.skipif(not here, reason=f"{package} is not installed: pip install {package}")


# Other people's warnings about other people's packages.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def images() -> sg.ImageSet:
    pixels = np.random.default_rng(0).integers(0, 256, (80, 3, SIDE, SIDE), dtype=np.uint8)
    return sg.ImageSet.from_arrays(pixels, np.arange(80) % 3, class_names=NAMES)


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * SIDE * SIDE, 8), nn.ReLU(), nn.Linear(8, 3)).eval()


def guard_of(model: Any, images: sg.ImageSet) -> sg.Guard:
    train, validation = images.split(0.2, seed=0)
    return sg.Guard(["entropy"], false_alarms=0.1, rule="bonferroni").fit(model, train, validation, minutes=None)


@pytest.fixture(scope="module")
def guard(images: sg.ImageSet) -> sg.Guard:
    described: Any = {"classes": NAMES, "mean": MEAN, "std": STD, "output_kind": "logits"}
    return guard_of(sg.Classifier.open(network(), device="cpu", **described), images)


@pytest.fixture(scope="module")
def pictures(images: sg.ImageSet, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("pictures")
    paths = [folder / f"{number}.png" for number in range(3)]
    for number, path in enumerate(paths):
        Image.fromarray((255 * images.images[number].transpose(1, 2, 0)).round().astype(np.uint8)).save(path)
    return paths


# ----------------------------------------------------------------------------------------------------- transformers


@pytest.fixture(scope="module")
def pipeline() -> Any:
    torchvision_here.prepare()
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
    torch.manual_seed(0)
    config = transformers.ViTConfig(image_size=SIDE, patch_size=8, **sizes, id2label=dict(enumerate(NAMES)))
    processor = transformers.ViTImageProcessor(size={"height": SIDE, "width": SIDE}, image_mean=MEAN, image_std=STD)
    model = transformers.ViTForImageClassification(config).eval()
    return transformers.pipeline("image-classification", model=model, image_processor=processor, device="cpu")


@pytest.fixture(scope="module")
def of_pipeline(pipeline: Any, images: sg.ImageSet) -> sg.Guard:
    return guard_of(pipeline, images)


def without_verdicts(answer: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"label": one["label"], "score": pytest.approx(one["score"], abs=1e-6)} for one in answer]


def test_a_guarded_pipeline_answers_as_the_pipeline_does(
    pipeline: Any, of_pipeline: sg.Guard, pictures: list[Path], tmp_path: Path
) -> None:
    guarded = GuardedPipeline(pipeline, of_pipeline)
    one, several = str(pictures[0]), [Image.open(path) for path in pictures]
    assert pipeline(one) == without_verdicts(guarded(one))
    assert pipeline(several, top_k=2) == [without_verdicts(answer) for answer in guarded(images=several, top_k=2)]
    lazily = guarded((path for path in pictures), batch_size=2, top_k=None)
    assert [pipeline(str(path)) for path in pictures] == [without_verdicts(answer) for answer in lazily]
    judged = of_pipeline.judge(one)[0]
    assert {key: guarded(one)[-1][key] for key in ("verdict", "action", "p_value")} == {
        "verdict": str(judged.verdict),
        "action": judged.action,
        "p_value": judged.p_value,
    }
    assert json.dumps(guarded(several)) and guarded([]) == []
    of_pipeline.save(tmp_path / "guard")
    assert GuardedPipeline(pipeline, tmp_path / "guard")(one) == guarded(one)


def test_what_a_guarded_pipeline_cannot_take_is_said(pipeline: Any, guard: sg.Guard, of_pipeline: sg.Guard) -> None:
    with pytest.raises(UserError, match="fitted on another model"):
        GuardedPipeline(pipeline, guard)
    guarded = GuardedPipeline(pipeline, of_pipeline)
    for wrong, message in {
        "https://example.org/cat.jpg": "is an address; fetch the image",
        None: "No image was given",
    }.items():
        with pytest.raises(UserError, match=message):
            guarded(wrong)
    with pytest.raises(UserError, match="top_k is 0; ask for at least 1"):
        guarded("cat.png", top_k=0)


# ---------------------------------------------------------------------------------------------- timm and torchvision


@needs("timm")
def test_a_model_of_timm_is_fed_as_timm_feeds_it() -> None:
    torchvision_here.prepare()
    timm = importlib.import_module("timm")
    model = timm.create_model("test_efficientnet", pretrained=False).eval()
    classifier = sg.Classifier.open(model, device="cpu", output_kind="logits")
    config = timm.data.resolve_model_data_config(model)
    assert classifier.input_shape == config["input_size"]
    assert len(classifier.class_names) == 1000 and classifier.class_names[1].startswith("goldfish")
    pixels = np.random.default_rng(0).integers(0, 256, (*classifier.input_shape[1:], 3), dtype=np.uint8)
    transform = timm.data.create_transform(**config | {"crop_pct": 1.0}, is_training=False)
    with torch.no_grad():
        expected = model(transform(Image.fromarray(pixels))[None]).softmax(dim=1).numpy()
    assert classifier.predict(pixels[None]) == pytest.approx(expected, abs=1e-6)
    other = timm.create_model("test_efficientnet", pretrained=False, num_classes=7)
    assert sg.Classifier.open(other, device="cpu").class_names == ()


@needs("torchvision")
def test_a_model_of_torchvision_is_fed_as_torchvision_feeds_it() -> None:
    torchvision_here.prepare()
    models = importlib.import_module("torchvision.models")
    weights, model = models.SqueezeNet1_1_Weights.DEFAULT, models.squeezenet1_1(weights=None).eval()
    classifier = sg.Classifier.open(model, device="cpu", output_kind="logits", **of_weights(weights))
    assert classifier.class_names[:2] == ("tench", "goldfish")
    side = classifier.input_shape[1]
    pixels = np.random.default_rng(0).integers(0, 256, (side, side, 3), dtype=np.uint8)
    transform = weights.transforms(resize_size=side)
    with torch.no_grad():
        expected = model(transform(Image.fromarray(pixels))[None]).softmax(dim=1).numpy()
    assert classifier.predict(pixels[None]) == pytest.approx(expected, abs=1e-6)


# -------------------------------------------------------------------------------------------------------- Lightning


@needs("lightning")
def test_a_trainer_judges_what_it_tests_and_predicts(images: sg.ImageSet, tmp_path: Path) -> None:
    torchvision_here.prepare()
    pytorch = importlib.import_module("lightning.pytorch")

    class Module(pytorch.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.network = network()

        def forward(self, x: Any) -> Any:
            return self.network(x)

        def test_step(self, batch: Any, batch_idx: int) -> None:
            self.log("test_accuracy", (self(batch[0]).argmax(1) == batch[1]).float().mean())

        def predict_step(self, batch: Any, batch_idx: int) -> Any:
            return self(batch[0]).argmax(1)

    module = Module().eval()
    described: Any = {"classes": NAMES, "mean": MEAN, "std": STD, "output_kind": "logits", "size": (SIDE, SIDE)}
    described |= {"channels": 3, "device": "cpu"}
    fitted = guard_of(sg.Classifier.open(module, **described), images)
    mean, std = (torch.tensor(values).reshape(-1, 1, 1) for values in (MEAN, STD))
    fed, labels = (torch.from_numpy(images.materialise()) - mean) / std, torch.from_numpy(images.labels)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(fed, labels), batch_size=32)
    judging = integrations.GuardCallback(fitted)
    quiet: Any = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = pytorch.Trainer(callbacks=[judging], accelerator="cpu", default_root_dir=tmp_path, **quiet)
    predicted = torch.cat(trainer.predict(module, loader)).numpy()
    expected = fitted.judge(images)
    assert np.concatenate([one.predictions for one in judging.judgements]).tolist() == predicted.tolist()
    found = np.concatenate([one.scores for one in judging.judgements])
    assert found == pytest.approx(expected.scores, abs=1e-5)  # pixels went there and back
    (logged,) = trainer.test(module, loader, verbose=False)
    alarms = np.concatenate([one.alarms for one in judging.judgements])
    assert len(alarms) == len(images), "those of the test alone"
    assert logged["guard/alarms"] == pytest.approx(alarms.mean(), abs=1e-6)
    right = (predicted == images.labels)[~alarms].mean()
    assert logged["guard/accuracy_accepted"] == pytest.approx(right, abs=1e-6)
    fitted.save(tmp_path / "guard")
    again = sg.Guard.load(tmp_path / "guard", sg.Classifier.open(module, **described))  # whatever a trainer noted
    trainer.callbacks[:] = [integrations.GuardCallback(again)]
    assert trainer.predict(module, loader) is not None


# --------------------------------------------------------------------------------------------------------- trackers


class Small(Result):
    """A result with a page, a number, and numbers that trackers do not take."""

    def summary(self) -> str:
        return "small"

    def to_dict(self) -> dict[str, Any]:
        return {"accuracy": {"value": 0.5, "of 90 %": 1}, "worst": float("nan"), "passed": True, "rows": [1]}

    def save(self, folder: str | Path) -> Path:
        Path(folder).mkdir()
        (Path(folder) / "report.html").write_text("<p>report</p>")
        return Path(folder)


def test_metrics_are_finite_numbers_under_names_that_trackers_take() -> None:
    assert metrics_of(Small(), "mine") == {"mine/accuracy.value": 0.5, "mine/accuracy.of 90 _": 1.0}


@needs("mlflow")
def test_a_result_is_logged_to_mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = importlib.import_module("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # a folder will do here; newer versions want a database
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    with mlflow.start_run() as run:
        log_to_mlflow(Small(), "audit")
    kept = mlflow.get_run(run.info.run_id)
    assert kept.data.metrics["audit/accuracy.value"] == 0.5
    files = mlflow.MlflowClient().list_artifacts(run.info.run_id, "audit")
    assert [one.path for one in files] == ["audit/report.html"]


@needs("wandb")
def test_a_result_is_logged_to_wandb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = importlib.import_module("wandb")
    monkeypatch.setenv("WANDB_SILENT", "true")
    with pytest.raises(UserError, match=r"no active run of Weights & Biases; call wandb.init\(\) first"):
        log_to_wandb(Small())
    run = wandb.init(mode="offline", dir=tmp_path, project="tests")
    log_to_wandb(Small(), "audit")
    summary = dict(run.summary)
    run.finish()
    assert summary["audit/accuracy.value"] == 0.5
    assert any(path.suffix == ".html" for path in tmp_path.rglob("*")), "the page is a panel"


def test_trackers_get_what_their_documentation_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the packages: stand-ins with the documented calls, in the order in which they are made."""
    calls: list[Any] = []
    mlflow = ModuleType("mlflow")
    mlflow.log_metrics = lambda metrics: calls.append(len(metrics))  # type: ignore[attr-defined]
    mlflow.log_artifacts = lambda local_dir, artifact_path: calls.append(  # type: ignore[attr-defined]
        (artifact_path, [one.name for one in Path(local_dir).iterdir()])
    )
    monkeypatch.setitem(sys.modules, "mlflow", mlflow)
    log_to_mlflow(Small(), "audit")
    assert calls == [2, ("audit", ["report.html"])]
    wandb, calls = ModuleType("wandb"), []
    wandb.Html = lambda text: text  # type: ignore[attr-defined]
    wandb.Artifact = lambda name, type: SimpleNamespace(  # type: ignore[attr-defined]
        add_dir=lambda folder: calls.append((name, type, [one.name for one in Path(folder).iterdir()]))
    )
    wandb.run = SimpleNamespace(id="r1", log=calls.append, log_artifact=lambda one: calls.append("kept"))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    log_to_wandb(Small(), "audit")
    assert calls[0]["audit/report"] == "<p>report</p>"
    assert calls[1:] == [("audit-r1", "secondguess", ["report.html"]), "kept"]


# --------------------------------------------------------------------------------------------------------- FiftyOne


class Samples:
    """The two documented methods of a data set of FiftyOne that are used."""

    def __init__(self, paths: list[str]) -> None:
        self.paths, self.fields = paths, {}

    def values(self, field: str) -> list[Any]:
        return self.paths if field == "filepath" else [self.fields[field].get(path) for path in self.paths]

    def set_values(self, field: str, values: dict[str, Any], key_field: str) -> None:
        assert key_field == "filepath"
        self.fields[field] = values


def test_samples_get_verdicts(guard: sg.Guard, pictures: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Against the documented interface; the next test has FiftyOne itself."""
    stand_in = ModuleType("fiftyone")
    stand_in.Classification = lambda **fields: SimpleNamespace(**fields)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "fiftyone", stand_in)
    check_samples(Samples([str(path) for path in reversed(pictures)]), guard, pictures)


def check_samples(samples: Any, guard: sg.Guard, pictures: list[Path]) -> None:
    judged = guard.judge(pictures)
    fields = add_to_fiftyone(samples, pictures, judged)
    assert fields == ["sg_prediction", "sg_p_value", "sg_verdict", "sg_action", "sg_evidence_entropy"]
    assert samples.values("sg_p_value") == judged.p_values[::-1].tolist()
    assert [one.label for one in samples.values("sg_prediction")] == [one.class_name for one in judged][::-1]
    assert add_to_fiftyone(samples, pictures[:1], [{"entropy": 0.5}], prefix="my_") == ["my_entropy"]
    assert samples.values("my_entropy") == [None, None, 0.5]
    with pytest.raises(UserError, match="2 paths were given for 3 rows"):
        add_to_fiftyone(samples, pictures[:2], judged)
    with pytest.raises(UserError, match=r"nowhere.png is not among the samples \(1 are not\)"):
        add_to_fiftyone(samples, ["nowhere.png"], [{"entropy": 0.5}])


@pytest.mark.slow
@needs("fiftyone")
def test_samples_of_fiftyone_itself_get_verdicts(guard: sg.Guard, pictures: list[Path]) -> None:
    fiftyone = importlib.import_module("fiftyone")  # starts a database
    try:
        data = fiftyone.Dataset()
    except fiftyone.core.config.FiftyOneConfigError as error:
        pytest.skip(f"the database of FiftyOne does not start here: {error}")
    data.add_samples([fiftyone.Sample(filepath=str(path)) for path in reversed(pictures)])
    check_samples(data, guard, pictures)
    data.delete()


def test_a_callback_without_lightning_says_what_to_install(guard: sg.Guard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lightning.pytorch", None)
    with pytest.raises(UserError, match=r'pip install "secondguess\[lightning\]"'):
        integrations.GuardCallback(guard)


def test_names_are_found_late() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nope'"):
        _ = integrations.nope
    assert set(integrations._FILES) == set(integrations.__all__)
