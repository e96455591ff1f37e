"""docs/service.md: how many requests the service holds."""

from __future__ import annotations

from collections.abc import Iterator

from claims import Claim, record, says

PAGE = "docs/service.md"


def claims() -> Iterator[Claim]:
    """All of them."""
    held = record("bench/guard.json")["service"]
    yield says(
        "On two cores {:,.0f} requests in a minute were all answered, half of them within {:.1f} ms and 99 % within "
        "{:.1f} ms",
        held["requests"],
        held["p50"],
        held["p99"],
        provided=held["errors"] == 0 and held["p99"] < held["target_p99"] and held["rate"] == 200,
    )
    busy = record("reliability/load.json")["service"]
    yield says(
        "beside other work on the same cores half of them within {:.1f} ms and 99 % within {:.1f} ms",
        busy["p50"],
        busy["p99"],
        provided=busy["errors"] == 0 and busy["met"] and busy["requests"] == held["requests"],
    )
