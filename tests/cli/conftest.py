from __future__ import annotations

from collections.abc import Iterator

import pytest

from command_line import run

__all__ = ["run"]


@pytest.fixture(scope="session", autouse=True)
def unhurried() -> Iterator[None]:
    """Full sizes, whatever else the machine does: how plans shorten is tested in `tests/planning`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "secondguess.planning.plan.choose_sizes",
            lambda prices, seconds: {name: price.full for name, price in prices.items()},
        )
        yield
