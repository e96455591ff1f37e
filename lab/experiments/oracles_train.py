"""Train the networks A to F of the oracles' paper on a GPU, and keep in small files what the oracles need of them.

    python oracles_train.py cifar10.npz mnist.npz --out kept --jobs 3
    python oracles_judge.py kept --data cifar10.npz --out results/oracles/cifar10.json  # later, on two cores

D, E and F are trained on 24,000 of the 60,000 images of CIFAR-10, A, B and C on 28,000 of the 70,000 of MNIST, both
with 2,500 for validation and the paper's split; C also on labels of which two are swapped (its C1, C2, C3). Of each
network its logits for validation and operation are kept, and the class that every layer infers for each image, as
SelfChecker has it: activations would be a hundred times larger. Of the first D, E and F the weights are kept, too.

Networks are trained in an order in which any beginning of it is of use. One that fails is tried once more without CUDA
graphs, then left out. `kept` has archives of at most 15 MB, complete after every network; called again, the command
goes on with those that are missing. After `--minutes` no network is begun, and half a minute later all are ended.
"""

from __future__ import annotations

import argparse
import io
import json
import multiprocessing
import os
import tarfile
import time
import traceback
from dataclasses import dataclass, replace
from functools import lru_cache
from multiprocessing.connection import wait
from pathlib import Path

import numpy as np
import torch

from secondguess import Needs, load, zoo
from secondguess.files import write_bytes
from secondguess.model.classifier import Classifier
from secondguess.training import train, train_fleet
from secondguess_lab.record import provenance, say
from secondguess_lab.studies.papers.oracles import SWAPS
from secondguess_lab.studies.tasks.oracles import selfchecker_of, split, swapped

LARGEST = 15_000_000  # bytes of an archive
GRACE = 0.5  # minutes for networks that are being trained when the time is over


@dataclass(frozen=True)
class Kind:
    """What the paper does with the images of one data set.

    Attributes:
        training: images to train on.
        levels: by what pixels from 0 to 1 are multiplied.
    """

    training: int
    levels: int


KINDS = {3: Kind(24_000, 1), 1: Kind(28_000, 255)}  # by the channels of the images: CIFAR-10, MNIST
VALIDATION = 2_500


@dataclass(frozen=True)
class Plan:
    """One network to train; `swap` is one of the paper's pairs of labels, such as "2/7", or empty."""

    network: str
    seed: int
    swap: str = ""

    @property
    def name(self) -> str:
        """Of the file, such as `icos_c_0_swap27`."""
        return f"{self.network}_{self.seed}" + (f"_swap{self.swap.replace('/', '')}" if self.swap else "")

    @property
    def channels(self) -> int:
        """Of the images it is for."""
        return zoo.get(self.network).input_shape[0]


def plans(photo_seeds, digit_seeds, swap_seeds, first=0):
    """All networks, the most wanted first."""
    found = []
    for number in range(max(photo_seeds, digit_seeds, swap_seeds)):
        seed = first + number
        found += [Plan(f"icos_{one}", seed) for one in "def"] if number < photo_seeds else []
        found += [Plan("icos_c", seed, pair) for pair in SWAPS] if number < swap_seeds else []
        found += [Plan(f"icos_{one}", seed) for one in "abc"] if number < digit_seeds else []
    return found


def main():
    """Hand networks to processes until all are trained or the time is over."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, nargs="+", help="CIFAR-10 and MNIST, or one of them, with all images")
    parser.add_argument("--out", type=Path, required=True, help="for the archives")
    parser.add_argument("--work", type=Path, help="for a file a network; `parts` beside the first data file by default")
    parser.add_argument("--jobs", type=int, default=3, help="processes")
    parser.add_argument("--minutes", type=float, default=4.3, help="after which no network is begun")
    parser.add_argument("--photo-seeds", type=int, default=3, help="networks of each of D, E and F")
    parser.add_argument("--digit-seeds", type=int, default=4, help="networks of each of A, B and C")
    parser.add_argument("--swap-seeds", type=int, default=2, help="networks of each of C1, C2 and C3")
    parser.add_argument("--first-seed", type=int, default=0, help="of each kind of network")
    parser.add_argument("--images", type=int, help="of each data set instead of all (a quick try)")
    parser.add_argument("--epochs", type=int, default=0, help="instead of the paper's (a quick try)")
    arguments = parser.parse_args()
    arguments.work = arguments.work or arguments.data[0].parent / "parts"
    for folder in (arguments.out, arguments.work):
        folder.mkdir(parents=True, exist_ok=True)
    files = {channels_of(path): path for path in arguments.data}
    wanted = plans(arguments.photo_seeds, arguments.digit_seeds, arguments.swap_seeds, arguments.first_seed)
    missing = [one for one in wanted if one.channels in files and not part(arguments.work, one).exists()]
    say(f"{len(missing)} of {len(wanted)} networks to train")
    pack(wanted, arguments)
    failed = Crew(arguments, files).train(missing, lambda: pack(wanted, arguments))
    say(f"{sum(part(arguments.work, one).exists() for one in wanted)} networks are kept; failed: {failed or 'none'}")


def channels_of(path):
    """1 for grey images, 3 for colour."""
    with np.load(path, allow_pickle=False) as file:
        shape = file["x_test"].shape
    return shape[3] if len(shape) == 4 else 1


def part(folder, plan):
    """The file of a network."""
    return folder / f"{plan.name}.npz"


def pack(wanted, arguments):
    """Write the archives anew, each at once, so that whoever looks finds whole ones."""
    archives, sizes = [[]], [0]
    for plan in wanted:
        path = part(arguments.work, plan)
        if path.exists():
            size = path.stat().st_size + 2048
            if sizes[-1] + size > LARGEST - 10_240:
                archives.append([])
                sizes.append(0)
            archives[-1].append(path)
            sizes[-1] += size
    for number, paths in enumerate(archives):
        if paths:
            content = io.BytesIO()
            with tarfile.open(fileobj=content, mode="w") as archive:
                for path in paths:
                    archive.add(path, path.name)
            write_bytes(arguments.out / f"networks_{number}.tar", content.getvalue())


class Crew:
    """Processes that train networks, each replaced when it dies.

    Args:
        arguments: of the command.
        files: the data by channels of their images.
    """

    def __init__(self, arguments, files):
        self.arguments, self.files = arguments, files
        self.context = multiprocessing.get_context("spawn")
        self.working = {}  # by connection: the process, and the plan with the number of earlier tries

    def train(self, missing, after_each):
        """Train the networks; return the names of those that failed."""
        began, failed = time.monotonic(), []
        queue = [(plan, 0) for plan in missing]
        for _ in range(min(self.arguments.jobs, len(queue))):
            self._hand(self._start(), queue.pop(0))
        while self.working:
            left = 60 * (self.arguments.minutes + GRACE) - (time.monotonic() - began)
            ready = wait(list(self.working), timeout=max(0.1, left))
            if not ready:
                failed += self._end()
                break
            for connection in ready:
                process, (plan, tries) = self.working.pop(connection)
                trouble = _answer(connection)
                if trouble:
                    say(f"{plan.name}, try {tries + 1}: {trouble}")
                    process.kill()
                    connection, process = None, None
                    if tries == 0:
                        queue.append((plan, 1))
                    else:
                        failed.append(plan.name)
                else:
                    after_each()
                if queue and time.monotonic() - began < 60 * self.arguments.minutes:
                    self._hand((connection, process) if connection else self._start(), queue.pop(0))
                elif connection:
                    connection.send(None)
        return failed + [f"{plan.name} (no time)" for plan, _ in queue]

    def _start(self):
        here, there = self.context.Pipe()
        process = self.context.Process(target=work, args=(there, self.arguments, self.files), daemon=True)
        process.start()
        there.close()
        return here, process

    def _hand(self, pair, task):
        connection, process = pair
        connection.send(task)
        self.working[connection] = (process, task)

    def _end(self):
        """Stop what still runs; the names of the networks."""
        for process, _ in self.working.values():
            process.kill()
        return [f"{plan.name} (no time)" for _, (plan, _) in self.working.values()]


def _answer(connection):
    """What went wrong, or nothing."""
    try:
        return connection.recv()
    except (EOFError, OSError):
        return "its process died"


def work(connection, arguments, files):
    """Train what is handed over until there is nothing more; stop after a failure, which may have hurt the GPU."""
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // (arguments.jobs + 1)))
    while (task := connection.recv()) is not None:
        plan, tries = task
        try:
            looked_at(plan, files[plan.channels], arguments, replay=tries == 0)
        except Exception:
            connection.send(traceback.format_exc()[-1500:])
            return
        connection.send(None)


@lru_cache(maxsize=2)
def opened(path, channels, images):
    """The data of a file, and its three parts in the paper's sizes, or smaller in proportion."""
    data, kind = load(path), KINDS[channels]
    share = 1.0
    if images is not None:
        share = images / (len(data.train) + len(data.test))
        train, test = (one.take(np.arange(round(share * len(one)))) for one in (data.train, data.test))
        data = replace(data, train=train, test=test)
    return data, split(data, round(share * kind.training), round(share * VALIDATION))


def looked_at(plan, path, arguments, *, replay):
    """Train one network, and write down what it and SelfChecker's layers say."""
    began = time.perf_counter()
    data, sets = opened(path, plan.channels, arguments.images)
    order = swapped(SWAPS[plan.swap]) if plan.swap else np.arange(len(data.test.class_names))
    # Whoever swapped the labels of training images did so before they were set apart for validation.
    training, validation, operation = (*(replace(one, labels=order[one.labels]) for one in sets[:2]), sets[2])
    opening, levels = time.perf_counter() - began, KINDS[plan.channels].levels
    model = learnt(plan, training, levels, arguments.epochs, replay=replay)
    training_seconds = time.perf_counter() - began - opening
    classifier = Classifier(
        model, std=1 / levels, class_names=training.class_names, input_shape=training.shape, device="auto"
    )
    checker = selfchecker_of(classifier, wide=plan.channels == 3)
    needs = checker.needs | Needs(logits=True)
    known, held_out, operating = (classifier.observe(one, needs) for one in (training, validation, operation))
    checker.fit(known, held_out)
    found = {
        "layers": np.array([trace.layer for trace in checker.layers] + ["output"]),
        "training/accuracy": np.array(known.correct.mean()),
    }
    for title, seen in (("validation", held_out), ("operation", operating)):
        found[f"{title}/logits"] = seen.logits.astype(np.float16)
        found[f"{title}/predictions"] = seen.predictions.astype(np.int8)
        found[f"{title}/inferred"] = checker.infer(seen).astype(np.int8)
    if plan.channels == 3 and plan.seed == 0:
        weights = model.state_dict()
        found |= {f"weights/{name}": one.cpu().numpy().astype(np.float16) for name, one in weights.items()}
    seconds = time.perf_counter() - began - opening - training_seconds
    about = provenance(vars(arguments) | {"network": plan.network, "seed": plan.seed, "swap": plan.swap}, data)
    about |= {"replay": replay, "training_seconds": training_seconds, "selfchecker_seconds": seconds}
    content = io.BytesIO()
    np.savez_compressed(content, about=np.array(json.dumps(about, default=str)), **found)
    write_bytes(part(arguments.work, plan), content.getvalue())
    say(
        f"{plan.name}: validation accuracy {held_out.correct.mean():.4f}, training {training_seconds:.0f} s, "
        f"layers {seconds:.0f} s, {len(content.getvalue()) / 1e6:.1f} MB"
    )


def learnt(plan, images, levels, epochs, *, replay):
    """The trained network; `replay` launches a step of a GPU at once."""
    recipe = zoo.get(plan.network).recipe.as_kwargs(fleet=replay) | ({"epochs": epochs} if epochs else {})
    shape, classes = images.shape, len(images.class_names)

    def made(seed):
        return zoo.make(plan.network, num_classes=classes, input_shape=shape, seed=seed)

    pixels = images.materialise() * np.float32(levels)
    if replay:
        return train_fleet(made, 1, pixels, images.labels, seed=plan.seed, mode="loop", **recipe)[0]
    model = made(plan.seed)
    train(model, pixels, images.labels, seed=plan.seed, **recipe)
    return model


if __name__ == "__main__":
    main()
