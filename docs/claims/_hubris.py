"""What the records say of companion sets and hubris: for the details of reproduction, and docs/companion.md."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import mean, stdev
from typing import Any

from claims import Claim, find, record, says
from claims._tables import compared, published

SETS = ("mnist", "fashion_mnist", "pneumoniamnist")
TABLED = ("mnist", "fashion_mnist", "chest_xray")  # the same, as the tables call them
AMBIGAN, AGREEMENT = "ambigan alternate disjoint", "agreement guarded batch"


def hubris() -> Iterator[Claim]:
    """Ambiguity, realism, and what models make of it; of `ambigan` on MNIST by the runs of the paper's size."""
    table1 = {(line.row, line.column): line for line in compared("hubris-table1")}
    names = ("mnist", "fashion_mnist", "chest_xray")
    acd = [table1[f"{name}, ambigan", "ACD"] for name in names]
    yield says(
        "The ambiguity: ACD {:.3f} ± {:.3f} (three runs), {:.3f} and {:.3f} where the paper has {:.2f} ± {:.2f}, "
        "{:.2f} and {:.2f}.",
        *(value for line in acd[:1] for value in (line.ours.value, line.ours.spread)),
        *(line.ours.value for line in acd[1:]),
        *(value for line in acd[:1] for value in (line.paper.value, line.paper.spread)),
        *(line.paper.value for line in acd[1:]),
        provided=acd[0].ours.n == 3 and record("hubris/mnist_runs.json")["scale"] == "paper",
    )
    yield says(
        "the {:,} images of the finished sets have {:.3f}, {:.3f} and {:.3f} by the same estimators",
        runs()[0]["sets"][AMBIGAN]["images"],
        *(own(name, AMBIGAN) for name in SETS),
    )
    yield from accuracy_and_hubris()
    yield from universal_ambiguity()
    yield says(
        "nothing else chosen, the three runs have {:.3f}, {:.3f} and {:.3f}.",
        *papers_setting(),
        provided=[table1["mnist, ambigan", column].paper.value for column in ("loss weight", "variance")] == [0.5, 0.1],
    )
    chosen = [one["training"][AMBIGAN]["variance"] for one in runs()]
    variance = [table1[f"{name}, ambigan", "variance"] for name in names]
    yield says(
        "In two of the three runs on MNIST, and on Fashion-MNIST, the choice fell on a variance of {:.2f}, where the "
        "paper chose {:.1f}.",
        variance[1].ours.value,
        variance[0].paper.value,
        provided=sorted(chosen) == [0.01, 0.01, 0.1]
        and [line.ours.value for line in variance[1:]] == [0.01, 0.1]
        and {line.paper.value for line in variance} == {0.1},
    )
    table3 = {(line.row, line.column): line.ours.value for line in compared("hubris-table3")}

    def asked(model: str, name: str, column: str) -> float:
        return table3[f"{model}: {name}, ambigan", column]

    apart = [asked("ConvNeXt", name, "H_A") - asked("ViT", name, "H_A") for name in names]
    yield says(
        "surer than a ViT about all three of the paper's sets (on X-rays by {:.2f} only, with one model each). By "
        "relative hubris they change places on X-rays ({:.2f} and {:.2f}).",
        apart[2],
        asked("ConvNeXt", "chest_xray", "H_R"),
        asked("ViT", "chest_xray", "H_R"),
        provided=min(apart) > 0
        and asked("ConvNeXt", "chest_xray", "H_R") < asked("ViT", "chest_xray", "H_R")
        and all(asked("ConvNeXt", name, "H_R") > asked("ViT", name, "H_R") for name in names[:2]),
    )
    paper = published("hubris-table2")
    yield says(
        ", where the paper has {:.1f}, {:.1f} and {:.1f}. (2) An estimator",
        *(paper[f"{name}, ambigan", "companion FID"] / paper[f"{name}, ambigan", "baseline FID"] for name in TABLED),
    )
    yield from quality_and_diversity(paper)
    grown = [list(one["ratios"][AMBIGAN].values())[-1] for one in runs()]
    yield says(
        "The companion sets of the paper's size on MNIST are {:.0f} ± {:.0f} times as far as stage 1 in features of "
        "the other digits.",
        mean(grown),
        stdev(grown),
    )
    spaces = [record(f"hubris/{name}_spaces.json") for name in SETS]
    yield says(
        "with an accuracy of {:.2f} on a part of CIFAR-10 in grey, the companion sets of the shorter runs are {:.1f}, "
        "{:.1f} and {:.1f} times as far as stage 1",
        spaces[0]["photographs"]["accuracy"],
        *(space["spaces"]["photographs"]["over_stage1"]["ambigan_alternate_disjoint"] for space in spaces),
        provided=len({space["photographs"]["accuracy"] for space in spaces}) == 1,
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
        *(table[f"ConvNeXt: {name}, ambigan", "H_A"] for table in (table3, paper) for name in names[1:]),
        provided=all(
            table3[f"ConvNeXt: {name}, ambigan", "accuracy"] < paper[f"ConvNeXt: {name}, ambigan", "accuracy"]
            for name in names[1:]
        ),
    )


def quality_and_diversity(paper: Any) -> Iterator[Claim]:
    """GIQA's scores of Table 2: of the runs on MNIST, and by the records of smaller generators."""
    columns = [f"{part} {column}" for part in ("baseline", "companion") for column in ("QS", "DS")]
    ours = {(line.row, line.column): line.ours for line in compared("hubris-table2")}

    def scores(name: str) -> list[float]:
        """Ours and, behind each, the paper's."""
        row = f"{name}, ambigan"
        return [value for column in columns for value in (ours[row, column].value, paper[row, column])]

    digits = [value for column in columns for value in _with_spread(ours["mnist, ambigan", column])]
    places = [
        value
        for at, column in enumerate(columns)
        for value in (*digits[2 * at : 2 * at + 2], paper["mnist, ambigan", column])
    ]
    yield says(
        "On MNIST the baselines' quality is {:.2f} ± {:.2f} (published {:.2f}) and their diversity {:.2f} ± {:.2f} "
        "({:.2f}), the companion sets' quality {:.2f} ± {:.2f} ({:.2f}) and their diversity {:.2f} ± {:.2f} ({:.2f}).",
        *places,
    )
    yield says(
        "On Fashion-MNIST they are {:.2f} ({:.2f}), {:.2f} ({:.2f}), {:.2f} ({:.2f}) and {:.2f} ({:.2f}), on X-rays "
        "{:.2f} ({:.2f}), {:.2f} ({:.2f}), {:.2f} ({:.2f}) and {:.2f} ({:.2f}).",
        *(value for name in TABLED[1:] for value in scores(name)),
    )
    kept = [record(f"hubris/{name}_quality.json") for name in SETS]
    plans = [(one["settings"]["filters"], one["settings"]["members"], *one["settings"]["epochs"]) for one in kept]
    yield says(
        "({} filters instead of 512, {} members, {} + {} epochs, α = 1 and a variance of .01, one run each;",
        *plans[0],
        provided=len(set(plans)) == 1
        and all((one["settings"]["alphas"], one["settings"]["variances"]) == ([1.0], [0.01]) for one in kept),
    )
    better = [
        one["sets"][AMBIGAN]["giqa"]["quality"] > one["sets"]["stage1"]["giqa"]["quality"] for one in [*runs(), kept[0]]
    ]
    yield says(
        "one of the three companion sets has a higher quality than its baseline, although all are many times as far "
        "from real images, and the three baselines, of one recipe, have a quality of {:.2f} to {:.2f}.",
        *(end(one["sets"]["stage1"]["giqa"]["quality"] for one in runs()) for end in (min, max)),
        provided=sum(better[:3]) == 1,
    )


def _with_spread(cell: Any) -> tuple[float, float]:
    return cell.value, cell.spread


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
    """A measure of a set in the mean of each family of the zoo.

    On MNIST `ambigan` and real images were shown to other models of the same families.
    """
    values: dict[str, list[float]] = {}
    file = f"{name}_runs" if name == "mnist" and kind in (AMBIGAN, "real") else name
    for row in record(f"hubris/{file}.json")["hubris"]["rows"]:
        if row["set"] == kind and row["family"] not in ("convnext", "vit"):
            values.setdefault(row["family"], []).append(row[measure])
    return {family: mean(some) for family, some in values.items()}


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
    made = runs() if (name, kind) == ("mnist", AMBIGAN) else [record(f"hubris/{name}.json")]
    judged = [one["sets"][kind]["judged"] for one in made]
    return mean(next(values for judge, values in one.items() if judge.startswith(mine))[which]["acd"] for one in judged)


def ranks() -> tuple[list[float], list[float]]:
    """Rank correlations of models: between the two GANs, and between a GAN and AmbiGuess."""
    gans, others = [], []
    for name in SETS:
        known = record(f"hubris/{name}.json")["hubris"]["rank_correlation"]
        gans.append(known[f"{AGREEMENT} / {AMBIGAN}"])
        others += [known[key] for key in (f"{AGREEMENT} / ambiguess", f"{AMBIGAN} / ambiguess") if key in known]
    return gans, others


def runs() -> list[dict[str, Any]]:
    """The runs of the paper's size, on MNIST."""
    return record("hubris/mnist_runs.json")["runs"]


def papers_setting() -> list[float]:
    """ACD of the runs with the setting that the paper chose."""
    return [find(one["training"]["grid"], alpha=0.5, variance=0.1)["acd"] for one in runs()]


def at_full_size() -> Iterator[Claim]:
    """Three runs of the paper's size."""
    kept = record("hubris/mnist_runs.json")

    def judged_in_runs(whose: str, what: str) -> list[float]:
        return [one["sets"][AMBIGAN]["judged"]["disjoint"][whose][what] for one in runs()]

    own, other = judged_in_runs("own", "acd"), judged_in_runs("held_out", "acd")
    quarrel = judged_in_runs("held_out", "mutual_information")
    yield says(
        "`ambigan` has an ACD of {:.3f} ± {:.3f} by its own estimator, {:.3f} ± {:.3f} by one that no generator saw, "
        "and a quarrel of {:.2f} to {:.2f}.",
        *(value for some in (own, other) for value in (mean(some), stdev(some))),
        min(quarrel),
        max(quarrel),
        provided=kept["scale"] == "paper" and len(runs()) == 3,
    )
    papers = papers_setting()
    yield says("2,048 images have an ACD of {:.3f} to {:.3f}, where the paper has .08 ± .01.", min(papers), max(papers))
    asked = {
        (line.row, line.column): line.ours.value
        for line in compared("hubris-table3")
        if line.row.endswith("mnist, ambigan")
    }
    yield says(
        "have {:.2f} / {:.2f} (ConvNeXt) and {:.2f} / {:.2f} (ViT).",
        *(asked[f"{family}: mnist, ambigan", column] for family in ("ConvNeXt", "ViT") for column in ("H_A", "H_R")),
    )
    yield says(
        "Three runs beside each other took {:.0f} minutes.", max(one["seconds_until"]["ratios"] for one in runs()) / 60
    )
