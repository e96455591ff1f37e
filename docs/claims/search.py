"""docs/error_search.md: which search finds most."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil
from statistics import mean

from claims import Claim, _networks, find, record, rows, says

PAGE = "docs/error_search.md"
METHODS = {
    "random": "`random`",
    "low_confidence": "`low_confidence`",
    "adversarial_distance": "`adversarial_distance`",
    "adversarial_distance_gradient": "the same by gradient",
    "bandit": "`bandit`",
    "coverage": "`coverage`",
    "facility": "`facility`",
    "adaptive": "`adaptive`",
}
OTHERS = ("random", "low_confidence", "adversarial_distance", "bandit", "facility", "adaptive")


def at(row: dict, method: str, queries: int, measure: str, kind: str = "pooled") -> float:
    """A measure of one network's pool."""
    return find(row["study"]["table"], method=method, queries=queries)[measure][kind]


def pools(name: str, critical: str) -> list[dict]:
    """One row for each network."""
    return [row for row in record(f"search/{name}.json")["rows"] if row["critical"] == critical]


def over(name: str, critical: str, method: str, queries: int, measure: str) -> float:
    """The mean over networks."""
    if measure == "excess":
        return mean(
            at(row, method, queries, "errors") * (1 - 1 / at(row, method, queries, "matched_lift"))
            for row in pools(name, critical)
        )
    return mean(at(row, method, queries, measure) for row in pools(name, critical))


def aurocs(file: str, critical: str, score: str) -> list[float]:
    """AUROC of a score among images of equal confidence, in each network."""
    return [row["auroc"][score] for row in record(file)["rows"] if row["critical"] == critical]


def claims() -> Iterator[Claim]:
    """All of them."""
    yield from cats_and_dogs()
    yield from adversarial_distance()
    yield from adaptive()
    yield from digits_and_clothes()
    yield from _networks.claims()


def cats_and_dogs() -> Iterator[Claim]:
    """The tables."""
    settings = record("search/cats_dogs.json")["settings"]
    dog, cat = pools("cats_dogs", "dog"), pools("cats_dogs", "cat")
    yield says(
        "attacked with {:.0f} queries; searches repeated on {} random parts of {:,} images",
        dog[0]["about"]["queries_per_image"],
        settings["replications"],
        settings["subset"],
    )
    yield says(
        "(SDR of the pool {:.2f}). Those predicted *cat* have none; that pool is calibrated ({:.2f}).",
        mean(row["study"]["pool_sdr"] for row in dog),
        mean(row["study"]["pool_sdr"] for row in cat),
    )
    for critical in ("dog", "cat"):
        head = "SDR at 20 | lift at 20 | lift | matched lift | errors | excess | confidence | spread"
        yield rows(
            (f"| predicted {critical} | {head} |",),
            ("|---|---|---|---|---|---|---|---|---|",),
            *(
                (
                    f"| {title} |" + 4 * " {:.2f} |" + 2 * " {:.1f} |" + " {:.2f} | {:.3f} |",
                    over("cats_dogs", critical, method, 20, "sdr"),
                    over("cats_dogs", critical, method, 20, "lift"),
                    *(
                        over("cats_dogs", critical, method, 50, measure)
                        for measure in ("lift", "matched_lift", "errors", "excess", "confidence", "spread")
                    ),
                )
                for method, title in METHODS.items()
            ),
        )
    for method in ("random", "adversarial_distance", "adaptive"):
        values = [
            at(row, method, 50, "matched_lift", kind)
            for row in (*dog, *cat)
            for kind in ("pooled", "median", "low", "high")
        ]
        yield says(f"| `{method}` | " + " | ".join(["{:.2f}; {:.2f} ({:.2f} to {:.2f})"] * 4) + " |", *values)
    yield says(
        "**Random search has the SDR of the pool**, to {:.2f} after 50 queries in each of the four pools",
        ceil(100 * max(abs(at(row, "random", 50, "sdr") - row["study"]["pool_sdr"]) for row in (*dog, *cat))) / 100,
    )


def adversarial_distance() -> Iterator[Claim]:
    """Why it does not do what was published."""
    first, second = pools("cats_dogs", "cat")
    mine, by_gradient = "adversarial_distance", "adversarial_distance_gradient"
    yield says(
        "In these two networks it has {:.2f} and {:.2f} with the default attack: a lift of {:.2f} and {:.2f}",
        *(over("cats_dogs", "cat", mine, queries, measure) for measure in ("sdr", "lift") for queries in (20, 50)),
    )
    yield says(
        "By true gradients it has {:.2f} and {:.2f}, and the two networks differ, with {:.2f} in the first and "
        "{:.2f} in the second after 50 queries",
        over("cats_dogs", "cat", by_gradient, 20, "sdr"),
        over("cats_dogs", "cat", by_gradient, 50, "sdr"),
        at(first, by_gradient, 50, "sdr"),
        at(second, by_gradient, 50, "sdr"),
    )
    dogs = pools("cats_dogs", "dog")
    alike = [row["spearman_residuals"] for row in (*dogs, first, second)]
    yield says(
        "it is worse than random with either attack, and worse by gradients (SDR {:.2f} after 50 queries "
        "against {:.2f}), although both rank images much alike (Spearman of the residuals {:.2f} to {:.2f} in "
        "the four pools)",
        over("cats_dogs", "dog", by_gradient, 50, "sdr"),
        over("cats_dogs", "dog", mine, 50, "sdr"),
        min(alike),
        max(alike),
        provided=all(
            at(row, by_gradient, 50, "sdr") < at(row, mine, 50, "sdr") < at(row, "random", 50, "sdr") for row in dogs
        ),
    )
    yield says(
        "is {:.2f} and {:.2f} in the two pools of dogs and {:.2f} and {:.2f} in those of cats; by gradients "
        "{:.2f} and {:.2f}, {:.2f} and {:.2f}.",
        *(
            value
            for score in ("residual", "residual, gradient")
            for critical in ("dog", "cat")
            for value in aurocs("search/account.json", critical, score)
        ),
    )
    dark = find(record("search/account.json")["rows"], pool="pool0", critical="dog")
    yield says(
        "(first network: AUROC of darkness {:.2f}), and dark images lie *farther* from another decision than "
        "others of their confidence (Spearman {:.2f})",
        dark["auroc"]["darkness"],
        dark["darkness"]["spearman_with_residual"],
    )
    tests = [100 * row["about"]["test_accuracy"] for row in pools("cats_dogs", "dog")]
    yield says(
        "Test accuracy is {:.0f} %, the paper's 81 %.", tests[0], provided=f"{tests[0]:.0f}" == f"{tests[1]:.0f}"
    )
    short = pools("cats_dogs_12_epochs", "dog")
    validation = [100 * row["about"]["validation"]["validation_accuracy"] for row in short]
    yield says(
        "`cats_dogs_12_epochs.json`; {:.0f} % validation accuracy, as in the paper, but {:.0f} and {:.0f} % on "
        "the test images) have AUROCs of {:.2f} and {:.2f} for dogs, {:.2f} and {:.2f} for cats. ({} "
        "repetitions;",
        validation[0],
        *(100 * row["about"]["test_accuracy"] for row in short),
        *(
            value
            for critical in ("dog", "cat")
            for value in aurocs("search/account_12_epochs.json", critical, "residual")
        ),
        record("search/cats_dogs_12_epochs.json")["settings"]["replications"],
        provided=f"{validation[0]:.0f}" == f"{validation[1]:.0f}",
    )
    yield says(
        "in one of these four pools random looks happened to find {:.0f} % fewer errors than the pool has",
        100 * (1 - min(at(row, "random", 50, "lift") for row in (*short, *pools("cats_dogs_12_epochs", "cat")))),
    )

    everywhere = [
        row
        for name in ("cats_dogs", "cats_dogs_12_epochs", "mnist", "fashion_mnist")
        for row in record(f"search/{name}.json")["rows"]
    ]
    yield says(
        "after 50 queries its matched lift with the default attack is below that of `random` in {} of the {} pools of "
        "the tables",
        sum(at(row, mine, 50, "matched_lift") < at(row, "random", 50, "matched_lift") for row in everywhere),
        len(everywhere),
    )


def adaptive() -> Iterator[Claim]:
    """What the search that learns has over it."""

    def lift(critical: str, method: str) -> float:
        return over("cats_dogs", critical, method, 50, "matched_lift")

    def excess(critical: str, method: str) -> float:
        return over("cats_dogs", critical, method, 50, "excess")

    yield says(
        "**The adaptive search** has {:.1f} times the matched lift of adversarial distance with the blind spot "
        "and {:.1f} times without, and has the largest excess of errors in both pools",
        *(lift(critical, "adaptive") / lift(critical, "adversarial_distance") for critical in ("dog", "cat")),
        provided=all(
            excess(critical, "adaptive") > excess(critical, method)
            for critical in ("dog", "cat")
            for method in METHODS
            if method != "adaptive"
        ),
    )
    yield says(
        "distances by gradient come near: a matched lift of {:.2f} against {:.2f})",
        lift("cat", "adversarial_distance_gradient"),
        lift("cat", "adaptive"),
    )
    yield says(
        "Without scores of supervisors its matched lift is {:.2f} and {:.2f}.",
        lift("dog", "adaptive_without_scores"),
        lift("cat", "adaptive_without_scores"),
    )
    raw = "adversarial_distance_raw"
    clothes = ("fashion_mnist", "all classes", raw, 50)
    yield says(
        "has a larger matched lift among predicted cats ({:.1f}) and on Fashion-MNIST ({:.2f}), but finds next "
        "to nothing: {:.1f} and {:.1f} errors.",
        lift("cat", raw),
        over(*clothes, "matched_lift"),
        over("cats_dogs", "cat", raw, 50, "errors"),
        over(*clothes, "errors"),
        provided=lift("cat", raw) > lift("cat", "adaptive")
        and over(*clothes, "matched_lift") > over("fashion_mnist", "all classes", "adaptive", 50, "matched_lift"),
    )
    short = "cats_dogs_12_epochs"
    yield says(
        "`facility` has more excess errors than `adaptive` in one, predicted cats after 12 epochs ({:.1f} "
        "against {:.1f}).",
        over(short, "cat", "facility", 50, "excess"),
        over(short, "cat", "adaptive", 50, "excess"),
        provided=[
            (name, critical)
            for name, criticals in (
                ("cats_dogs", ("dog", "cat")),
                (short, ("dog", "cat")),
                ("mnist", ("all classes",)),
                ("fashion_mnist", ("all classes",)),
            )
            for critical in criticals
            if over(name, critical, "facility", 50, "excess") > over(name, critical, "adaptive", 50, "excess")
        ]
        == [(short, "cat")],
    )


def digits_and_clothes() -> Iterator[Claim]:
    """MNIST and Fashion-MNIST."""
    for name, title in (("mnist", "MNIST"), ("fashion_mnist", "Fashion-MNIST")):
        for measure, spec in (("matched_lift", "{:.2f}"), ("errors", "{:.1f}")):
            words = measure.replace("_", " ")
            values = [over(name, "all classes", method, 50, measure) for method in OTHERS]
            yield says(f"| {title}, {words} | " + " | ".join([spec] * len(OTHERS)) + " |", *values)
    digits = pools("mnist", "all classes")
    errors = [row["study"]["pool_errors"] for row in digits]
    sizes = [row["study"]["size"] for row in digits]
    yield says(
        "MNIST leaves little to search for: {} to {} errors in {:,} images",
        min(errors),
        max(errors),
        int(round(mean(sizes), -2)),
    )
    yield says(
        "Random looks find {:.1f} of them in 50, too few for 200 repetitions to show the SDR of the pool "
        "closely ({:.2f}, {:.2f} and {:.2f}, where the pools have {:.2f}, {:.2f} and {:.2f})",
        over("mnist", "all classes", "random", 50, "errors"),
        *(at(row, "random", 50, "sdr") for row in digits),
        *(row["study"]["pool_sdr"] for row in digits),
    )
