"""Training of photograph classifiers: it learns, and on CUDA a recorded step gives what an unrecorded one gives."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from secondguess_lab.photo_training import Training, _Gradients, accuracy_of, fit
from secondguess_lab.reference import build


def colours(count: int = 96) -> tuple[np.ndarray, np.ndarray]:
    """Noise that is mostly red or mostly blue."""
    rng = np.random.default_rng(0)
    labels = np.arange(count) % 2
    images = rng.integers(0, 80, (count, 16, 16, 3)).astype(np.uint8)
    images[np.arange(count), :, :, 2 * labels] += 120
    return images, labels


@pytest.mark.parametrize("mixup", [0.0, 0.4])
def test_it_learns(mixup: float) -> None:
    torch.manual_seed(0)
    images, labels = colours()
    model = build("resnet8", 2).to(memory_format=torch.channels_last)
    fit(model, images, labels, Training("resnet8", epochs=6, mixup=mixup), "cpu", batch=32, lr=0.1)
    assert accuracy_of(model, images, labels, "cpu", True) > 0.95
    assert not model.training


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_a_recorded_step_is_what_was_recorded() -> None:
    torch.manual_seed(0)
    models = [build("resnet8", 2).cuda().to(memory_format=torch.channels_last).train() for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    recorded, plain = (_Gradients(model, 0.1, "cuda") for model in models)
    for _ in range(2):
        inputs = torch.randn(8, 3, 16, 16, device="cuda").contiguous(memory_format=torch.channels_last)
        target = torch.eye(2, device="cuda")[torch.arange(8, device="cuda") % 2]
        recorded(inputs, target)
        plain._compute(inputs, target)
        for ours, theirs in zip(*(model.parameters() for model in models), strict=True):
            torch.testing.assert_close(ours.grad, theirs.grad, atol=1e-3, rtol=1e-2)
        for (name, ours), theirs in zip(models[0].named_buffers(), models[1].buffers(), strict=True):
            torch.testing.assert_close(ours, theirs, atol=1e-3, rtol=1e-2, msg=name)
