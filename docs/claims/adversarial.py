"""docs/adversarial.md: how small a change fools a small classifier of digits."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median
from typing import Any

from claims import Claim, find, record, rows, says

PAGE = "docs/adversarial.md"
ATTACKS = ("fgsm", "pgd", "bim", "deepfool")


def claims() -> Iterator[Claim]:
    """All of them."""
    kept = record("adversarial/mnist5k.json")
    modes = kept["modes"]
    yield says(
        "Measured on the {:,} test images of `mnist5k` with the zoo's `simple_cnn` trained for six epochs "
        "(accuracy {:.3f})",
        kept["settings"]["images"],
        kept["accuracy"],
        provided=kept["settings"]["epochs"] == 6,
    )
    rules = record("adversarial/invalid.json")["auroc"]
    yield says(
        "mean grey level alone has an AUROC of {:.2f} for photographs and {:.2f} for textures, but {:.2f} for shuffled "
        "images, whose pixels are the same; the mean difference of neighbouring pixels has {:.2f} and {:.2f} for "
        "photographs and shuffled images, but {:.2f} for textures",
        *(rules[part]["level"] for part in ("photos", "textures", "shuffled")),
        *(rules[part]["roughness"] for part in ("photos", "shuffled", "textures")),
    )
    lines: list[tuple] = []
    for mode in ("white-box", "transfer"):
        for name in ATTACKS:
            row = find(modes[mode]["rows"], attack=name)
            text = (
                f"| {mode} |" if name == ATTACKS[0] else "| |"
            ) + f" {name} | {{}} | {{}} | {{}} | {{}} | {{}} of {{}} |"
            values = [row["wrong_already"], *row["fooled_by"].values(), row["withstood"], row["images"]]
            if name == ATTACKS[-1]:
                lines.append((text + " {:.0f} s in all |", *values, modes[mode]["seconds"]))
            else:
                lines.append((text + " |", *values))
    yield rows(*lines)
    plain, legacy = ({row["attack"]: row for row in modes[mode]["rows"]} for mode in ("white-box", "legacy"))
    yield says(
        "makes DeepFool's changes a little larger ({:.3f} instead of {:.3f} in the mean) and leaves the "
        "numbers of the others as they are.",
        legacy["deepfool"]["mean_size"],
        plain["deepfool"]["mean_size"],
        provided=all(plain[name] == legacy[name] for name in ATTACKS[:3]),
    )
    kept = record("adversarial/softmax.json")
    yield says(
        "by {:.2f} of AUROC in the median of eight networks for digits and clothes",
        softmax_gaps(kept)[1],
        provided=len(kept["rows"]) == 8,
    )


def softmax_gaps(kept: Any) -> tuple[float, float, float]:
    """The least, the median and the largest difference of the softmax scores' AUROC between both ways to attack."""
    gaps = [
        row["ways"]["logits"]["auroc"][name] - row["ways"]["softmax"]["auroc"][name]
        for row in kept["rows"]
        for name in ("max_softmax", "pcs", "entropy", "deep_gini")
    ]
    return min(gaps), median(gaps), max(gaps)
