"""A model and its scores as one torch module: for export, and for a GPU from which only the scores are to come back.

    module = ScoredModule(classifier, SupervisorSet(supervisors))
    probabilities, scores = module(images)      # normalised, on the classifier's device; so are both results

Nothing leaves the device on the way, and what the supervisors have learnt stays there. Scores are in double precision;
they equal `Supervisor.score` as far as the model gives the same logits and traces.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import nn

from secondguess.errors import UserError
from secondguess.model.backends.torch_module import TorchBackend
from secondguess.model.needs import Trace
from secondguess.model.tensors import read_output, reduce_trace
from secondguess.supervisors.base import Supervisor
from secondguess.supervisors.graph import Tensors
from secondguess.supervisors.registry import get, names
from secondguess.supervisors.supervisor_set import SupervisorSet

if TYPE_CHECKING:
    from secondguess.model.classifier import Classifier

__all__ = ["ScoreHead", "ScoredModule"]


class ScoreHead(nn.Module):
    """From the raw output and the layers of a model to probabilities (n, K) and scores (n, m).

    Where a supervisor needs the images, they come between the two: (n, C, H, W) in [0, 1].

    Args:
        supervisors: fitted; a `UserError` for one that has no graph.
        logits: whether the raw output is logits, rather than probabilities.
        places: the position of each trace's layer among the layers that are handed in.
        kept: the places of the classes that the softmax is restricted to; all if left out.
    """

    def __init__(
        self,
        supervisors: SupervisorSet,
        *,
        logits: bool,
        places: Mapping[Trace, int],
        kept: Sequence[int] | None = None,
    ) -> None:
        super().__init__()
        self.parts = nn.ModuleList([_graph_of(one) for one in supervisors.supervisors])
        self._pixels, self._logits, self._places, self._kept = supervisors.needs.images, logits, dict(places), kept

    def forward(self, raw: torch.Tensor, *others: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Probabilities (n, K) and scores (n, m)."""
        images, layers = (others[0], others[1:]) if self._pixels else (None, others)
        probabilities, values = read_output(raw, logits=self._logits, kept=self._kept)
        traces = {trace: reduce_trace(trace, layers[place]).double() for trace, place in self._places.items()}
        seen = Tensors(probabilities, values if self._logits else None, traces, images)
        return probabilities, torch.stack([part(seen) for part in self.parts], dim=1)


class ScoredModule(nn.Module):
    """From normalised images (n, C, H, W) to probabilities (n, K) and scores (n, m), in eval mode.

    Args:
        classifier: with a torch module, on whose device everything is done.
        supervisors: fitted; a `UserError` for one that has no graph.
        shape: (C, H, W) of the images; what the model says that it takes, if left out.
    """

    mean: torch.Tensor
    std: torch.Tensor

    def __init__(
        self, classifier: Classifier, supervisors: SupervisorSet, shape: tuple[int, int, int] | None = None
    ) -> None:
        super().__init__()
        backend, shape = classifier.backend, shape or classifier.input_shape
        if not isinstance(backend, TorchBackend):
            raise UserError(
                f"{backend.kind} cannot be joined with its scores in one module; wrap the torch module itself."
            )
        if shape is None:
            raise UserError("The model does not say which images it takes; give the shape (C, H, W) of the images.")
        located = classifier.locate(supervisors.needs.traces, shape)
        layers = list(dict.fromkeys(located.values()))
        places = {trace: layers.index(layer) for trace, layer in located.items()}
        logits = "logits" in classifier.gives
        head = ScoreHead(supervisors, logits=logits, places=places, kept=classifier.kept)
        self.module, self.scores = backend.module, head.to(backend.device)
        self._backend, self._layers, self._pixels = backend, layers, supervisors.needs.images
        for name in ("mean", "std") if self._pixels else ():
            numbers = torch.tensor(getattr(classifier, name).reshape(-1, 1, 1), device=backend.device)
            self.register_buffer(name, numbers)
        self.eval()

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Probabilities (n, K) and scores (n, m)."""
        with self._backend.recording(self._layers) as recorded:
            raw = self._backend.run(images)
        pixels = [images * self.std + self.mean] if self._pixels else []
        return self.scores(raw, *pixels, *(recorded[layer] for layer in self._layers))


def _graph_of(supervisor: Supervisor) -> nn.Module:
    if not supervisor.has_graph():
        can = sorted(name for name in names() if get(name).has_graph())
        raise UserError(f"The supervisor {supervisor.name!r} cannot be exported to ONNX; these can: {', '.join(can)}.")
    return supervisor.graph()
