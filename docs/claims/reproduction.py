"""docs/evidence/reproduction.intro.txt: the short page, whose numbers the details have, too."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import mean, stdev

from claims import Claim, _networks, record, says
from claims._hubris import apart_in_table3, papers_setting
from claims._tables import close, compared
from claims.reproduction_details import lost, networks_of_c, processor_seconds, selfchecker_is_nearer

PAGE = "docs/evidence/reproduction.intro.txt"


def claims() -> Iterator[Claim]:
    """All of them, paper by paper."""
    right, total = close(compared("ambiguity-table1"))
    top = {line.row: line for line in compared("ambiguity-table1") if line.column == "top-pair"}
    both = [top[f"{name}, ambiguess, mean of four: mixed, ambiguous"] for name in ("mnist", "fashion_mnist")]
    yield says(
        "networks put both classes on top for {:.0f} % of those of MNIST and {:.0f} % of those of Fashion-MNIST "
        "(published: {:.0f} and {:.0f} %).",
        *(100 * line.ours.value for line in both),
        *(100 * line.paper.value for line in both),
    )
    trusted = [line for line in compared("ambiguity-table2") if not line.paper.unreliable]
    yield says(
        "{} of {} cells of Table 1 and {} of {} trusted cells of Table 2 are within .05;", right, total, *close(trusted)
    )
    lines = [line for line in compared("surprise-table1") if not line.paper.unreliable]
    models = record("surprise/models.json")["auroc"]
    yield says(
        "All {} trusted cells of Table 1 are within {:.3f}, with {} re-trained models as in the paper;",
        len(lines),
        max(abs(line.difference) for line in lines),
        models["dsa"]["models"],
    )
    better = [line.difference for line in lines if line.row.startswith("corrupted") and line.column == "mean"]
    yield says(
        "Both are {:.2f} better on corrupted images, which are drawn anew.",
        mean(better),
        provided=len(better) == 2 and len({f"{one:.2f}" for one in better}) == 1,
    )
    third = [lost("uniform", "0.33", key) for key in ("fgsm", "mnist_c")]
    yield says("a third of the training traces costs DSA less than .01.", provided=max(map(mean, third)) < 0.01)
    yield says("Sampling has {} models.", models["dsa, uniform 0.33"]["models"])
    times = processor_seconds()["DSA"]
    yield says("DSA takes a {:.0f}th of dnn-tip's processor time", times["dnn-tip"] / times["ours"])
    votes = [
        line
        for number in (6, 7, 8)
        for line in compared(f"oracles-table{number}")
        if line.row in "LMN" and line.column == "cross-referencing"
    ]
    yield says("come out within {:.4f} from the published predictions.", max(abs(line.difference) for line in votes))
    nearer = [*list(selfchecker_is_nearer().values())[:2], networks_of_c()]
    yield says(
        "with {} networks of {} on D, {} of {} on E and {} of {} on C;",
        *(number for some in nearer for number in (sum(some), len(some))),
    )
    papers = [papers_setting(name) for name in ("mnist", "fashion_mnist")]
    yield says(
        "ACD {:.3f} to {:.3f} in three runs on MNIST, for .08 ± .01, and {:.3f} to {:.3f} on Fashion-MNIST, for .06.",
        *(end(some) for some in papers for end in (min, max)),
        provided=[len(some) for some in papers] == [3, 3],
    )
    published = {line.row: line.paper.value for line in compared("hubris-table1") if line.column == "ACD"}
    yield says(
        "X-rays are twice as ambiguous to the estimator as published.",
        provided=1.7 < published["chest_xray, ambigan"] / mean(papers_setting("pneumoniamnist")) < 2.3,
    )
    yield says(
        "by {:.1f} points in the mean where the paper has {:.1f}.",
        *(mean(apart_in_table3("H_A", who)) for who in ("ours", "paper")),
    )
    some = _networks.networks()
    ratios = _networks.found(_networks.SDR, some)
    yield says(
        "{:.2f} ± {:.2f} over {} networks came out, and none reached 4.",
        mean(ratios),
        stdev(ratios),
        len(some),
        provided=max(ratios) < 4,
    )
