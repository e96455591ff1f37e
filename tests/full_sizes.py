"""The fixture `unhurried`, for the folders of tests whose commands and verbs draw up plans."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

__all__ = ["unhurried"]


@pytest.fixture(scope="session", autouse=True)
def unhurried() -> Iterator[None]:
    """Full sizes, whatever else the machine does: how plans shorten is tested in `tests/planning`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "secondguess.planning.plan.choose_sizes",
            lambda prices, seconds: {name: price.full for name, price in prices.items()},
        )
        yield
