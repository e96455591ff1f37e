from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def few_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the bootstrap is good for is tested with the metrics."""
    monkeypatch.setattr("secondguess.comparison.measures.RESAMPLES", 50)
