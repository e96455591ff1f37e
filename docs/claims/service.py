"""docs/service.md: how many requests the service holds."""

from __future__ import annotations

from collections.abc import Iterator

from claims import Claim, find, record, says

PAGE = "docs/service.md"


def claims() -> Iterator[Claim]:
    """All of them."""
    held = record("bench/guard.json")["service"]
    yield says(
        "On two cores {:,.0f} requests in a minute were all answered, half of them within {:.1f} ms and 99 % within "
        "{:.1f} ms, where {:.0f} was the aim",
        held["requests"],
        held["p50"],
        held["p99"],
        held["target_p99"],
        provided=held["errors"] == 0 and held["p99"] <= held["target_p99"] and held["rate"] == 200,
    )
    busy = record("reliability/load.json")["service"]
    yield says(
        "in another run half of them within {:.1f} ms and 99 % within {:.1f} ms",
        busy["p50"],
        busy["p99"],
        provided=busy["errors"] == 0 and busy["met"] and busy["requests"] == held["requests"],
    )
    yield from fitted()
    yield from soaked()
    yield from killed()


def fitted() -> Iterator[Claim]:
    """What `guard fit` spends its time on."""
    whole = find(
        record("photos/times.json")["rows"],
        data="cifar10_10k2k",
        model="resnet20/model.toml",
        command="guard",
        minutes=None,
    )
    attacks = find(whole["parts"], name="stress.adversarial")["seconds"]
    yield says(
        "most of the time goes into attacking the model ({:.0f} of {:.0f} seconds for a ResNet-20 on CIFAR-10, "
        "`results/photos/times.json`).",
        attacks,
        whole["seconds"],
        provided=attacks > whole["seconds"] / 2,
    )


def soaked() -> Iterator[Claim]:
    """`bench soak`."""
    found = record("reliability/soak.json")
    yield says(
        "In {:.0f} minutes with {:,} kills and {:,} rotations {:,} predictions were acknowledged; {} of them were "
        "lost, {} recorded twice, and {} answers were a 5xx other than an announced 503. After the warm-up the memory "
        "of the service that was not killed changed by {:+.2f} MiB an hour",
        found["minutes"],
        found["kills"],
        found["rotations"],
        found["acknowledged"],
        found["lost"],
        found["doubled"],
        found["5xx"],
        found["memory"]["slope"],
        provided=found["met"]["memory"]
        and not found["surprises"]
        and not found["unsound_files"]
        and not found["tracebacks"],
    )


def killed() -> Iterator[Claim]:
    """`bench kill`."""
    jobs = record("reliability/kill.json")["jobs"]
    yield says(
        "each killed {} times or more, left the same files with the same numbers as when left alone",
        min(one["kills"] for one in jobs.values()),
        provided=set(jobs) == {"audit", "guard fit", "generate", "study run", "label"}
        and not any(one["different"] or one["debris"] for one in jobs.values()),
    )
