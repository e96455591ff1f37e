"""To and from the detectors of pytorch-ood, by the shape of their interface alone.

`FromPytorchOOD(detector)` makes a supervisor of a detector that scores logits or features; by name it is
`pytorch_ood:KNN`, with its own options as in `pytorch_ood:KNN:options={"k": 5}`, wherever a supervisor can be named.
`to_pytorch_ood(supervisor, classifier)` makes a detector of a supervisor, for their benchmarks. Both sides agree that a
larger score is more suspicious. pytorch-ood, whose import brings torchvision, is imported only for a detector by name:
otherwise a detector is any object with the methods below, as pytorch-ood 0.4 defines them and older versions did for
the most part.

| their base class  | methods                            | here            |
|-------------------|------------------------------------|-----------------|
| LogitsDetector    | fit_logits, predict_logits         | `FromPytorchOOD`, reads logits |
| FeaturesDetector  | fit_features, predict_features     | `FromPytorchOOD`, reads traces |
| others            | need images, gradients or feature maps | not supported: an observation does not hold them |
"""

from __future__ import annotations

import copy
import re
import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from secondguess.contracts.registry import unknown
from secondguess.errors import UserError, require
from secondguess.model.needs import Needs
from secondguess.model.observation import Observation
from secondguess.supervisors._traces import Layers, chosen_traces, side_by_side
from secondguess.supervisors.base import Supervisor

if TYPE_CHECKING:
    import torch

    from secondguess.model.classifier import Classifier

__all__ = ["FromPytorchOOD", "SupervisorDetector", "to_pytorch_ood"]

BATCH = 4096  # rows handed to a detector at a time


class FromPytorchOOD(Supervisor):
    """Suspicious = a detector of pytorch-ood gives a large score.

    The detector is copied, not touched; fitting hands the copy the logits or traces of the training images with their
    labels (predictions if there are none; images of unknown label are left out). It can be audited like any supervisor.
    Saved can be one that was made by name and learns nothing, such as `EnergyBased`: what others learn is in an
    arbitrary object, and those can only be pickled.

    Args:
        detector: made without a model, such as `pytorch_ood.detector.KNN(None)`, or the name of its class.
        reads: `"logits"` or `"features"`; found out from its methods if `"auto"`. Versions before 0.4 had
            `predict_features` for both, so say which for one that takes logits.
        layers: the layers whose traces are the features; see `TraceSupervisor`.
        name: in reports; `ood_` and the class of the detector if left out.
        options: arguments for a detector that is given by name.
    """

    name: str = "pytorch_ood"
    family: ClassVar[str] = "pytorch-ood"

    def __init__(
        self,
        detector: Any,
        reads: Literal["auto", "logits", "features"] = "auto",
        layers: Layers = "penultimate",
        name: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        if reads not in ("auto", "logits", "features"):
            raise UserError(f"A detector reads 'logits' or 'features', or 'auto' finds out, not {reads!r}.")
        self._made = _by_name(detector, options or {}) if isinstance(detector, str) else detector
        kind = type(self._made).__name__
        if not (hasattr(self._made, "predict_logits") or hasattr(self._made, "predict_features")):
            raise UserError(
                f"A {kind} has neither predict_logits nor predict_features, so it cannot score what was observed; "
                "take a detector of logits or of features."
            )
        self.detector = detector
        self.reads = reads
        self.layers = layers
        self.options = options
        # Several detectors may stand in one audit, so name and requires_fit belong to the instance.
        self.name = name or "ood_" + re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", kind).lower()
        self.requires_fit = bool(getattr(self._made, "requires_fit", True))  # type: ignore[misc]
        chosen_traces(layers)

    @classmethod
    def by_name(cls, detail: str) -> dict[str, Any]:
        """The parameters that `pytorch_ood:DETAIL` stands for."""
        if not detail:
            raise UserError("Say which detector of pytorch-ood, as in pytorch_ood:EnergyBased or pytorch_ood:KNN.")
        return {"detector": detail}

    @property
    def needs(self) -> Needs:
        """The logits, or the traces of the chosen layers."""
        if self._reads_logits:
            return Needs(logits=True)
        return Needs(traces=frozenset(chosen_traces(self.layers)))

    @property
    def _reads_logits(self) -> bool:
        return self.reads == "logits" or (self.reads == "auto" and hasattr(self._made, "predict_logits"))

    def _method(self, detector: Any, verb: str) -> Any:
        """`fit_logits` and the like; `fit_features` where a detector of logits has no other."""
        wanted = f"{verb}_{'logits' if self._reads_logits else 'features'}"
        found = getattr(detector, wanted, None) or getattr(detector, f"{verb}_features", None)
        if found is None:
            raise UserError(f"A {type(detector).__name__} has no {wanted}, which is needed to make it a supervisor.")
        return found

    def _input(self, observation: Observation) -> NDArray[np.float32]:
        if self._reads_logits:
            assert observation.logits is not None
            return observation.logits
        return side_by_side(observation, chosen_traces(self.layers))

    def _fit(self, observation: Observation, labels: NDArray[np.int64] | None) -> None:
        import torch

        if not self.requires_fit:
            return
        classes = observation.predictions if labels is None else np.asarray(labels)
        known = np.flatnonzero(classes >= 0)
        detector = copy.deepcopy(self._made)
        values = torch.tensor(self._input(observation)[known])
        try:
            self._method(detector, "fit")(values, torch.tensor(classes[known]))
        except Exception as error:
            raise UserError(
                f"The detector {type(detector).__name__} could not be fitted on {len(known)} images: "
                f"{str(error).rstrip('.') or type(error).__name__}."
            ) from error
        self.detector_ = detector

    def _score(self, observation: Observation) -> NDArray[np.float64]:
        import torch

        predict = self._method(getattr(self, "detector_", self._made), "predict")
        values = self._input(observation)
        with torch.no_grad():
            parts = [
                predict(torch.tensor(values[start : start + BATCH])).detach().cpu().double().reshape(-1)
                for start in range(0, len(values), BATCH)
            ]
        return torch.cat(parts).numpy()


def _by_name(name: str, options: Mapping[str, Any]) -> Any:
    """A detector of pytorch-ood by the name of its class, whatever the case of its letters."""
    try:
        theirs = vars(require("pytorch_ood.detector", "ood"))
    except RuntimeError as error:  # a torchvision of another build
        raise UserError(f"pytorch-ood cannot be imported: {error}; install the torchvision of your torch.") from error
    kinds = {key: one for key, one in theirs.items() if isinstance(one, type) and hasattr(one, "predict")}
    found = next((one for key, one in kinds.items() if key.lower() == name.replace("_", "").lower()), None)
    if found is None:
        raise unknown("detector of pytorch-ood", name, kinds)
    try:
        return found(None, **options)
    except Exception as error:
        raise UserError(
            f"The detector {name!r} of pytorch-ood cannot be made by name: {error}; make it yourself and hand "
            "FromPytorchOOD(detector) in."
        ) from error


class SupervisorDetector:
    """A supervisor with the interface of a pytorch-ood `Detector`: `fit(loader)`, `predict(images)`, `to(device)`.

    Images are those of the classifier, (n, C, H, W) in [0, 1]; it normalises them itself. Made by `to_pytorch_ood`.
    """

    hyperparameter_space: ClassVar[dict[str, list[Any]]] = {}
    info: ClassVar[Any] = None

    def __init__(self, supervisor: Supervisor, classifier: Classifier) -> None:
        classifier.check(supervisor.needs, f"The supervisor {supervisor.name!r}")
        self.supervisor = supervisor
        self.classifier = classifier
        self.requires_fit = supervisor.requires_fit

    def __repr__(self) -> str:
        return f"SupervisorDetector({self.supervisor!r}, {self.classifier!r})"

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """The same as `predict`."""
        return self.predict(x)

    @property
    def device(self) -> None:
        """None: the classifier owns its device, and images are brought there whatever theirs is."""
        return None

    def to(self, device: Any) -> SupervisorDetector:
        """Return the detector unchanged."""
        return self

    def fit(self, data_loader: Iterable[tuple[torch.Tensor, torch.Tensor]]) -> SupervisorDetector:
        """Fit the supervisor on batches of images and labels, which are put together in memory.

        A label below 0 marks an image as out of distribution, as in all of pytorch-ood, and leaves it out.
        """
        images, labels = [], []
        for x, y in data_loader:
            known = y >= 0
            images.append(x[known].detach().cpu().numpy())
            labels.append(y[known].detach().cpu().numpy().astype(np.int64))
        if not sum(map(len, labels)):
            raise UserError("The loader gives no image with a label of 0 or more, so there is nothing to learn from.")
        seen = self.classifier.observe(np.concatenate(images), self.supervisor.needs)
        self.supervisor.fit(seen, np.concatenate(labels))
        return self

    def predict(self, x: torch.Tensor) -> torch.Tensor:
        """The scores (n,) float64 of images (n, C, H, W), on their device; larger = more suspicious."""
        import torch

        seen = self.classifier.observe(x.detach().cpu().numpy(), self.supervisor.needs)
        return torch.from_numpy(self.supervisor.score(seen)).to(x.device)


def to_pytorch_ood(supervisor: Supervisor, classifier: Classifier) -> SupervisorDetector:
    """A supervisor as a detector of pytorch-ood.

    Where pytorch-ood is imported the result also passes `isinstance(..., pytorch_ood.api.Detector)`, on which its
    benchmarks insist.

    Args:
        supervisor: fitted already, or `fit(loader)` will do it.
        classifier: what turns images into the observations that the supervisor needs.
    """
    if (api := sys.modules.get("pytorch_ood.api")) is not None:
        api.Detector.register(SupervisorDetector)
    return SupervisorDetector(supervisor, classifier)
