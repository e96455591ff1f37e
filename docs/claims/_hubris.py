"""What the records say of companion sets and hubris: for the details of reproduction, and docs/companion.md."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from statistics import mean, stdev
from typing import Any

from claims import Claim, find, record, says
from claims._tables import compared, published

SETS = ("mnist", "fashion_mnist", "pneumoniamnist")
TABLED = ("mnist", "fashion_mnist", "chest_xray")  # the same, as the tables call them
PUBLISHED = {"mnist": (0.5, 0.1), "fashion_mnist": (1.5, 0.1), "pneumoniamnist": (1.5, 0.1)}  # α and variance
AMBIGAN, AGREEMENT = "ambigan alternate disjoint", "agreement guarded batch"


def hubris() -> Iterator[Claim]:
    """Ambiguity, realism, and what models make of it; of `ambigan` by the runs of the paper's size."""
    table1 = {(line.row, line.column): line for line in compared("hubris-table1")}
    acd = [table1[f"{name}, ambigan", "ACD"] for name in TABLED]
    yield says(
        "The ambiguity: ACD {:.3f} ± {:.3f}, {:.3f} ± {:.3f} and {:.3f} ± {:.3f} where the paper has {:.2f} ± {:.2f}, "
        "{:.2f} and {:.2f} ± {:.2f}.",
        *(value for line in acd for value in (line.ours.value, line.ours.spread)),
        *(value for line in acd for value in (line.paper.value, line.paper.spread) if value),
        provided=all(line.ours.n == 3 for line in acd)
        and [record(f"hubris/{name}_runs.json")["scale"] for name in SETS] == ["paper", "paper", "own"],
    )
    yield says(
        "the {:,} images of the finished sets have {:.3f}, {:.3f} and {:.3f} by the same estimators",
        runs("mnist")[0]["sets"][AMBIGAN]["images"],
        *(own(name, AMBIGAN) for name in SETS),
    )
    yield from accuracy_and_hubris()
    yield from universal_ambiguity()
    yield says(
        "the three runs have {:.3f}, {:.3f} and {:.3f} on MNIST, {:.3f}, {:.3f} and {:.3f} on Fashion-MNIST and "
        "{:.3f}, {:.3f} and {:.3f} on X-rays.",
        *(value for name in SETS for value in papers_setting(name)),
        provided=all(
            [table1[f"{tabled}, ambigan", column].paper.value for column in ("loss weight", "variance")]
            == list(PUBLISHED[name])
            for name, tabled in zip(SETS, TABLED, strict=True)
        ),
    )
    chosen = [[(one["training"][AMBIGAN][key]) for one in runs(name)] for name in SETS for key in ("variance", "alpha")]
    yield says(
        "The choice fell on the paper's variance of {:.1f} in seven runs of nine, on Fashion-MNIST and X-rays on its α "
        "of {:.1f}, too, in two of three each.",
        PUBLISHED["mnist"][1],
        PUBLISHED["fashion_mnist"][0],
        provided=[sum(one == 0.1 for one in some) for some in chosen[::2]] == [1, 3, 3]
        and [sum(one == 1.5 for one in some) for some in chosen[3::2]] == [2, 2]
        and PUBLISHED["fashion_mnist"] == PUBLISHED["pneumoniamnist"],
    )
    table3 = {(line.row, line.column): line.ours.value for line in compared("hubris-table3")}

    def asked(model: str, name: str, column: str) -> float:
        return table3[f"{model}: {name}, ambigan", column]

    pairs = [
        [asked(model, name, column) for model in ("ConvNeXt", "ViT")] for name in TABLED for column in ("H_A", "H_R")
    ]
    yield says(
        "A ConvNeXt is surer than a ViT about all three of the paper's sets, by absolute and by relative hubris.",
        provided=all(surer > other for surer, other in pairs),
    )
    paper = published("hubris-table2")
    yield from quality_and_diversity(paper)
    grown = [[list(one["ratios"][AMBIGAN].values())[-1] for one in runs(name)] for name in SETS]
    yield says(
        "Ours are {:.0f} ± {:.0f} (MNIST) and {:.0f} ± {:.0f} (Fashion-MNIST) times as far as stage 1 in features of "
        "the other classes, {:.1f} ± {:.1f} times (X-rays) in those of these classes",
        *(value for some in grown for value in (mean(some), stdev(some))),
        provided=[list(runs(name)[0]["ratios"][AMBIGAN])[-1] for name in SETS] == ["others", "others", "all"],
    )
    weak = record("hubris/mnist_spaces.json")["photographs"]["accuracy"]
    yield says(
        "with an accuracy of {:.2f} on a part of CIFAR-10 in grey, the companion sets are {:.1f} (MNIST, one shorter "
        "run), {:.1f} ± {:.1f} and {:.1f} ± {:.1f} times as far as stage 1, where the paper has {:.1f}, {:.1f} and "
        "{:.1f}. (3) An estimator",
        weak,
        *over_stage1("mnist", AMBIGAN, "photographs"),
        *(end(over_stage1(name, AMBIGAN, "photographs")) for name in SETS[1:] for end in (mean, stdev)),
        *(paper[f"{name}, ambigan", "companion FID"] / paper[f"{name}, ambigan", "baseline FID"] for name in TABLED),
        provided=all(record(f"hubris/{name}_runs_spaces.json")["photographs"]["accuracy"] == weak for name in SETS[1:]),
    )
    yield says(
        "An estimator that no generator saw finds the images a little less ambiguous ({:.3f}, {:.3f}, {:.3f})",
        *(held_out(name, AMBIGAN) for name in SETS),
    )
    gans, ambiguess = ranks()
    yield says(
        "(Spearman {:.2f} to {:.2f}) but hardly with AmbiGuess' images ({:.2f} to {:.2f}).",
        min(gans),
        max(gans),
        min(ambiguess),
        max(ambiguess),
    )
    paper = {(line.row, line.column): line.paper.value for line in compared("hubris-table3")}
    yield says(
        "(absolute hubris {:.2f} and {:.2f} against {:.2f} and {:.2f}), and less accurate.",
        *(table[f"ConvNeXt: {name}, ambigan", "H_A"] for table in (table3, paper) for name in TABLED[1:]),
        provided=all(
            table3[f"ConvNeXt: {name}, ambigan", "accuracy"] < paper[f"ConvNeXt: {name}, ambigan", "accuracy"]
            for name in TABLED[1:]
        ),
    )


def quality_and_diversity(paper: Any) -> Iterator[Claim]:
    """GIQA's scores of Table 2."""
    ours = {(line.row, line.column): line.ours for line in compared("hubris-table2")}

    def scores(name: str) -> Iterator[float]:
        """Quality of baseline and companion sets, then diversity: ours with its spread, and the paper's."""
        for score, part in product(("QS", "DS"), ("baseline", "companion")):
            key = f"{name}, ambigan", f"{part} {score}"
            yield from (ours[key].value, ours[key].spread, paper[key])

    yield says(
        "On MNIST quality goes from {:.2f} ± {:.2f} (published {:.2f}) in the baselines to {:.2f} ± {:.2f} ({:.2f}) in "
        "the companion sets and diversity from {:.2f} ± {:.2f} ({:.2f}) to {:.2f} ± {:.2f} ({:.2f}), on Fashion-MNIST "
        "from {:.2f} ± {:.2f} ({:.2f}) to {:.2f} ± {:.2f} ({:.2f}) and from {:.2f} ± {:.2f} ({:.2f}) to "
        "{:.2f} ± {:.2f} ({:.2f}), on X-rays from {:.2f} ± {:.2f} ({:.2f}) to {:.2f} ± {:.2f} ({:.2f}) and from "
        "{:.2f} ± {:.2f} ({:.2f}) to {:.2f} ± {:.2f} ({:.2f}).",
        *(value for name in TABLED for value in scores(name)),
    )
    giqa = [{part: one["sets"][part]["giqa"]["quality"] for part in ("stage1", AMBIGAN)} for one in runs("mnist")]
    yield says(
        "one companion set of MNIST has a quality of {:.2f} where its baseline has {:.2f}, although it is {:.0f} times "
        "as far from real images, and the three baselines, of one recipe, have {:.2f} to {:.2f}.",
        giqa[1][AMBIGAN],
        giqa[1]["stage1"],
        runs("mnist")[1]["ratios"][AMBIGAN]["others"],
        *(end(one["stage1"] for one in giqa) for end in (min, max)),
    )


def accuracy_and_hubris() -> Iterator[Claim]:
    """Whether the more accurate model is the surer one."""
    apart = apart_in_table3
    yield says(
        "its own table says {:.1f} and {:.1f} in the mean over the three data sets. Ours have the same sign and are "
        "smaller: {:.1f} points more accurate, and {:.1f} points more absolute hubris ({:.1f} on MNIST, {:.1f} on "
        "Fashion-MNIST, {:.1f} on X-rays).",
        *(mean(apart(column, "paper")) for column in ("accuracy", "H_A")),
        *(mean(apart(column, "ours")) for column in ("accuracy", "H_A")),
        *apart("H_A", "ours"),
        provided=all(0 < mean(apart(column, "ours")) < mean(apart(column, "paper")) for column in ("accuracy", "H_A")),
    )
    yield says(
        "accuracy and absolute hubris have a Spearman correlation of {:.2f} on MNIST, {:.2f} on Fashion-MNIST and "
        "{:.2f} on X-rays.",
        *(_accuracy_by_hubris(name) for name in SETS),
        provided=all(len(families(name, AMBIGAN, "absolute")) == 6 for name in SETS),
    )


def apart_in_table3(column: str, who: str) -> list[float]:
    """By how many points a ConvNeXt is above a ViT on each data set, in the paper or ours."""
    lines = {(line.row, line.column): line for line in compared("hubris-table3")}
    pairs = ((f"ConvNeXt: {name}, ambigan", f"ViT: {name}, ambigan") for name in TABLED)
    return [100 * (getattr(lines[a, column], who).value - getattr(lines[b, column], who).value) for a, b in pairs]


def _accuracy_by_hubris(name: str) -> float:
    from scipy.stats import spearmanr

    right, sure = families(name, "real", "accuracy"), families(name, AMBIGAN, "absolute")
    return float(spearmanr([right[one] for one in sure], list(sure.values())).statistic)


def families(name: str, kind: str, measure: str) -> dict[str, float]:
    """A measure of a set in the mean of each family of the zoo."""
    values: dict[str, list[float]] = {}
    for row in asked_about(name, kind):
        if row["set"] == kind and row["family"] not in ("convnext", "vit"):
            values.setdefault(row["family"], []).append(row[measure])
    return {family: mean(some) for family, some in values.items()}


def asked_about(name: str, kind: str) -> list[dict[str, Any]]:
    """What models say: about `ambigan` and real images those that were asked about all three runs."""
    file = f"{name}_runs" if kind in (AMBIGAN, "real") else name
    return record(f"hubris/{file}.json")["hubris"]["rows"]


def universal_ambiguity() -> Iterator[Claim]:
    """Whether models that had no part in it find the images ambiguous, too."""

    def ends(kind: str) -> list[float]:
        return [end(families(name, kind, "acd").values()) for name in SETS for end in (min, max)]

    yield says(
        "Where the estimator has an ACD of {:.3f}, {:.3f} and {:.3f}, these have {:.2f} to {:.2f} (MNIST), {:.2f} to "
        "{:.2f} (Fashion-MNIST) and {:.2f} to {:.2f} (X-rays) in the mean of a family, where .5 is certainty. For "
        "`agreement` it is {:.3f}, {:.3f} and {:.3f} by the estimator, and {:.2f} to {:.2f}, {:.2f} to {:.2f} and "
        "{:.2f} to {:.2f} by the families. The images are less clear than those of stage 1 ({:.2f} and more on digits "
        "and clothes)",
        *(own(name, AMBIGAN) for name in SETS),
        *ends(AMBIGAN),
        *(own(name, AGREEMENT) for name in SETS),
        *ends(AGREEMENT),
        min(value for name in SETS[:2] for value in families(name, "stage1", "acd").values()),
        provided=all(
            families(name, kind, "acd")[family] < value
            for name in SETS
            for kind in (AMBIGAN, AGREEMENT)
            for family, value in families(name, "stage1", "acd").items()
        ),
    )


def held_out(name: str, kind: str) -> float:
    """ACD by the estimator of the generator's own kind that no generator saw."""
    return judged_by(name, kind, "held_out")


def own(name: str, kind: str) -> float:
    """ACD by the estimator that the generator was trained against."""
    return judged_by(name, kind, "own")


def judged_by(name: str, kind: str, which: str) -> float:
    """ACD of a finished set by an estimator of the generator's own kind, in the mean of the runs."""
    mine = "disjoint" if "disjoint" in kind else "batch"
    made = runs(name) if kind == AMBIGAN else [record(f"hubris/{name}.json")]
    judged = [one["sets"][kind]["judged"] for one in made]
    return mean(next(values for judge, values in one.items() if judge.startswith(mine))[which]["acd"] for one in judged)


def over_stage1(name: str, kind: str, space: str) -> list[float]:
    """How many times as far as stage 1 a set is in a space, in every run.

    Of MNIST, and of `agreement`, there is one shorter run.
    """
    if kind != AMBIGAN or name == "mnist":
        return [record(f"hubris/{name}_spaces.json")["spaces"][space]["over_stage1"][kind.replace(" ", "_")]]
    found = record(f"hubris/{name}_runs_spaces.json")["spaces"][space]["over_stage1"]
    return [found[f"ambigan_{run}"] for run in range(3)]


def ranks() -> tuple[list[float], list[float]]:
    """Rank correlations of models: between the two GANs, and between a GAN and AmbiGuess."""
    gans, others = [], []
    for name in SETS:
        known = record(f"hubris/{name}.json")["hubris"]["rank_correlation"]
        gans.append(known[f"{AGREEMENT} / {AMBIGAN}"])
        others += [known[key] for key in (f"{AGREEMENT} / ambiguess", f"{AMBIGAN} / ambiguess") if key in known]
    return gans, others


def runs(name: str) -> list[dict[str, Any]]:
    """The three runs of 100 + 50 epochs."""
    return record(f"hubris/{name}_runs.json")["runs"]


def papers_setting(name: str) -> list[float]:
    """ACD of the runs with the setting that the paper chose."""
    alpha, variance = PUBLISHED[name]
    return [find(one["training"]["grid"], alpha=alpha, variance=variance)["acd"] for one in runs(name)]
