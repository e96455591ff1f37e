"""AmbiFlow: ambiguous images of any kind, photographs too, from one conditional generative model for all classes.

1. train a conditional flow-matching model on all classes                                       `training.py`
2. calibrate it as a judge: how well it denoises an image as each class, on held-out images     `judge.py`
3. compose images between two classes, under control of their log-odds                          `balancing.py`
4. keep those that are ambiguous to the judge, agreed on by a committee and as real as plain samples   `selection.py`
5. draw until every pair has its share                                                          `drawing.py`

Where AmbiGuess trains several autoencoders for each pair of classes, and accepts them only if the classes are easy to
tell apart, one model serves all pairs here. The soft label is the share of the first class by the generative judge and
the committee together; the model under test plays no part in it.
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from secondguess.contracts.sealed import digest_of
from secondguess.devices import pick_device
from secondguess.errors import UserError
from secondguess.images import ImageSet
from secondguess.planning import Pace, Price, timed
from secondguess.progress import Progress, Silent
from secondguess.stress.ambiguous.base import AmbiguousGenerator, AmbiguousImages, assemble
from secondguess.stress.ambiguous.flow.card import flow_card
from secondguess.stress.ambiguous.flow.committee import Committee
from secondguess.stress.ambiguous.flow.drawing import FlowDrawer
from secondguess.stress.ambiguous.flow.fields import VelocityField
from secondguess.stress.ambiguous.flow.judge import DenoisingJudge
from secondguess.stress.ambiguous.flow.losses import TIMES
from secondguess.stress.ambiguous.flow.model import Flow
from secondguess.stress.ambiguous.flow.network import FlowNetwork, architecture_for
from secondguess.stress.ambiguous.flow.pool import POOLED, Pool, pool_of
from secondguess.stress.ambiguous.flow.reality import Reality
from secondguess.stress.ambiguous.flow.rounds import Rounds
from secondguess.stress.ambiguous.flow.sampling import noise_of
from secondguess.stress.ambiguous.flow.selection import Selection
from secondguess.stress.ambiguous.flow.training import Schedule, train_flow
from secondguess.stress.ambiguous.pairs import choose_pairs
from secondguess.stress.base import Given
from secondguess.stress.registry import register

__all__ = ["AmbiFlow"]

# Of the training images, for the calibration of the judges: a few numbers, for which a thousand images do. The
# generative judge with the presets of a processor, where it is slow, takes fewer of them.
HELD_OUT, MOST_HELD_OUT = 0.05, 1000
CALIBRATED = {"full": 1000, "medium": 1000, "small": 400, "tiny": 400}
OF_EACH_CLASS = 2  # images that are kept back at least, where a class has them
STEPS = {"full": 5000, "medium": 4000, "small": 1500, "tiny": 300}
BATCH = {"full": 512, "medium": 512, "small": 64, "tiny": 64}
RATE = {"full": 4e-4, "medium": 6e-4, "small": 1e-3, "tiny": 2e-3}
# Of noise, for the judge's first two looks, the third and the fourth.
DRAWS = {"full": (4, 12, 24), "medium": (4, 12, 24), "small": (4, 8, 12), "tiny": (4, 4, 4)}
PLAIN = 500  # plain samples that realism is measured by
# Passes in a step for each image; candidates for an image between any two classes of photographs; passes to judge one.
LEARNING, DRAWN, JUDGED = 3, 3, 320
EACH, EACH_ON_PROCESSOR = 256, 16  # candidates for each pair in a round
TIMED = 32
COMMITTEE = "committee"  # folder in that of a generator


@register
class AmbiFlow(AmbiguousGenerator):
    """Ambiguous images from a conditional flow-matching model, which is also their judge.

    Args:
        pairs: `"all"`, `"confused"` (those between which ambiguity is realistic, judged from the data), or a list.
        generator: the folder of a trained generator; None trains one.
        preset: `"full"` for photographs on a GPU, `"medium"` for grey images there, `"small"` for grey images of 28
            pixels on a processor, `"tiny"` for trials; `"auto"` takes the one that suits images and device.
        train_steps: of the training; None takes what suits the preset.
        flips: whether images may be mirrored; None mirrors colour images only.
        delta_max: the largest |p1 - p2|.
        mass: the least probability that the judge gives to the two classes together.
        disagreement: the largest difference between the judges' shares of the first class.
        committee: whether a committee of classifiers is a second judge.
        realism: whether to reject images that are less real than plain samples of the generator.
        guidance: of the sampling; more makes classes clearer and images less real.
        contrast: how far guidance leads away from the classes that the committee takes a pair's images for (1), rather
            than from images of no class (0). Without a committee it is always the latter.
        steps: of the sampling.
        each: candidates in a round for each pair, in the mean; None takes what suits the device.
        minutes: after which no further round of candidates begins, so that a drawing ends with what it has found.
        stratify: let every pair contribute equally.
        device: where to train and to compute.
        folder: where the generator is kept, so that an interrupted training or drawing goes on and a finished training
            is used again.
    """

    name = "ambiguous_flow"
    expensive = True

    def __init__(
        self,
        *,
        pairs: str | Sequence[tuple[int, int]] = "confused",
        generator: str | Path | None = None,
        preset: str = "auto",
        train_steps: int | None = None,
        flips: bool | None = None,
        delta_max: float = 0.5,
        mass: float = 0.9,
        disagreement: float = 0.35,
        committee: bool = True,
        realism: bool = True,
        guidance: float = 3.5,
        contrast: float = 1.0,
        steps: int = 16,
        each: int | None = None,
        minutes: float | None = None,
        stratify: bool = True,
        device: str = "auto",
        folder: str | Path | None = None,
    ) -> None:
        if not 0 < delta_max <= 1:
            raise UserError(f"delta_max is {delta_max}; |p1 - p2| lies between 0 and 1.")
        if not 0 < mass < 1:
            raise UserError(f"mass is {mass}; the probability of a pair lies between 0 and 1.")
        if not 0 <= contrast <= 1:
            raise UserError(f"contrast is {contrast}; it is a share, between 0 and 1.")
        self.pairs, self.generator, self.preset, self.train_steps = pairs, generator, preset, train_steps
        self.flips, self.delta_max, self.mass, self.disagreement = flips, delta_max, mass, disagreement
        self.committee, self.realism, self.steps = committee, realism, steps
        self.guidance, self.contrast = guidance, contrast
        self.each, self.minutes, self.stratify, self.device = each, minutes, stratify, device
        self.folder = Path(folder) if folder is not None else None

    def price(self, pace: Pace, given: Given) -> Price:
        """The training, unless a generator is at hand, and the candidates for each image, by a pass that is timed."""
        device = pick_device(given.device if self.device == "auto" else self.device)
        preset = self._preset(device, given.nominal)
        architecture = architecture_for(given.nominal.shape, given.nominal.num_classes, preset)
        field = VelocityField(FlowNetwork(architecture).to(device), compiled=False, batch_size=TIMED)
        classes, times = torch.zeros(TIMED, dtype=torch.int64, device=device), torch.full((TIMED,), 0.5, device=device)
        look = partial(field, noise_of(TIMED, architecture.padded, 0, device), times, classes)
        look()
        one = timed(look, pace.clock) / TIMED
        trained = self.generator is not None or Flow.at_hand(self.folder or given.generator)
        fixed = 0.0 if trained else LEARNING * one * BATCH[preset] * (self.train_steps or STEPS[preset])
        if self.committee and not trained:
            fixed += one * 4 * POOLED * len(TIMES) * sum(DRAWS[preset])  # two classes of mixtures and of real images
        return Price(DRAWN * (3 * self.steps + JUDGED) * one, fixed, len(given.nominal), self.least, "images")

    def _preset(self, device: torch.device, images: ImageSet) -> str:
        if self.preset != "auto":
            return self.preset
        if device.type != "cuda":
            return "small"
        return "medium" if images.shape[0] == 1 else "full"

    def _flips(self, images: ImageSet) -> bool:
        return images.shape[0] == 3 if self.flips is None else self.flips

    def fit(
        self, train: ImageSet, *, held_out: ImageSet | None = None, seed: int = 0, progress: Progress | None = None
    ) -> Flow:
        """Train a generator and calibrate it as a judge; read from the folder, if the same one is there.

        Args:
            train: labelled images; a twentieth is kept back for calibration where `held_out` is left out.
            held_out: other labelled images, to calibrate with; of very many some are taken (`CALIBRATED`).
            seed: of everything random.
            progress: where to report.
        """
        device = pick_device(self.device)
        preset = self._preset(device, train)
        learnt, kept_back = _parts(train, held_out, seed)
        architecture = architecture_for(train.shape, train.num_classes, preset)
        kept_back = _some(kept_back, CALIBRATED[preset] / len(kept_back), seed)
        if len(np.unique(kept_back.labels)) < 2:
            raise UserError("The held-out images have one class; the judge is calibrated on images of several.")
        schedule = Schedule(
            steps=self.train_steps or STEPS[preset],
            batch_size=BATCH[preset],
            lr=RATE[preset],
            flips=self._flips(train),
            seed=seed,
        )
        data = {"data": learnt.fingerprint, "held_out": kept_back.fingerprint}
        origin = {**data, "schedule": schedule.__dict__, "preset": preset}
        kept = self._kept()
        if kept is not None and kept.history.get("origin") == origin:
            return kept
        folder, began = None if self.folder is None else self.folder / "training", time.perf_counter()
        network, rows = train_flow(
            _bytes(learnt), learnt.labels, architecture, schedule, device=device, folder=folder, progress=progress
        )
        seconds = {"training": time.perf_counter() - began}
        few, draws, last = DRAWS[preset]
        field = VelocityField(network)
        judge = DenoisingJudge(field, few=few, draws=draws, last=last, mirrored=schedule.flips, seed=seed)
        quality = judge.fit(_bytes(kept_back), kept_back.labels, progress=progress)
        seconds["calibration"] = time.perf_counter() - began - seconds["training"]
        history = {"origin": origin, "training": rows, "judge": quality, "seconds": seconds}
        flow = Flow(network, train.class_names, judge, history)
        if self.folder is not None:
            flow.save(self.folder)
        return flow

    def _kept(self) -> Flow | None:
        """The generator in the folder; None where there is none of this version, or a damaged one."""
        if self.folder is None or not Flow.at_hand(self.folder):
            return None
        try:
            return Flow.load(self.folder, device=self.device)
        except UserError as error:
            warnings.warn(str(error), stacklevel=3)
            return None

    def generate(
        self,
        train: ImageSet,
        count: int,
        *,
        seed: int = 0,
        progress: Progress | None = None,
        trained: Flow | None = None,
    ) -> AmbiguousImages:
        """Make `count` ambiguous images of the classes of `train`; fewer, if the pairs do not yield more.

        Args:
            train: labelled images.
            count: how many.
            seed: of everything random.
            progress: where to report.
            trained: what `fit` returned.
        """
        if count < 1:
            raise UserError(f"{count} ambiguous images were asked for; ask for at least one.")
        progress = progress or Silent()
        pairs = choose_pairs(train, self.pairs, seed=seed)
        flow = trained or (
            self.fit(train, seed=seed, progress=progress)
            if self.generator is None
            else Flow.load(self.generator, device=self.device)
        )
        flow.check(train)
        learnt, _ = _parts(train, None, seed)
        committee = self.fit_committee(train, seed=seed, progress=progress) if self.committee else None
        selection = Selection(
            flow.judge,
            committee,
            self._reality(learnt, flow, seed, progress),
            self.delta_max,
            self.mass,
            self.disagreement,
            Pool() if committee is None else self.fit_pool(train, flow, committee, seed=seed, progress=progress),
        )
        settings = {name: value for name, value in self.params().items() if name not in ("device", "folder")}
        settings = {**settings, "generator": None if self.generator is None else str(self.generator), "seed": seed}
        each = self.each or (EACH if flow.field.device.type == "cuda" else EACH_ON_PROCESSOR)
        drawer = FlowDrawer(flow, selection, self.guidance, self.contrast, self.steps, each, seed)
        if self.folder is not None:
            told = {**settings, "pairs": pairs, "count": count, "data": learnt.fingerprint, "weights": flow.digest}
            told |= {"judge": _digest(flow.judge), "minutes": None}  # more go on
            told |= {"each": each, "committee": None if committee is None else committee.digest}
            told |= {"pool": selection.pool.to_dict()}
            drawer.rounds = Rounds(self.folder / "drawing", told)
        chosen = drawer.run(pairs, count, stratify=self.stratify, minutes=self.minutes, progress=progress)
        if chosen is None:
            raise UserError(
                f"None of {sum(drawer.drawn.values()):,} compositions passed every check "
                f"({drawer.spelt()}); train for longer (train_steps=...), or name other pairs."
            )
        card = flow_card(train, flow, drawer, chosen, count, settings)
        return AmbiguousImages(assemble(train, chosen, name=self.name, seed=seed), card)

    def fit_committee(self, train: ImageSet, *, seed: int = 0, progress: Progress | None = None) -> Committee:
        """Train the second judge; read from the folder, if the same one is there.

        Args:
            train: labelled images, of which a twentieth is kept back to calibrate it.
            seed: of everything random.
            progress: where to report.
        """
        learnt, kept_back = _parts(train, None, seed)
        committee = Committee(flips=self._flips(learnt), seed=seed, device=self.device)
        own = committee.about(learnt)
        for home, about in ((self.generator, None), (self.folder, own)):  # a generator's, whatever it has learnt
            known = None if home is None else Committee.load(Path(home) / COMMITTEE, about=about, device=self.device)
            if known is not None:
                return known
        committee.fit(learnt, kept_back, progress=progress)
        if self.folder is not None:
            committee.save(self.folder / COMMITTEE)
        return committee

    def fit_pool(
        self, train: ImageSet, flow: Flow, committee: Committee, *, seed: int = 0, progress: Progress | None = None
    ) -> Pool:
        """How the two judges make a label, by known mixtures of the images that were kept back to calibrate them.

        Read from the folder, or from that of the generator, if it is there. Both count alike where it cannot be known
        which images neither has learnt: with another seed than theirs, or with held-out images of somebody else.
        """
        learnt, kept_back = _parts(train, None, seed)
        about = {"weights": flow.digest, "judge": _digest(flow.judge), "committee": committee.digest}
        for home in (self.folder, self.generator):
            if home is not None and (known := Pool.load(home, about)) is not None:
                return known
        if not flow.history.get("origin", {}).get("data") == committee.learnt == learnt.fingerprint:
            return Pool()
        pool = pool_of(flow.judge, committee, _bytes(kept_back), kept_back.labels, seed=seed, progress=progress)
        if self.folder is not None:
            pool.save(self.folder, about)
        return pool

    def _reality(self, learnt: ImageSet, flow: Flow, seed: int, progress: Progress) -> Reality | None:
        if not self.realism:
            return None
        present = np.unique(learnt.labels)
        labels = present[np.arange(max(PLAIN, len(present))) % len(present)]
        plain = flow.sample(labels, guidance=self.guidance, seed=seed)
        return Reality(learnt, plain, seed=seed, device=self.device, progress=progress)


def _digest(judge: DenoisingJudge) -> str:
    """Of a judge's settings and calibrations."""
    return digest_of(json.dumps(judge.settings() | judge.calibrations()).encode())


def _parts(train: ImageSet, held_out: ImageSet | None, seed: int) -> tuple[ImageSet, ImageSet]:
    """What the generator learns from, and what it is calibrated with: every class in both."""
    if not train.is_labelled:
        raise UserError("Ambiguous images are made between the classes of labelled images; give images with labels.")
    known = train.take(np.flatnonzero(train.labels >= 0))
    if held_out is not None:
        return known, held_out.take(np.flatnonzero(held_out.labels >= 0))
    labels, counts = np.unique(known.labels, return_counts=True)
    if counts.min() < 2 * OF_EACH_CLASS:
        name = known.class_names[labels[counts.argmin()]]
        raise UserError(
            f"There are {counts.min()} images of the class {name!r}, but at least {2 * OF_EACH_CLASS} are needed."
        )
    held = _rows(known.labels, min(HELD_OUT, MOST_HELD_OUT / len(known)), [seed, 7])
    return known.take(np.setdiff1d(np.arange(len(known)), held)), known.take(held)


def _some(images: ImageSet, share: float, seed: int) -> ImageSet:
    """About this share of the images of every class, all of them if it is 1 or more."""
    return images if share >= 1 else images.take(_rows(images.labels, share, [seed, 9]))


def _rows(labels: NDArray[np.int64], share: float, seed: list[int]) -> NDArray[np.int64]:
    """Rows of about this share of every class, at least `OF_EACH_CLASS` where it has them."""
    rng, chosen = np.random.default_rng(seed), []
    for label in np.unique(labels):
        rows = rng.permutation(np.flatnonzero(labels == label))
        chosen.append(rows[: max(OF_EACH_CLASS, round(share * len(rows)))])
    return np.sort(np.concatenate(chosen))


def _bytes(images: ImageSet) -> NDArray[np.uint8]:
    return np.concatenate([np.rint(part * 255).astype(np.uint8) for part, _ in images.batches(1000)])
