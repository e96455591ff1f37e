"""The fixtures `unhurried`, for folders of tests whose verbs and commands draw up plans, and `hurried`, for plans."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from secondguess.planning.plan import choose_sizes

__all__ = ["hurried", "unhurried"]


@pytest.fixture(scope="session", autouse=True)
def unhurried() -> Iterator[None]:
    """Full sizes, whatever else the machine does: how plans shorten is tested in `tests/planning`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "secondguess.planning.plan.choose_sizes",
            lambda prices, *_: {name: price.full for name, price in prices.items()},
        )
        yield


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """The true sizes again, whichever folder was tested before in this process."""
    monkeypatch.setattr("secondguess.planning.plan.choose_sizes", choose_sizes)
