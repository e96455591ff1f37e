"""How much of the range of surprise the test images cover, and what stress sets reach beyond.

The range of each score of the family `surprise` runs from 0 (from the least score where that is negative) to the
largest score of a test image, and is divided into equal buckets. A bucket is covered if one score lies in it
(`secondguess.supervisors.surprise.coverage`). Sets of different size are compared by what as many images of each
cover on average. Coverage says how varied a set is in the eyes of the model, not how good the model is.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from secondguess.audits.context import Context
from secondguess.audits.findings import Findings, NotApplicable
from secondguess.audits.sections.registry import Section, register
from secondguess.supervisors.registry import family
from secondguess.supervisors.surprise.coverage import SurpriseCoverage

FIRST = "dsa"  # shown open, where it is there


@register
class Coverage(Section):
    """How much of the range of surprise the test images cover.

    Args:
        buckets: into how many parts the range is divided. The definition has 1,000, for 10,000 images; of fewer images
            most buckets would be empty because there are few.
        upper: where the range ends, to compare audits of different test images; by default at the largest score of a
            test image.
    """

    name = "surprise_coverage"
    title = "How much surprise do the test images cover?"
    after = "priorities"

    def __init__(self, buckets: int = 100, upper: float | None = None) -> None:
        self.buckets = buckets
        self.upper = upper

    def run(self, context: Context) -> Findings:
        """The coverage of the test images and of each stress set, by every score of surprise."""
        names = [one.name for one in context.fitted if family(type(one)) == "surprise"]
        if not names:
            raise NotApplicable("None of the supervisors of this audit measures surprise (dsa, lsa, mdsa).")
        findings = Findings()
        names.sort(key=lambda name: name.partition(":")[0] != FIRST)
        for name in names:
            self._add(context, findings, name)
        if not findings.numbers:
            raise NotApplicable("All test images are equally surprising, so there is no range to cover.")
        return findings

    def _add(self, context: Context, findings: Findings, name: str) -> None:
        nominal = context.scored(name).scores
        empty = self._range(nominal)
        if empty is None:
            return
        sets = {"nominal": nominal} | {one: context.scored(name, one).scores for one in context.stressed}
        found = {
            one: SurpriseCoverage(empty.lower, empty.upper, empty.buckets).add(scores) for one, scores in sets.items()
        }
        size = min(one.total for one in found.values())
        rows = []
        for one, counted in found.items():
            start = f"surprise_coverage.{name}.{one}"
            images = context.test if one == "nominal" else context.stressed[one][0]
            findings.numbers[start] = context.number(counted.coverage, images)
            findings.numbers[f"{start}.above"] = context.number(counted.overflow / counted.total, images)
            together = (found["nominal"] | counted).coverage
            rows.append(
                [
                    "test images" if one == "nominal" else one,
                    f"{counted.total:,}",
                    f"{counted.coverage:.0%}",
                    f"{counted.expected(size):.0%}",
                    f"{counted.overflow / counted.total:.1%}",
                    "" if one == "nominal" else f"{together:.0%}",
                ]
            )
        if not findings.parts:
            findings.add_text(self._words(name, found["nominal"]))
        findings.add_table(
            ["images", "number", "covered", f"by {size:,} of them", "above the range", "with the test images"],
            rows,
            f"Buckets of {name} that are covered, from {empty.lower:.3g} to {empty.upper:.3g}",
            folded=True,
        )

    def _range(self, nominal: NDArray[np.float64]) -> SurpriseCoverage | None:
        """The empty buckets; None where all scores are the same, or infinite."""
        finite = nominal[np.isfinite(nominal)]
        lower = min(0.0, float(finite.min(initial=0.0)))
        upper = float(finite.max(initial=lower)) if self.upper is None else self.upper
        return SurpriseCoverage(lower, upper, self.buckets) if lower < upper else None

    def _words(self, name: str, nominal: SurpriseCoverage) -> str:
        empty = 1 - nominal.coverage
        return (
            f"Surprise is how unlike its training images the model finds an image. The range of {name} is divided into "
            f"{nominal.buckets} equal parts, up to the most surprising test image. Test images lie in "
            f"{nominal.coverage:.0%} of them; in the other {empty:.0%} nobody knows how the model does. A stress set "
            "that covers more, or lies above the range, tests what the test images do not. A varied set is no proof of "
            "a good model."
        )
