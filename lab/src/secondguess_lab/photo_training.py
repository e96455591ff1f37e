"""How photograph classifiers are trained here: flips and shifts, SGD with Nesterov momentum, one cycle of its rate.

Faster than `secondguess.training` for hundreds of passes on a GPU: the images stay there, bfloat16 does the
convolutions, and the hundreds of small kernels of a step are recorded once and launched together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

__all__ = ["MEAN", "STD", "Training", "accuracy_of", "fit", "prepared", "probabilities_of"]

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
TESTED = 1000  # images at a time


@dataclass(frozen=True)
class Training:
    """How one model is trained.

    Attributes:
        network: a name of `secondguess_lab.reference.NETWORKS`, or `zoo:NAME`.
        augment: whether images are flipped and shifted.
        smoothing: label smoothing.
        mixup: parameter of the beta distribution of mixup; 0 for none.
        weight_decay: of all weights.
        epochs: passes over the images.
    """

    network: str
    augment: bool = True
    smoothing: float = 0.0
    mixup: float = 0.0
    weight_decay: float = 5e-4
    epochs: int = 30


def fit(
    model: nn.Module,
    images: NDArray[np.uint8],
    labels: NDArray[Any],
    plan: Training,
    device: str,
    batch: int = 256,
    lr: float = 0.2,
) -> None:
    """Train `model` in place on images (n, H, W, 3) with labels (n,) or soft labels (n, K)."""
    x = prepared(images, device, normalise=True)
    given = torch.from_numpy(np.asarray(labels)).to(device)
    y = functional.one_hot(given.long(), int(given.max()) + 1).float() if given.ndim == 1 else given.float()
    optimiser = torch.optim.SGD(
        model.parameters(), lr=lr, momentum=0.9, nesterov=True, weight_decay=plan.weight_decay, fused=device == "cuda"
    )
    steps = len(x) // batch
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, lr, total_steps=plan.epochs * steps, pct_start=0.2)
    mixing = torch.distributions.Beta(plan.mixup or 1.0, plan.mixup or 1.0)
    gradients = _Gradients(model.train(), plan.smoothing, device)
    for _ in range(plan.epochs):
        order = torch.randperm(len(x), device=device)
        for step in range(steps):
            rows = order[step * batch : (step + 1) * batch]
            inputs, target = x[rows], y[rows]
            if plan.augment:
                inputs = augmented(inputs)
            if plan.mixup:
                share, other = float(mixing.sample()), torch.randperm(batch, device=device)
                inputs, target = inputs.lerp(inputs[other], share), target.lerp(target[other], share)
            gradients(inputs.contiguous(memory_format=torch.channels_last), target)
            optimiser.step()
            schedule.step()
    model.eval()


class _Gradients:
    """Gives the parameters the gradients of a batch's loss; on CUDA recorded at the first batch, and replayed."""

    def __init__(self, model: nn.Module, smoothing: float, device: str) -> None:
        self.model, self.smoothing, self.device = model, smoothing, device
        self._graph: torch.cuda.CUDAGraph | None = None

    def __call__(self, inputs: Tensor, target: Tensor) -> None:
        """Of inputs (n, 3, H, W) and soft labels (n, K); n is always the same."""
        if self.device != "cuda":
            self._compute(inputs, target)
            return
        if self._graph is None:
            self._graph = self._recorded(inputs, target)
        self._inputs.copy_(inputs)
        self._target.copy_(target)
        self._graph.replay()

    def _compute(self, inputs: Tensor, target: Tensor) -> None:
        self.model.zero_grad(set_to_none=True)
        with torch.autocast(self.device, torch.bfloat16, cache_enabled=False):
            logits = self.model(inputs)
        loss = functional.cross_entropy(logits.float(), target, label_smoothing=self.smoothing)
        torch.autograd.backward(loss)

    def _recorded(self, inputs: Tensor, target: Tensor) -> torch.cuda.CUDAGraph:
        self._inputs, self._target = inputs.clone(), target.clone()
        before = {name: value.clone() for name, value in self.model.state_dict().items()}
        aside = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):  # what is set up at first use must not be recorded
            for _ in range(3):
                self._compute(self._inputs, self._target)
        torch.cuda.current_stream().wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._compute(self._inputs, self._target)
        self.model.load_state_dict(before)  # running means have seen the first batch three times
        return graph


def prepared(images: NDArray[np.uint8], device: str, *, normalise: bool) -> Tensor:
    """Images (n, H, W, 3) as (n, 3, H, W) on the device."""
    x = torch.from_numpy(np.ascontiguousarray(images)).to(device).permute(0, 3, 1, 2).float() / 255
    if not normalise:
        return x
    return (x - torch.tensor(MEAN, device=device).view(3, 1, 1)) / torch.tensor(STD, device=device).view(3, 1, 1)


def augmented(x: Tensor, shift: int = 4) -> Tensor:
    """Each image flipped or not, and shifted by up to `shift` pixels; what comes in from outside is black."""
    n, _, height, width = x.shape
    x = torch.where(torch.rand(n, 1, 1, 1, device=x.device) < 0.5, x.flip(3), x)
    padded = functional.pad(x, (shift,) * 4)
    top, left = torch.randint(0, 2 * shift + 1, (2, n), device=x.device)
    rows = (top[:, None] + torch.arange(height, device=x.device))[:, None, :, None]
    columns = (left[:, None] + torch.arange(width, device=x.device))[:, None, None, :]
    channels = torch.arange(x.shape[1], device=x.device)[None, :, None, None]
    return padded[torch.arange(n, device=x.device)[:, None, None, None], channels, rows, columns]


@torch.no_grad()
def probabilities_of(
    model: nn.Module, images: NDArray[np.uint8], device: str, *, normalise: bool = True
) -> NDArray[np.float32]:
    """Softmax (n, K) in float32."""
    model.eval()
    parts = [
        model(prepared(images[start : start + TESTED], device, normalise=normalise)).softmax(1).cpu().numpy()
        for start in range(0, len(images), TESTED)
    ]
    return np.concatenate(parts)


def accuracy_of(
    model: nn.Module, images: NDArray[np.uint8], labels: NDArray[Any], device: str, normalise: bool
) -> float:
    """Share of the images (n, H, W, 3) whose label is the model's first answer."""
    found = probabilities_of(model, images, device, normalise=normalise).argmax(axis=1)
    return float((found == labels).mean())
