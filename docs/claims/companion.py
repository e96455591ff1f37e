"""docs/companion.md: what came out of the generative adversarial networks."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from statistics import correlation, mean, stdev

from claims import Claim, find, record, rows, says
from claims._hubris import AGREEMENT, AMBIGAN, SETS, asked_about, over_stage1, papers_setting, runs

PAGE = "docs/companion.md"
TITLES = ("MNIST 9 or 8", "Fashion-MNIST dress or T-shirt", "chest X-ray, pneumonia or not")
SHORT = ("MNIST", "Fashion-MNIST", "chest X-ray")
KINDS = {AMBIGAN: "disjoint", AGREEMENT: "batch, calibrated"}
WHOSE = ("own", "held_out")
PAPER = {"mnist": (0.08, 5.5), "fashion_mnist": (0.06, 2.9), "pneumoniamnist": (0.08, 1.1)}  # ACD, ratio of distances


def claims() -> Iterator[Claim]:
    """All of them."""
    yield from ambiguity()
    yield from realism()
    yield from agreement_about_models()
    yield from asked()
    bench = record("bench/gan_h200.json")
    yield says(
        "takes {:.1f} times (summed), {:.1f} times (alternating) and {:.1f} times (guarded) an iteration of "
        "stage 1; the {} members as one network are {:.0f} times as fast to train and {:.0f} times as fast to ask",
        *(find(bench["stages"], work=f"stage 2, {kind}")["ratio"] for kind in ("sum", "alternate", "guarded")),
        bench["members"],
        *(row["speed_up"] for row in bench["estimator"]),
    )
    compiled = record("bench/gan_compiled_h200.json")
    gains = [
        find(compiled["plain"]["stages"], work=row["work"])["seconds"] / row["seconds"]
        for row in compiled["compiled"]["stages"]
    ]
    yield says("iterations are then {:.1f} to {:.1f} times as fast", min(gains), max(gains))


def _spread(values: list[float]) -> tuple[float, float]:
    return mean(values), stdev(values)


def judged(name: str, kind: str, *, by: str, whose: str = "held_out") -> dict[str, float]:
    """What an estimator says of a set of the shorter runs."""
    return record(f"hubris/{name}.json")["sets"][kind]["judged"][by][whose]


def ambiguity() -> Iterator[Claim]:
    """The table of confusion distances, and the settings."""
    lines: list[tuple] = []
    for name, title in zip(SETS, TITLES, strict=True):
        own, other = ([one["sets"][AMBIGAN]["judged"]["disjoint"][whose] for one in runs(name)] for whose in WHOSE)
        lines.append(
            (
                f"| {title}, `ambigan` | {{:.3f}} ± {{:.3f}} | {{:.3f}} ± {{:.3f}} | {{:.2f}} | {{:.2f}} |",
                *(value for some in (own, other) for value in _spread([one["acd"] for one in some])),
                mean(one["mutual_information"] for one in other),
                PAPER[name][0],
            )
        )
        own, other = (judged(name, AGREEMENT, by=KINDS[AGREEMENT], whose=whose) for whose in WHOSE)
        lines.append(
            (
                f"| {title}, `agreement` | {{:.3f}} | {{:.3f}} | {{:.2f}} | |",
                *(own["acd"], other["acd"], other["mutual_information"]),
            )
        )
    yield rows(*lines)
    yield says(
        "2,048 images have an ACD of {:.3f} to {:.3f} (MNIST), {:.3f} to {:.3f} (Fashion-MNIST) and {:.3f} to {:.3f} "
        "(X-rays) then,",
        *(end(papers_setting(name)) for name in SETS for end in (min, max)),
    )
    yield says(
        "Three runs of MNIST beside each other took {:.0f} minutes, three of Fashion-MNIST beside two of X-rays "
        "{:.0f}.",
        *(max(one["seconds_until"]["ratios"] for one in runs(name)) / 60 for name in SETS[:2]),
    )
    grids = [record(f"hubris/{name}.json")["training"]["grid"] for name in SETS]
    chosen = [[find(grid, variant=kind, chosen=True) for grid in grids] for kind in KINDS]
    yield says(
        "α = {:.0f}, {:.0f} and {:.0f} with v = {:.2f}.",
        *(one["alpha"] for one in chosen[1]),
        chosen[1][0]["variance"],
        provided=len({one["variance"] for one in chosen[1]}) == 1,
    )
    four = [
        find(grid, variant=AGREEMENT, alpha=4.0)
        for grid in (grids[0], record("hubris/fashion_mnist_grid.json")["grid"])
    ]
    yield says(
        "The default α = 4 gives an ACD of {:.3f} on MNIST and {:.3f} on Fashion-MNIST, and more real images "
        "(Fréchet distance {:.0f} instead of {:.0f}, and {:.0f} instead of {:.0f}, in features of the other classes).",
        *(one["acd"] for one in four),
        four[0]["frechet"],
        chosen[1][0]["frechet"],
        four[1]["frechet"],
        chosen[1][1]["frechet"],
    )
    yield says(
        "(MNIST, held out: `ambigan` of a shorter run has {:.3f} by calibrated members, `agreement` {:.3f} by disjoint "
        "ones)",
        judged("mnist", AMBIGAN, by=KINDS[AGREEMENT])["acd"],
        judged("mnist", AGREEMENT, by=KINDS[AMBIGAN])["acd"],
    )
    clear = [
        judged(name, "stage1", by="disjoint", whose=whose)["mutual_information"]
        for name in SETS
        for whose in ("own", "held_out")
    ]
    yield says("unambiguous ones, their mutual information is {:.2f} to {:.2f}.", min(clear), max(clear))
    passed = [
        100 * record(f"hubris/{name}.json")["sets"][f"{AGREEMENT}, accepted"]["shares"]["accepted"] for name in SETS
    ]
    yield says(
        "of `agreement`'s images {:.0f} % (MNIST), {:.0f} % (Fashion-MNIST) and {:.0f} % (X-rays) pass all checks",
        *passed,
    )


def realism() -> Iterator[Claim]:
    """Distances over those of stage 1."""
    lines: list[tuple] = []
    for name, title in zip(SETS, SHORT, strict=True):
        for kind in KINDS:
            made = runs(name) if kind == AMBIGAN else [record(f"hubris/{name}.json")]
            ratios = [one["ratios"][kind] for one in made]
            values = [
                *(mean(one[space] for one in ratios) if space in ratios[0] else None for space in ("all", "others")),
                *(mean(over_stage1(name, kind, space)) for space in ("photographs", "pixels")),
            ]
            fields = [" |" if value is None else " {:.0f} |" if value >= 9.95 else " {:.1f} |" for value in values]
            paper = " {:.1f} |" if kind == AMBIGAN else " |"
            lines.append(
                (
                    f"| {title}, `{kind.split()[0]}` |" + "".join(fields) + paper,
                    *(value for value in values if value is not None),
                    *([PAPER[name][1]] if kind == AMBIGAN else []),
                )
            )
    yield rows(*lines)
    floors = [mean(one["ratios"]["floor"]["all"] for one in runs(name)) for name in SETS]
    yield says(
        "on MNIST stage 1 is nearer than real test images are (on Fashion-MNIST {:.0f} times and on X-rays {:.0f} "
        "times as far, by all classes)",
        *(1 / floor for floor in floors[1:]),
        provided=floors[0] > 1,
    )
    yield says(
        "it is right about {:.0f} % of its test images",
        100 * record("hubris/mnist_spaces.json")["photographs"]["accuracy"],
    )


def agreement_about_models() -> Iterator[Claim]:
    """Rank correlations over models."""
    known = [record(f"hubris/{name}.json")["hubris"]["rank_correlation"] for name in SETS]
    yield says(
        "both GANs {:.2f} (MNIST), {:.2f} (Fashion-MNIST) and {:.2f} (X-rays).",
        *(one[f"{AGREEMENT} / {AMBIGAN}"] for one in known),
    )
    ambiguess = [sorted(one[f"{kind} / ambiguess"] for kind in KINDS) for one in known[:2]]
    yield says(
        "GAN against AmbiGuess: {:.2f} to {:.2f} on MNIST and {:.2f} to {:.2f} on Fashion-MNIST.", *chain(*ambiguess)
    )
    real = [sorted(one[f"{kind} / real"] for kind in KINDS) for one in known]
    yield says(
        "GAN against real test images: {:.2f} to {:.2f}, {:.2f} to {:.2f}, and {:.2f} to {:.2f} on X-rays.",
        *chain(*real),
    )
    gans = [left_out(name, (AGREEMENT, AMBIGAN)) for name in SETS]
    others = [
        [value for kind in KINDS for value in left_out(name, (kind, "ambiguess"))]
        for name in ("mnist", "fashion_mnist")
    ]
    yield says(
        "both GANs agree by {:.2f} to {:.2f}, {:.2f} to {:.2f} and {:.2f} to {:.2f}, GAN and AmbiGuess by "
        "{:.2f} to {:.2f} on MNIST and {:.2f} to {:.2f} on Fashion-MNIST",
        *chain(*((min(values), max(values)) for values in (*gans, *others))),
    )


def left_out(name: str, pair: tuple[str, str]) -> list[float]:
    """Spearman's correlation of mean divergence between two sets, with each family left out in turn."""
    measured = [
        row for row in record(f"hubris/{name}.json")["hubris"]["rows"] if row["family"] not in ("convnext", "vit")
    ]
    families = sorted({row["family"] for row in measured})
    found = []
    for family in families:
        columns = [
            {(row["family"], row["seed"]): row["mean_kl"] for row in measured if row["set"] == kind} for kind in pair
        ]
        models = [model for model in columns[0] if model[0] != family]
        found.append(correlation(*(_ranks([column[model] for model in models]) for column in columns)))
    return found


def _ranks(values: list[float]) -> list[float]:
    return [sum(other < value for other in values) + sum(other == value for other in values) / 2 for value in values]


def asked() -> Iterator[Claim]:
    """ConvNeXts and ViTs."""

    def told(name: str, family: str, kind: str) -> tuple[float, float]:
        mine = [row for row in asked_about(name, kind) if (row["family"], row["set"]) == (family, kind)]
        return mean(row["absolute"] for row in mine), mean(row["relative"] for row in mine)

    families = ("convnext", "vit")
    yield rows(
        *(
            (
                f"| {title} |" + 4 * " {:.2f} / {:.2f} |",
                *chain(*(told(name, family, kind) for family in families for kind in KINDS)),
            )
            for name, title in zip(SETS, SHORT, strict=True)
        )
    )
    yield says(
        "On `ambigan`'s images the ConvNeXts are the surer ones on all three data sets, by both measures.",
        provided=all(
            surer > other
            for name in SETS
            for surer, other in zip(*(told(name, family, AMBIGAN) for family in families), strict=True)
        ),
    )
