from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from secondguess import Observation, Trace, UserError
from secondguess.supervisors import _traces, make
from secondguess.supervisors._traces import TraceSupervisor, chosen_traces, finite_rows, same_width, side_by_side
from secondguess.supervisors.knn import KNN
from secondguess.supervisors.relative_mahalanobis import RelativeMahalanobis
from secondguess.supervisors.surprise.dsa import DSA
from secondguess.supervisors.vim import ViM

Traces = NDArray[np.float32]
OTHERS = ["normalised_mahalanobis", "react", "ash", "scale", "fdbd", "nnguide", "she"]
SUPERVISORS = [KNN(), RelativeMahalanobis(), ViM(), DSA(device="cpu"), DSA(variant="dsa1"), DSA(variant="dsa2")]
SUPERVISORS += map(make, OTHERS)
BROKEN = [np.nan, np.inf, -np.inf]


def seen(traces: Traces, classes: NDArray[np.int64]) -> Observation:
    weight = np.random.default_rng(9).normal(0, 1, (traces.shape[1], 4))
    with np.errstate(invalid="ignore"):
        logits = (np.nan_to_num(traces, posinf=0, neginf=0) @ weight + 10).astype(np.float32)
    return Observation(np.eye(4)[classes], logits=logits, traces={Trace(): traces})


def draw(rows: int, seed: int) -> tuple[Traces, NDArray[np.int64]]:
    rng = np.random.default_rng(seed)
    classes = rng.integers(0, 4, rows)
    centres = np.random.default_rng(5).normal(0, 3, (4, 6))
    return (centres[classes] + rng.normal(0, 1, (rows, 6))).astype(np.float32), classes


@pytest.mark.parametrize("supervisor", SUPERVISORS, ids=repr)
@pytest.mark.parametrize("value", BROKEN)
def test_a_broken_trace_is_infinitely_suspicious_and_alters_no_other(
    supervisor: TraceSupervisor, value: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_traces, "_BLOCK_CELLS", 100)
    fitted = supervisor.clone().fit(seen(*draw(200, 0)))
    traces, classes = draw(60, 1)
    expected = fitted.score(seen(traces, classes))
    traces[17, 2] = traces[41] = value
    scores = fitted.score(seen(traces, classes))
    assert np.flatnonzero(np.isinf(scores)).tolist() == [17, 41]
    whole = np.isfinite(scores)
    np.testing.assert_allclose(scores[whole], expected[whole], rtol=1e-12)
    traces[:] = value
    assert (fitted.score(seen(traces, classes)) == np.inf).all()


@pytest.mark.parametrize("supervisor", SUPERVISORS, ids=repr)
@pytest.mark.parametrize("value", BROKEN)
def test_nothing_is_learnt_from_a_broken_trace(supervisor: TraceSupervisor, value: float) -> None:
    traces, classes = draw(200, 0)
    traces[7, 3] = value
    with pytest.raises(
        UserError, match=rf"The trace of image 7 holds NaN or infinity, from which '{supervisor.name}' cannot learn"
    ):
        supervisor.clone().fit(seen(traces, classes))


@pytest.mark.parametrize("supervisor", SUPERVISORS, ids=repr)
def test_traces_of_another_width_are_refused(supervisor: TraceSupervisor) -> None:
    fitted = supervisor.clone().fit(seen(*draw(200, 0)))
    traces, classes = draw(5, 1)
    for narrow_or_wide in (traces[:, :4], np.concatenate([traces, traces], axis=1)):
        width = narrow_or_wide.shape[1]
        with pytest.raises(
            UserError,
            match=f"{supervisor.name}' was fitted on traces of 6 neurons, but these have {width}; observe the",
        ):
            fitted.score(seen(narrow_or_wide, classes))


@pytest.mark.parametrize("cells", [1, 10, 1 << 20])
def test_finite_rows_agree_with_numpy_whatever_the_block(cells: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_traces, "_BLOCK_CELLS", cells)
    matrix = draw(50, 0)[0]
    assert finite_rows(matrix) is None
    matrix[[3, 49], [0, 5]] = np.nan, np.inf
    mask = finite_rows(matrix)
    assert mask is not None
    np.testing.assert_array_equal(mask, np.isfinite(matrix).all(axis=1))


def test_finite_rows_read_a_file_block_by_block(tmp_path: Path, peak: Callable[[Callable[[], object]], int]) -> None:
    matrix = np.lib.format.open_memmap(tmp_path / "traces.npy", mode="w+", dtype=np.float32, shape=(300_000, 16))
    matrix[:] = 1
    matrix[123_456, 7] = np.nan
    matrix.flush()
    mapped = np.load(tmp_path / "traces.npy", mmap_mode="r")
    assert peak(lambda: finite_rows(mapped)) < mapped.nbytes // 8
    mask = finite_rows(mapped)
    assert mask is not None
    assert np.flatnonzero(~mask).tolist() == [123_456]


@pytest.fixture
def peak() -> Callable[[Callable[[], object]], int]:
    """The most bytes that were allocated at a time while a function ran."""
    import tracemalloc

    def measure(call: Callable[[], object]) -> int:
        tracemalloc.start()
        try:
            call()
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    return measure


def test_same_width_hands_the_matrix_on() -> None:
    matrix = draw(5, 0)[0]
    assert same_width(matrix, 6, "dsa") is matrix


def test_one_layer_is_handed_on_and_several_are_put_side_by_side() -> None:
    first, second = draw(5, 0)[0], draw(5, 1)[0]
    observation = Observation(np.full((5, 2), 0.5), traces={Trace("a"): first, Trace("b", "mean"): second})
    assert side_by_side(observation, [Trace("a")]) is first
    both = side_by_side(observation, chosen_traces([Trace("b", "mean"), "a"]))
    np.testing.assert_array_equal(both, np.hstack([second, first]))


def test_no_layer_at_all_is_refused() -> None:
    with pytest.raises(UserError, match="No layer was chosen; name at least one"):
        chosen_traces([])
