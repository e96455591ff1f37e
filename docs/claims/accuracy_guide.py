"""docs/accuracy.md: the numbers of docs/evidence/accuracy.md that say how far to trust an answer."""

from __future__ import annotations

from collections.abc import Iterator

from claims import Claim, record, rows, says
from claims.accuracy import PHOTOS, RIVALS, worst

PAGE = "docs/accuracy.md"


def claims() -> Iterator[Claim]:
    """All of them."""
    models = record("photos/accuracy.json")["models"]
    yield given(models)
    two = [models[name]["summary"]["appearance"] for name in ("cifar10/resnet20", "cifar10/vgg")]
    yield says(
        "Where the appearance of CIFAR-10 has changed, the answer is off by {:.1f} and {:.1f} points with withheld "
        "ones counted, the best of nine other methods by {:.1f} and {:.1f}, average confidence by {:.1f} and {:.1f}, "
        "and the accuracy on validation images by {:.1f} and {:.1f}.",
        *(one["error_all"] for one in two),
        *(min(one["rivals"][name] for name in RIVALS) for one in two),
        *(one["rivals"][name] for name in ("average_confidence", "validation_accuracy") for one in two),
        provided=len(RIVALS) == 9,
    )
    _, case = worst(models)
    yield says("the worst number given is {:.0f} points off,", 100 * abs(case["value"] - case["truth"]))
    errors = record("oracles/mnist.json")["errors"]
    yield says(
        "`rules_and_confidence` is off by {:.1f} points in the mean over ten shifts, the plain share of ICOS by "
        "{:.1f};",
        *(100 * errors[name]["mean over shifts"] for name in ("rules_and_confidence", "icos_fine")),
    )


def given(models: dict) -> Claim:
    """How often there is a number, how far off it is, and how often its interval covers."""
    shifted = [models[name]["summary"]["shifted"] for name in PHOTOS]

    def line(title: str, some: list[dict]) -> tuple:
        share, points = " and ".join(["{:.0f}"] * len(some)), " and ".join(["{:.1f}"] * len(some))
        return (
            f"| {title} | {share} % | {points} | {share} % |",
            *(100 * one["given"] for one in some),
            *(one["error"] for one in some),
            *(100 * one["covered"] for one in some),
        )

    return rows(
        line("CIFAR-10, ResNet-20 and VGG", shifted[:2]),
        line("cats and dogs, ResNet-20 and the paper's CNN", shifted[2:4]),
        line("digits (`mnist5k`), one hidden layer", shifted[4:]),
    )
