"""What scores cost on a GPU: a ResNet-50 in bfloat16 alone, and with softmax, KNN and ViM behind it.

    python gpu_throughput.py --out ../../results/scaling/gpu.json

Images are noise and weights are random: neither changes what is computed. The network is the zoo's, with one linear
layer behind its 2,048 features. All kinds are timed in turns, and the best turn of each counts. `bare` and `scored`
take images that lie on the device; `from memory` takes bytes from main memory, in the order in which a decoder leaves
them, and brings scores and probabilities back; `observe, score` is the road of any classifier, which brings logits and
traces into main memory first.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from secondguess import Classifier, Observation, zoo
from secondguess.devices import pick_device
from secondguess.supervisors import SupervisorSet, make
from secondguess.supervisors.scored_module import ScoredModule
from secondguess_lab.record import provenance, say, write

SUPERVISORS = ("max_softmax", "knn", "vim")
CLASSES, POOL = 1000, 4  # batches of images that are taken in turns
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
AIM = 0.8


class Bfloat16(nn.Module):
    """A network that computes in bfloat16, channels last, whatever it is fed."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network.to(torch.bfloat16, memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Logits (n, K) of normalised images (n, C, H, W)."""
        logits: torch.Tensor = self.network(images.to(torch.bfloat16, memory_format=torch.channels_last))
        return logits.float()


def main() -> None:
    """Measure, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--architecture", default="resnet50", help="of the zoo")
    parser.add_argument("--side", type=int, default=224)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--batches", type=int, default=20, help="of a turn")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--traces", type=int, default=50_000, help="that KNN compares with")
    parser.add_argument("--vim-traces", type=int, default=6_000, help="that ViM learns from")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    device, shape = pick_device(given.device), (3, given.side, given.side)
    network = _network(given.architecture, shape)
    how: Any = {"mean": MEAN, "std": STD, "output_kind": "logits", "batch_size": given.batch_size}
    classifier = Classifier(Bfloat16(network).eval(), input_shape=shape, device=str(device), **how)
    bytes_, pool = _images(given.batch_size, given.side, device)
    chosen = _fitted(classifier, pool, given.traces, given.vim_traces)
    rows = _throughput(classifier, chosen, pool, bytes_, given)
    settings = {name: value for name, value in vars(given).items() if name != "out"} | {"supervisors": SUPERVISORS}
    ratio = rows["scored"]["share of bare"]
    memory = torch.cuda.max_memory_allocated() / 2**30 if device.type == "cuda" else None
    found = {"rows": rows, "share": ratio, "aim": AIM, "met": ratio >= AIM, "gibibytes": memory}
    write(given.out, provenance(settings) | found)


def _network(architecture: str, shape: tuple[int, int, int]) -> nn.Module:
    """The convolutional part of an architecture of the zoo, and a linear layer."""
    whole = zoo.make(architecture, num_classes=2, input_shape=shape, seed=0).eval()
    parts = dict(whole.named_children())
    names = list(parts)
    trunk = nn.Sequential(*(parts[name] for name in names[: names.index("flatten") + 1]))
    with torch.inference_mode():
        width = trunk(torch.zeros(1, *shape)).shape[1]
    return nn.Sequential(trunk, nn.Linear(width, CLASSES)).eval()


def _images(size: int, side: int, device: torch.device) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Batches of bytes (n, H, W, C) in main memory, and the same normalised on the device."""
    rng = np.random.default_rng(0)
    arrays = [torch.from_numpy(rng.integers(0, 256, (size, side, side, 3), dtype=np.uint8)) for _ in range(POOL)]
    pinned = [one.pin_memory() if device.type == "cuda" else one for one in arrays]
    return pinned, [_normalised(one.to(device)) for one in pinned]


def _normalised(images: torch.Tensor) -> torch.Tensor:
    """Bytes (n, H, W, C) on the device as the network takes them."""
    mean, std = (torch.tensor(numbers, device=images.device).reshape(-1, 1, 1) for numbers in (MEAN, STD))
    return (images.permute(0, 3, 1, 2).float().div_(255) - mean) / std


def _fitted(classifier: Classifier, pool: list[torch.Tensor], traces: int, few: int) -> SupervisorSet:
    """The supervisors, fitted on noisy copies of the images in the pool."""
    made = [make(name) for name in SUPERVISORS]
    (trace, layer), *_ = classifier.locate(SupervisorSet(made).needs.traces, classifier.input_shape or ()).items()
    backend: Any = classifier.backend
    seen, logits = [], []
    with torch.inference_mode(), backend.recording([layer]) as recorded:
        for number in range(-(-traces // len(pool[0]))):
            images = pool[number % POOL]
            logits.append(backend.run(images + 0.3 * torch.randn_like(images)).float().cpu().numpy())
            seen.append(recorded[layer].float().flatten(1).cpu().numpy())
    whole = {"logits": np.concatenate(logits)[:traces], "traces": {trace: np.concatenate(seen)[:traces]}}
    many = Observation(**whole)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # random weights leave little to find
        return SupervisorSet([one.fit(many.take(slice(0, few)) if one.name == "vim" else many) for one in made])


def _throughput(
    classifier: Classifier,
    supervisors: SupervisorSet,
    pool: list[torch.Tensor],
    bytes_: list[torch.Tensor],
    given: argparse.Namespace,
) -> dict[str, dict[str, float]]:
    """Images a second of each kind, and what share of the bare ones that is."""
    backend: Any = classifier.backend
    module, device = ScoredModule(classifier, supervisors), backend.device
    pictures = torch.cat(bytes_).numpy()

    def from_memory(number: int) -> None:
        answer = module(_normalised(bytes_[number % POOL].to(device, non_blocking=True)))
        for part in answer:
            part.cpu()

    def observe_and_score(_number: int) -> None:
        supervisors.score(classifier.observe(pictures, supervisors.needs))

    kinds: dict[str, tuple[Callable[[int], object], int, int]] = {  # what, how often in a turn, of how many images
        "bare": (lambda number: backend.run(pool[number % POOL]), given.batches, given.batch_size),
        "scored": (lambda number: module(pool[number % POOL]), given.batches, given.batch_size),
        "from memory": (from_memory, given.batches, given.batch_size),
        "observe, score": (observe_and_score, 1, len(pictures)),
    }
    seconds: dict[str, list[float]] = {name: [] for name in kinds}
    with torch.inference_mode():
        for turn in range(given.turns + 1):
            for name, (call, times, images) in kinds.items():
                if name == "observe, score" and turn > 1:
                    continue  # slow, and not what is aimed at
                taken = _timed(call, times if turn else 2, device) / ((times if turn else 2) * images)
                if turn or name == "observe, score":
                    seconds[name].append(taken)
    best = {name: 1 / min(taken) for name, taken in seconds.items()}
    rows = {name: {"images a second": rate, "share of bare": rate / best["bare"]} for name, rate in best.items()}
    for name, row in rows.items():
        say(f"{name:<15} {row['images a second']:9,.0f} images a second, {row['share of bare']:.2f} of bare")
    return rows


def _timed(call: Callable[[int], object], times: int, device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize()
    began = time.perf_counter()
    for number in range(times):
        call(number)
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
