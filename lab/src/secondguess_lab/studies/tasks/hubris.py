"""Companion sets between two classes, and models that look at them: Teixeira, Gomes, Soares and van Rijn (2025).

For one data set and one seed, in this order:

1. ambiguity estimators, for each kind that a variant wants: the one that judges while the generator learns, and one of
   other architectures, weights and images, "held out", that no generator ever sees;
2. stage 1 of a GAN, and from it stage 2 of every variant for every alpha and variance, of which the most realistic with
   an acceptable ACD is chosen (Table 1);
3. images of stage 1 and of each chosen generator, as they come and, if wanted, with rejection: what all estimators say
   of them, and how far they are from real ones (Table 2);
4. models of several families, trained on real images of the two classes, and their hubris on all sets; the reference of
   relative hubris is a held-out estimator (Table 3).

A variant is METHOD:COMBINE:SUBSETS, of which the last two may be left out. "ambigan:alternate:disjoint" takes the steps
of the authors' code, judged by an estimator as the paper describes it; "agreement:guarded:batch" is ours.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
from numpy.typing import NDArray

from secondguess.engine import TaskData
from secondguess.errors import UserError
from secondguess.images import Dataset
from secondguess.metrics.confusion_distance import acd
from secondguess.progress import Progress
from secondguess.stress.ambiguous.ambigan import AmbiGAN, Method, TrainedGan, best_of, estimator_for
from secondguess.stress.ambiguous.companion import Companion, Reality, Rejection, draw_companion
from secondguess.stress.ambiguous.estimator import AmbiguityEstimator, Subsets
from secondguess.stress.ambiguous.gan_losses import Combine, Target
from secondguess.stress.ambiguous.gan_networks import GanArchitecture
from secondguess.stress.ambiguous.gan_selection import Candidate, choose, pareto_front, search
from secondguess.stress.ambiguous.gan_step import GanRecipe
from secondguess.stress.ambiguous.gan_training import Snapshot, Watch
from secondguess_lab.studies.tasks.companion_measures import Spaces, judgement, of_classes, unit
from secondguess_lab.studies.tasks.companion_models import ask_models, check_families
from secondguess_lab.studies.tasks.opening import opened, training_images

__all__ = ["CompanionPlan", "Companions", "Variant", "measure_companions"]

HALF = Target(2, (0.5, 0.5))
BLOCKS = 2  # of the GAN for 28 x 28 pixels
FEWEST = 50  # images that are worth measuring

Row = dict[str, Any]


@dataclass(frozen=True)
class Variant:
    """A way to make companion images.

    Attributes:
        method: of AmbiGAN.
        combine: of the two losses.
        subsets: that the members of the estimator see.
    """

    method: Method
    combine: Combine
    subsets: Subsets

    @classmethod
    def parse(cls, text: str) -> Self:
        """From METHOD:COMBINE:SUBSETS, where what is left out is the method's own."""
        method, combine, subsets = (*text.split(":"), "", "")[:3]
        made = AmbiGAN(method=cast(Method, method), combine=cast(Combine, combine) if combine else None)
        options = {"subsets": subsets} if subsets else {}
        return cls(made.method, made.combine, estimator_for(made.method, (0, 1), **options).subsets)

    @property
    def judge(self) -> str:
        """Name of its kind of estimator: calibrated for our method only."""
        return f"{self.subsets}, calibrated" if self.method == "agreement" else self.subsets

    def __str__(self) -> str:
        return f"{self.method} {self.combine} {self.subsets}"


@dataclass(frozen=True)
class CompanionPlan:
    """What is made and how.

    Attributes:
        classes: two labels; the first is the positive one.
        variants: as `Variant.parse` takes them.
        epochs: of stage 1 and of stage 2.
        latent: length of the GAN's noise.
        filters: of its largest map.
        recipe: of its training.
        members: of an estimator.
        estimator_epochs: of its training.
        alphas: to choose from.
        variances: to choose from.
        guarded_alphas: the same for guarded steps.
        guarded_variances: the same for guarded steps.
        acceptable: ACD up to which realism decides.
        collapse: least variety against real images.
        selected_on: images by which the choice is made.
        count: images of a set.
        draws: how many may be drawn for each that is accepted; 0 for no sets with rejection.
        extractor_epochs: of the classifiers whose features measure realism.
        families: of models under test: names of the zoo, "convnext" or "vit".
        models: of each family.
        model_epochs: of their training.
        seed: of everything random.
        device: where to compute.
    """

    classes: tuple[int, int]
    variants: Sequence[str] = ("ambigan:alternate", "agreement")
    epochs: tuple[int, int] = (100, 50)
    latent: int = 256
    filters: int = 512
    recipe: GanRecipe = field(default_factory=GanRecipe)
    members: int = 50
    estimator_epochs: int = 200
    alphas: Sequence[float] = (0.5, 1.0, 1.5)
    variances: Sequence[float] = (0.01, 0.1)
    guarded_alphas: Sequence[float] = (4.0, 8.0)
    guarded_variances: Sequence[float] = (0.01,)
    acceptable: float = 0.08
    collapse: float = 0.2
    selected_on: int = 2048
    count: int = 5000
    draws: int = 50
    extractor_epochs: int = 5
    families: Sequence[str] = ()
    models: int = 3
    model_epochs: int = 10
    seed: int = 0
    device: str = "auto"

    @classmethod
    def of(cls, classes: Sequence[int], settings: Mapping[str, Any], seed: int) -> Self:
        """From what JSON can hold: the attributes by name, the recipe as a dictionary."""
        if len(classes) != 2 or len(settings["epochs"]) != 2:
            raise UserError(
                f"The classes are {list(classes)} and the epochs {list(settings['epochs'])}; give two classes, and the "
                "epochs of stage 1 and stage 2."
            )
        first, second = (int(label) for label in classes)
        stage1, stage2 = settings["epochs"]
        typed = {"epochs": (stage1, stage2), "recipe": GanRecipe(**settings["recipe"])}
        return cls((first, second), **(dict(settings) | typed), seed=seed)


def measure_companions(
    *, data: TaskData, name: str, classes: Sequence[int], settings: Mapping[str, Any], seed: int
) -> dict[str, Any]:
    """Everything about one data set and one run, by part: estimators, training, sets, ratios and hubris.

    Args:
        data: the real images.
        name: what the tables call them.
        classes: the two labels.
        settings: see `CompanionPlan.of`.
        seed: of everything random.
    """
    made = Companions(opened(data), CompanionPlan.of(classes, settings, seed))
    return {"name": name, **dict(made.parts()), "hubris": {"rows": made.hubris()}}


class Companions:
    """Companion sets of one data set, each part made when it is first needed.

    Args:
        data: with training and test images, both labelled.
        plan: what to make.
        folder: where trained estimators are kept, to be read the next time; None keeps none.
        progress: where to report.
    """

    def __init__(
        self, data: Dataset, plan: CompanionPlan, *, folder: Path | None = None, progress: Progress | None = None
    ) -> None:
        self.train, self.test, self.plan, self.progress = training_images(data), data.test, plan, progress
        self.folder = folder
        self.variants = [Variant.parse(text) for text in plan.variants]
        if not self.variants:
            raise UserError("No variant was given; give some as METHOD:COMBINE:SUBSETS, such as ambigan:alternate.")
        check_families(plan.families)

    def parts(self) -> Iterator[tuple[str, Any]]:
        """What is known of estimators, training and sets, as JSON can hold it, one after another.

        Beside the sets stands what real test images would have ("floor"): what no generator needs to beat.
        """
        yield "estimators", {kind: [self._about(one) for one in both] for kind, both in self.judges.items()}
        histories = {name: _history(trained, maker) for name, (trained, maker) in self.generators.items()}
        yield "training", histories | {"grid": self._searched[1]}
        rows = {name: self._measured(made) for name, made in self.sets.items()}
        rows["floor"] = {"realism": self.spaces.compare(self.spaces.test)}
        yield "sets", rows
        yield "ratios", {name: _ratios(row["realism"], rows["stage1"]["realism"]) for name, row in rows.items()}

    @cached_property
    def judges(self) -> dict[str, list[AmbiguityEstimator]]:
        """For each kind of estimator the one that judges, and the held-out one."""
        kinds = {one.judge: one for one in self.variants}
        return {kind: [self._estimator(one, place) for place in (0, 1)] for kind, one in kinds.items()}

    @cached_property
    def spaces(self) -> Spaces:
        """Real images of both classes in the spaces of features."""
        plan = self.plan
        training = {"epochs": plan.extractor_epochs, "seed": plan.seed, "device": plan.device}
        return Spaces(self.train, self.test, plan.classes, **training)

    @cached_property
    def stage1(self) -> Snapshot:
        """What every stage 2 starts from; it needs no estimator."""
        return self._maker(self.variants[0]).first_stage(self.train, seed=self.plan.seed, progress=self.progress)[0]

    @property
    def generators(self) -> dict[str, tuple[TrainedGan, AmbiGAN]]:
        """Of every variant the chosen generator, and what made it, all from one stage 1."""
        return self._searched[0]

    @cached_property
    def sets(self) -> dict[str, Companion]:
        """Images of stage 1 and of each variant as they come, and of each variant with rejection."""
        made: dict[str, Companion] = {}
        reality = Reality.of(self.train, self.plan.classes) if self.plan.draws else None
        for name, (trained, maker) in self.generators.items():
            for label, stage in (("stage1", 1), (name, 2)):
                if label not in made:
                    made[label] = self._drawn(trained, maker, stage)
            if reality is not None:
                try:
                    accepted = self._drawn(trained, maker, 2, reality)
                except UserError:  # not one image was accepted
                    continue
                if len(accepted) >= FEWEST:
                    made[f"{name}, accepted"] = accepted
        return made

    def hubris(self, others: Mapping[str, NDArray[np.float32]] | None = None) -> list[Row]:
        """What all models make of all sets, of `others` (n, C, H, W) by name, and of real images; see `ask_models`."""
        plan = self.plan
        return ask_models(
            self.train,
            self.test,
            {name: unit(made.images) for name, made in self.sets.items()} | dict(others or {}),
            next(iter(self.judges.values()))[1],
            families=plan.families,
            models=plan.models,
            epochs=plan.model_epochs,
            seed=plan.seed,
            device=plan.device,
        )

    @cached_property
    def _searched(self) -> tuple[dict[str, tuple[TrainedGan, AmbiGAN]], list[Row]]:
        """The chosen generators, and everything that was tried."""
        chosen: dict[str, tuple[TrainedGan, AmbiGAN]] = {}
        rows: list[Row] = []
        for variant in self.variants:
            maker, guarded = self._maker(variant), variant.combine == "guarded"
            maker.estimator = self.judges[variant.judge][0]
            candidates = search(
                maker,
                self.train,
                self.spaces.features,
                alphas=self.plan.guarded_alphas if guarded else self.plan.alphas,
                variances=self.plan.guarded_variances if guarded else self.plan.variances,
                images=self.plan.selected_on,
                seed=self.plan.seed,
                stage1=self.stage1,
                progress=self.progress,
            )
            best = choose(candidates, acceptable=self.plan.acceptable)
            chosen[str(variant)] = best.trained, maker
            maker.alpha, maker.variance = best.alpha, best.variance
            rows += _tried(str(variant), candidates, best)
        return chosen, rows

    def _estimator(self, variant: Variant, place: int) -> AmbiguityEstimator:
        number = 2 * self.plan.seed + place
        made = estimator_for(
            variant.method,
            self.plan.classes,
            members=self.plan.members,
            architectures=32 + number,
            epochs=self.plan.estimator_epochs,
            subsets=variant.subsets,
            seed=number,
            device=self.plan.device,
        )
        key = json.dumps([self.train.fingerprint, made.settings()], sort_keys=True)
        name = f"estimator_{number}_{hashlib.blake2b(key.encode(), digest_size=6).hexdigest()}.safetensors"
        path = self.folder and self.folder / name
        if path and path.exists():
            return AmbiguityEstimator.load(path, device=self.plan.device)
        made.fit(self.train, progress=self.progress)
        if path:
            made.save(path)
        return made

    def _about(self, estimator: AmbiguityEstimator) -> Row:
        """What an estimator is, and how good on real test images."""
        images, truth = of_classes(self.test, self.plan.classes)
        p, agreement = estimator.judge(images)
        return {
            **estimator.settings(),
            "best_epoch": best_of(estimator),
            "test_accuracy": float((p.argmax(axis=1) == truth).mean()),
            "test_acd": acd(p),
            "test_mutual_information": float(agreement.mutual_information.mean()),
        }

    def _maker(self, variant: Variant) -> AmbiGAN:
        """Everything but the estimator, alpha and variance."""
        return AmbiGAN(
            self.plan.classes,
            method=variant.method,
            combine=variant.combine,
            epochs=self.plan.epochs,
            architecture=GanArchitecture(self.plan.latent, self.plan.filters, BLOCKS),
            recipe=self.plan.recipe,
            watch=Watch(collapse=self.plan.collapse),
            device=self.plan.device,
        )

    def _drawn(self, trained: TrainedGan, maker: AmbiGAN, stage: int, reality: Reality | None = None) -> Companion:
        """Images of a stage as they come, or with rejection if there are real ones to compare with."""
        return draw_companion(
            trained.generator(maker.recipe, self.plan.device, stage=stage),
            trained.estimator,
            HALF,
            self.plan.count,
            rejection=Rejection(draws=self.plan.draws) if reality else Rejection.nothing(),
            reality=reality,
            seed=100 * self.plan.seed + (6 if reality else 5),
            progress=self.progress,
        )

    def _measured(self, made: Companion) -> Row:
        """Ambiguity and agreement by all estimators, and realism, of one set."""
        pixels = unit(made.images)
        seen = self.spaces.seen(pixels)
        return {
            "images": len(made),
            "drawn": made.drawn,
            "shares": {name: number / made.drawn for name, number in made.passed.items()},
            "judged": {
                kind: {part: judgement(one, pixels) for part, one in zip(("own", "held_out"), both, strict=True)}
                for kind, both in self.judges.items()
            },
            "contrast": self.spaces.contrast(pixels),
            "realism": self.spaces.compare(seen),
            "giqa": self.spaces.giqa(seen),
        }


def _tried(variant: str, candidates: Sequence[Candidate], best: Candidate) -> list[Row]:
    """One row for every setting that was tried."""
    front = pareto_front([one.frechet for one in candidates], [one.acd for one in candidates])
    shown = ("alpha", "variance", "frechet", "acd", "disagreement")
    return [
        {
            "variant": variant,
            **{key: getattr(one, key) for key in shown},
            "front": bool(on),
            "chosen": one is best,
        }
        for one, on in zip(candidates, front, strict=True)
    ]


def _history(trained: TrainedGan, maker: AmbiGAN) -> Row:
    """How a generator was made, and what was measured in every epoch."""
    return {
        **{key: getattr(maker, key) for key in ("method", "combine", "alpha", "variance")},
        "recipe": asdict(maker.recipe),
        "architecture": asdict(trained.stage2.architecture),
        "attempts": list(trained.attempts),
        "epochs": [trained.stage1.epoch, trained.stage2.epoch - trained.stage1.epoch],
        "rows": [{key: round(value, 5) for key, value in row.items()} for row in trained.stage2.history],
    }


def _ratios(realism: Mapping[str, Row], base: Mapping[str, Row]) -> dict[str, float]:
    """Fréchet distance over that of stage 1, by space."""
    return {space: row["frechet"] / base[space]["frechet"] for space, row in realism.items()}
