"""docs/guard.md: the numbers of docs/evidence/guard.md that decide whether and how to use a guard."""

from __future__ import annotations

from collections.abc import Iterator

from claims import Claim, record, rows, says
from claims.guard import DATA, PHOTOS, auroc, runs

PAGE = "docs/guard.md"
COLUMNS = ("mistakes", "ambiguous", "adversarial", "corrupted", "invalid")


def claims() -> Iterator[Claim]:
    """All of them."""
    yield from promised()
    yield from seen()
    yield from costs()


def promised() -> Iterator[Claim]:
    """What becomes of a promised share of errors."""
    kept = record("photos/risk.json")
    models = kept["models"]
    two = [models[name] for name in list(PHOTOS)[:2]]
    panel = [one["panel"]["0.02"] for one in two]
    yield says(
        "a promise of 2 % accepts {:.0f} and {:.0f} % of the nominal images, and {:.1f} and {:.1f} % of these answers "
        "are wrong. Of {} random splits {:.1f} and {:.1f} % break it, where 5 % are allowed.",
        *(100 * one["sets"]["nominal"][key] for key in ("accepted", "wrong") for one in panel),
        kept["settings"]["splits"],
        *(100 * one["broken"] for one in panel),
        provided=kept["settings"]["confidence"] == 0.95,
    )
    weak = models["cats_dogs_cats_dogs_cnn"]
    yield says(
        "a CNN for cats and dogs with an accuracy of {:.2f} is refused 1 and 2 % in every split.",
        weak["accuracy"],
        provided=all(weak["panel"][risk]["refused"] == 1 for risk in ("0.01", "0.02")),
    )
    hard = [one[rule]["0.02"]["sets"]["corrupted, severity 5"]["wrong"] for rule in ("panel", "entropy") for one in two]
    yield says(
        "Of what is accepted at severity 5 of corruptions, {:.0f} and {:.0f} % are wrong ({:.0f} and {:.0f} % with "
        "`entropy` in place of the guard's statistic), and {:.0f} and {:.0f} % of the attacks that fooled the model "
        "pass.",
        *(100 * share for share in hard),
        *(100 * one["sets"]["adversarial"]["accepted"] for one in panel),
    )


def seen() -> Iterator[Claim]:
    """AUROC of the panel, mistakes that it misses, and how often a single name is right."""
    kept = record("photos/panel.json")
    models = [kept["models"][name] for name in PHOTOS]
    both = " {:.3f} and {:.3f} |"
    yield rows(
        (
            "| MNIST and Fashion-MNIST, SimpleCNN | |" + 4 * both,
            *(auroc(data, "panel", kind) for kind in COLUMNS[1:] for data in DATA),
        ),
        *(
            (f"| {title} |" + 5 * both, *(one["now"][column] for column in COLUMNS for one in some))
            for title, some in (
                ("CIFAR-10, ResNet-20 and VGG", models[:2]),
                ("cats and dogs, CNN and ResNet-20", models[2:]),
            )
        ),
    )
    yield says(
        "On photographs one of {} is up to {:.3f} better for some kind, but not the same one for all;",
        len(models[0]["single"]),
        -min(value for one in models for value in one["margins"].values()),
        provided=not any(
            all(alone[column] >= one["now"][column] for column in COLUMNS)
            for one in models
            for alone in one["single"].values()
        ),
    )
    missed = [100 * one["now"]["missed"] for one in models]
    yield says(
        "{:.0f} to {:.0f} % of the model's own mistakes raise no alarm at 5 % false alarms.",
        min(missed),
        max(missed),
        provided=kept["settings"]["false_alarms"] == 0.05,
    )
    names = [record("photos/verdict_consistency.json")["models"][name]["mirror"] for name in PHOTOS]
    yield says(
        "it is right for {:.2f} to {:.2f} of the corrupted, attacked and invalid photographs of sorts that were not "
        "met, but only {:.2f} to {:.2f} of the alarms get one. Corruptions on CIFAR-10 hardly ever get one, and then a "
        "wrong one",
        *(pick(one["others"][key] for one in names) for key in ("right", "single") for pick in (min, max)),
        provided=all(one["corrupted"]["single"] < 0.1 and one["corrupted"]["right"] < 0.1 for one in names[:2]),
    )


def costs() -> Iterator[Claim]:
    """`bench guard`, the cascade, and the price of each supervisor."""
    kept = record("bench/guard.json")
    (single, batch), (exported, _) = kept["overhead"], kept["exported"]
    yield says(
        "doubles the time of a single image of a digit, which takes {:.1f} ms without it; exported with its guard, the "
        "same network takes {:.0f} % more than bare in the best of 15 rounds and {:.0f} % less in the median.",
        single["bare_ms"],
        100 * exported["overhead"],
        -100 * exported["median_overhead"],
        provided=0.9 < single["overhead"] <= single["median_overhead"] < 1.1,
    )
    faster = [-100 * row[key] for row in (batch, *kept["photographs"]) for key in ("overhead", "median_overhead")]
    yield says("are *faster* than the bare module, by {:.0f} to {:.0f} %,", min(faster), max(faster))
    yield says(
        "On MNIST and Fashion-MNIST a quarter of the full cost [loses nothing]",
        provided=all(
            abs(lost) <= 0.005 for data in DATA for run in runs(data) for lost in run["cascades"][0]["lost"].values()
        ),
    )
    prices = [run["costs_ms"] for data in DATA for run in runs(data)]
    totals, dsa = [sum(price.values()) for price in prices], [price["dsa"] for price in prices]
    yield says(
        "of the {:.0f} to {:.0f} ms that the recommended supervisors took for a single image of MNIST and "
        "Fashion-MNIST (`costs_ms` in `results/guard/`), `dsa` took {:.0f} to {:.0f}.",
        min(totals),
        max(totals),
        min(dsa),
        max(dsa),
    )
