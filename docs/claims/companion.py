"""docs/companion.md: what came out of the generative adversarial networks."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from statistics import correlation

from claims import Claim, find, record, rows, says
from claims._hubris import AGREEMENT, AMBIGAN, SETS, at_full_size

PAGE = "docs/companion.md"
TITLES = ("MNIST 9 or 8", "Fashion-MNIST dress or T-shirt", "chest X-ray, pneumonia or not")
SHORT = ("MNIST", "Fashion-MNIST", "chest X-ray")
KINDS = {AMBIGAN: "disjoint", AGREEMENT: "batch, calibrated"}
PAPER = {"mnist": (0.08, 5.5), "fashion_mnist": (0.06, 2.9), "pneumoniamnist": (0.08, 1.1)}  # ACD, ratio of distances


def claims() -> Iterator[Claim]:
    """All of them."""
    yield from ambiguity()
    yield from at_full_size()
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


def judged(name: str, kind: str, *, by: str, whose: str = "held_out") -> dict[str, float]:
    """What an estimator says of a set."""
    return record(f"hubris/{name}.json")["sets"][kind]["judged"][by][whose]


def ambiguity() -> Iterator[Claim]:
    """The table of confusion distances, and the settings."""
    lines: list[tuple] = []
    for name, title in zip(SETS, TITLES, strict=True):
        for kind, by in KINDS.items():
            own, other = judged(name, kind, by=by, whose="own"), judged(name, kind, by=by)
            paper = " {:.2f} |" if kind == AMBIGAN else " |"
            lines.append(
                (
                    f"| {title}, `{kind.split()[0]}` | {{:.3f}} | {{:.3f}} | {{:.2f}} |" + paper,
                    own["acd"],
                    other["acd"],
                    other["mutual_information"],
                    *([PAPER[name][0]] if kind == AMBIGAN else []),
                )
            )
    yield rows(*lines)
    grids = [record(f"hubris/{name}.json")["training"]["grid"] for name in SETS]
    chosen = [[find(grid, variant=kind, chosen=True) for grid in grids] for kind in KINDS]
    yield says(
        "v = {:.2f}, {:.2f} and {:.1f} for `ambigan`, with α = {:.0f}; α = {:.0f}, {:.0f} and {:.0f} for "
        "`agreement`, with v = {:.2f}.",
        *(one["variance"] for one in chosen[0]),
        chosen[0][0]["alpha"],
        *(one["alpha"] for one in chosen[1]),
        chosen[1][0]["variance"],
        provided=len({one["alpha"] for one in chosen[0]}) == 1 and len({one["variance"] for one in chosen[1]}) == 1,
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
        "(MNIST, held out: `ambigan` has {:.3f} by calibrated members, `agreement` {:.3f} by disjoint ones)",
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
        spaces, ratios = record(f"hubris/{name}_spaces.json")["spaces"], record(f"hubris/{name}.json")["ratios"]
        for kind in KINDS:
            key = kind.replace(" ", "_")
            values = [
                ratios[kind]["all"],
                ratios[kind].get("others"),
                *(spaces[space]["over_stage1"][key] for space in ("photographs", "pixels")),
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
    floors = [record(f"hubris/{name}.json")["ratios"]["floor"]["all"] for name in SETS]
    yield says(
        "on MNIST stage 1 is as near as real test images are (on the others about five times as far, by all classes)",
        provided=abs(1 / floors[0] - 1) < 0.05 and all(4 < 1 / floor < 6 for floor in floors[1:]),
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
    """A ConvNeXt and a ViT."""

    def told(name: str, family: str, kind: str) -> tuple[float, float]:
        row = find(record(f"hubris/{name}.json")["hubris"]["rows"], family=family, set=kind)
        return row["absolute"], row["relative"]

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
    surer = {
        (kind, measure): told(SETS[2], "convnext", kind)[place] > told(SETS[2], "vit", kind)[place]
        for kind in KINDS
        for place, measure in enumerate(("absolute", "relative"))
    }
    yield says(
        "the ConvNeXt by absolute hubris on `ambigan`'s images, the ViT by relative hubris and on `agreement`'s.",
        provided=[key for key, value in surer.items() if value] == [(AMBIGAN, "absolute")],
    )
