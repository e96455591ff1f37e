"""docs/distance.md: how good the attacks are."""

from __future__ import annotations

from collections.abc import Iterator

from claims import Claim, record, rows, says
from claims._networks import NOISE, OURS, ends_of, same_images
from claims.search import over, pools

PAGE = "docs/distance.md"
ATTACKS = {
    "hop_skip_jump 300": "`hop_skip_jump`, budget 300",
    "hop_skip_jump 500": "`hop_skip_jump`, budget 500",
    "hop_skip_jump 1000": "`hop_skip_jump`, budget 1,000",
    "boundary 1000": "`boundary`, 1,000 iterations as in the paper, from the nearest image",
}
FAR = ("hop_skip_jump 1000", "hop_skip_jump 500", "boundary 1000")


def claims() -> Iterator[Claim]:
    """All of them."""
    measured = {row["attack"]: row for row in record("search/attacks.json")["rows"]}
    gradient = measured["gradient"]
    yield says("(`lab/experiments/search_attacks.py`, `attacks.json`): {} images of cats and dogs", gradient["images"])
    yield rows(
        ("| `gradient` | {:.0f} | {:.4f} | 1 | {:.0f} |", *_of(gradient, "queries_median", "mae_median", "seconds")),
        *(
            (
                f"| {title} | {{:,.0f}} | {{:.4f}} | {{:.2f}} | {{:.0f}} |",
                *_of(measured[name], "queries_median", "mae_median", "spearman_residuals", "seconds"),
            )
            for name, title in ATTACKS.items()
        ),
    )
    thousand, paper = measured["hop_skip_jump 1000"], measured["boundary 1000"]
    yield says(
        "A thousand queries come as near as the Boundary Attack's {:,.0f}, and rank images more like the attack by "
        "gradients does.",
        round(paper["queries_median"], -3),
        provided=thousand["mae_median"] <= paper["mae_median"]
        and thousand["spearman_residuals"] > paper["spearman_residuals"],
    )
    yield says(
        "in the median {:.1f} times as far (Euclidean length) with a budget of 1,000, {:.1f} times with the "
        "500 that the searches were measured with, {:.1f} times for the Boundary Attack",
        *(
            measured[name]["l2_over_gradient_median"]
            for name in ("hop_skip_jump 1000", "hop_skip_jump 500", "boundary 1000")
        ),
    )
    kept = [row for critical in ("dog", "cat") for row in pools("cats_dogs", critical)]
    sizes = [sum(row["study"]["size"] for row in kept if row["model"] == model) for model in (0, 1)]
    yield says(
        "the correlation is {:.2f} to {:.2f} in the pools of two networks ({:,} and {:,} images), but {:.2f} "
        "to {:.2f} for three SimpleCNNs on Fashion-MNIST and {:.2f} to {:.2f} on MNIST",
        *_ends(kept),
        *sizes,
        *_ends(pools("fashion_mnist", "all classes")),
        *_ends(pools("mnist", "all classes")),
    )
    yield says(
        "among predicted cats, true gradients [find more](error_search.md#which-search-finds-most) than 500 queries "
        "do,",
        provided=over("cats_dogs", "cat", "adversarial_distance_gradient", 50, "errors")
        > over("cats_dogs", "cat", "adversarial_distance", 50, "errors"),
    )
    ours, theirs = same_images()
    far = [mine["median_mae"] / true["median_mae"] for mine, true in zip(ours, theirs, strict=True)]
    yield says(
        "On {:,} images of each of {} further networks for cats and dogs (`networks.json`), the median MAE with a "
        "budget of 1,000 is {:.1f} to {:.1f} times that of gradients.",
        ours[0]["size"],
        len(ours),
        min(far),
        max(far),
        provided={row["size"] for row in ours} == {ours[0]["size"]},
    )
    alike = [row["spearman"] for row in ours]
    yield says("whose residuals have a correlation of {:.2f} to {:.2f} with theirs.", min(alike), max(alike))
    yield from from_noise()
    bench = record("bench/search.json")
    engine, alone = _overheads(bench["rows"])
    yield says(
        "for {:,} images of 28x28 pixels, SimpleCNN and two cores it took {:.1f} % longer than these "
        "(`results/bench/search.json`); one image at a time, {:.0f} % longer.",
        bench["images"],
        engine,
        alone,
    )


def from_noise() -> Iterator[Claim]:
    """The paper's attack from the paper's start, at several budgets, beside ours."""
    kept = record("search/budgets.json")
    far, alike = "mae_over_gradient_median", "spearman_residuals"
    few = ends_of("size", NOISE, 26_000)
    lost = ends_of("unconfirmed", NOISE, 26_000)
    yield says(
        "On three more networks for cats and dogs, each with {} predicted cats drawn at random, it needs its full "
        "length",
        kept["settings"]["images"],
        provided=len(kept["networks"]) == 3,
    )
    yield says(
        "after 1,000 queries it is {:.0f} to {:.0f} times as far as gradients (median MAE; ours {:.1f} to {:.1f} "
        "times), and the residuals have a correlation of {:.2f} to {:.2f} with those of gradients (ours {:.2f} to "
        "{:.2f}). On {} of the images of each network the walk went on: after 5,000 queries the correlation is {:.2f} "
        "to {:.2f}, at its end, after 26,000, {:.2f} to {:.2f} at {:.1f} to {:.1f} times the distance.",
        *ends_of(far, NOISE, 1000, "all"),
        *ends_of(far, OURS, 1000, "all"),
        *ends_of(alike, NOISE, 1000, "all"),
        *ends_of(alike, OURS, 1000, "all"),
        few[0],
        *ends_of(alike, NOISE, 5000),
        *ends_of(alike, NOISE, 26_000),
        *ends_of(far, NOISE, 26_000),
        provided=few[0] == few[1],
    )
    yield says(
        "on the same images the correlation is {:.2f} to {:.2f} after 1,000 and {:.2f} to {:.2f} after 26,000 queries. "
        "On that GPU the last check did not confirm {} to {} of the walk's {} counterexamples",
        *ends_of(alike, OURS, 1000),
        *ends_of(alike, OURS, 26_000),
        *lost,
        few[0],
    )


def _of(row: dict, *names: str) -> list[float]:
    return [row[name] for name in names]


def _ends(some: list[dict]) -> tuple[float, float]:
    values = [row["spearman_residuals"] for row in some]
    return min(values), max(values)


def _overheads(measured: list[dict]) -> list[float]:
    return [100 * row["overhead"] for row in measured if row["overhead"]]
