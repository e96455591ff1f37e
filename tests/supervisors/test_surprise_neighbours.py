from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from secondguess.errors import UserError
from secondguess.supervisors.surprise import _neighbours as engine
from secondguess.supervisors.surprise._grouped import Grouped, blocks, exact_distances, gather, grouped, split
from secondguess.supervisors.surprise._neighbours import nearest_other, nearest_other_of_all, nearest_same
from secondguess.supervisors.surprise._rounding import rounding, stated_precision


def brute_force(reference, classes, queries, of_queries, *, other):
    """Row and distance of the nearest in float64; argmin takes the lowest row of a tie."""
    rows, distances = [], []
    for query, label in zip(queries.astype(np.float64), of_queries, strict=True):
        allowed = np.flatnonzero((classes != label) if other else (classes == label))
        if len(allowed) == 0:
            rows.append(-1)
            distances.append(np.inf)
            continue
        apart = np.sqrt(((reference[allowed].astype(np.float64) - query) ** 2).sum(axis=1))
        rows.append(allowed[apart.argmin()])
        distances.append(apart.min())
    return np.array(rows), np.array(distances)


def cloud(kind: str, rng, n: int, m: int, d: int, k: int):
    reference, queries = rng.normal(size=(n, d)), rng.normal(size=(m, d))
    classes, asked = rng.integers(0, k, n), rng.integers(0, k, m)
    if kind == "ties":
        reference, queries = reference.round(), queries.round()
    elif kind == "all the same":
        reference[:] = reference[0]
    elif kind == "many the same":
        reference[rng.random(n) < 0.5] = 0
        queries[::2] = 0
    elif kind == "far from the origin":
        reference, queries = reference + 1000, queries + 1000
    elif kind == "queries far away":
        queries *= 300
    elif kind == "tight classes":
        centres = rng.normal(size=(k, d))
        reference, queries = 1e-4 * reference + centres[classes], 1e-4 * queries + centres[asked]
    return reference.astype(np.float32), classes, queries.astype(np.float32), asked


KINDS = ["plain", "ties", "all the same", "many the same", "far from the origin", "queries far away", "tight classes"]


@pytest.fixture(params=["one piece", "small pieces", "smaller panels"])
def sizes(request, monkeypatch):
    """Make blocks, tiles and panels so small that little data crosses all their edges."""
    chosen = {"one piece": None, "small pieces": (1 << 20, 256, 128), "smaller panels": (384, 128, 256)}[request.param]
    if chosen:
        monkeypatch.setattr(engine._Sizes, "on", classmethod(lambda cls, device, dimension: cls(*chosen)))


@pytest.mark.parametrize("kind", KINDS)
def test_neighbours_are_those_of_a_float64_brute_force(kind, sizes):
    rng = np.random.default_rng(KINDS.index(kind))
    for n, m, d, k in [(700, 150, 20, 3), (400, 60, 3, 9), (130, 40, 1, 2), (2, 1, 5, 2)]:
        reference, classes, queries, asked = cloud(kind, rng, n, m, d, k)
        members, wanted = grouped(reference, classes, k), grouped(queries, asked, k)
        for search, other in ((nearest_same, False), (nearest_other, True)):
            found = search(members, wanted, "cpu")
            row, distance = brute_force(reference, classes, queries, asked, other=other)
            np.testing.assert_array_equal(found.row, row[wanted.order])
            np.testing.assert_allclose(found.distance, distance[wanted.order], rtol=1e-13)
        found = nearest_other_of_all(members, "cpu")
        row, distance = brute_force(reference, classes, reference, classes, other=True)
        np.testing.assert_array_equal(found.row, row[members.order])
        np.testing.assert_allclose(found.distance, distance[members.order], rtol=1e-13)


@pytest.mark.parametrize("kind", KINDS)
def test_the_bound_of_a_gpu_gives_the_same_neighbours(kind, monkeypatch):
    """As on tensor cores: inputs rounded to eleven bits, many candidates, and every crowd looked at closely."""
    real = torch.addmm

    def coarse(bias, first, second, out):
        def cut(values):
            return (values.contiguous().view(torch.int32) + 0x1000 & ~0x1FFF).view(torch.float32)

        return real(bias, cut(first), cut(second), out=out)

    reference, classes, queries, asked = cloud(kind, np.random.default_rng(5), 900, 200, 24, 3)
    members, wanted = grouped(reference, classes, 3), grouped(queries, asked, 3)
    expected = [nearest_same(members, wanted, "cpu"), nearest_other(members, wanted, "cpu")]
    monkeypatch.setattr(torch, "addmm", coarse)
    monkeypatch.setattr(engine, "rounding", lambda dimension, device: rounding(dimension, torch.device("cuda")))
    monkeypatch.setattr(engine, "CROWD", 0)
    for search, result in zip((nearest_same, nearest_other), expected, strict=True):
        found = search(members, wanted, "cpu")
        np.testing.assert_array_equal(found.row, result.row)
        np.testing.assert_array_equal(found.distance, result.distance)


def test_the_error_of_a_product_stays_within_the_bound():
    rng = np.random.default_rng(0)
    for d in (3, 50, 700):
        first, second = (rng.normal(1.0, 1.0, (200, d)).astype(np.float32) for _ in range(2))
        halves = torch.from_numpy(second).square().sum(dim=1).mul(0.5)
        value = torch.addmm(halves, torch.from_numpy(first), torch.from_numpy(second).T, alpha=-1.0).double().numpy()
        a, b = first.astype(np.float64), second.astype(np.float64)
        exact = 0.5 * (b**2).sum(axis=1) - a @ b.T
        norms, furthest = np.linalg.norm(a, axis=1), np.linalg.norm(b, axis=1).max()
        allowed = rounding(d, torch.device("cpu")) * (norms * furthest + furthest**2)
        assert (np.abs(value - exact) <= allowed[:, None]).all()


def test_a_memory_mapped_reference_is_read_where_it_is(tmp_path: Path):
    rng = np.random.default_rng(1)
    reference, classes, queries, asked = cloud("plain", rng, 500, 50, 12, 4)
    file = tmp_path / "traces.npy"
    np.save(file, reference)
    mapped = np.load(file, mmap_mode="r")
    here, there = grouped(reference, classes, 4), grouped(mapped, classes, 4)
    wanted = grouped(queries, asked, 4)
    assert there.rows is mapped
    np.testing.assert_array_equal(nearest_other(here, wanted, "cpu").row, nearest_other(there, wanted, "cpu").row)


def test_some_rows_only():
    rng = np.random.default_rng(2)
    reference, classes, queries, asked = cloud("plain", rng, 300, 80, 6, 3)
    kept = np.flatnonzero(rng.random(300) < 0.4)
    wanted = grouped(queries, asked, 3)
    found = nearest_same(grouped(reference, classes, 3, kept), wanted, "cpu")
    row, _ = brute_force(reference[kept], classes[kept], queries, asked, other=False)
    np.testing.assert_array_equal(found.row, kept[row[wanted.order]])


def test_without_a_reference_the_distance_is_infinite():
    members = grouped(np.zeros((3, 2), np.float32), np.zeros(3, np.int64), 2)
    wanted = grouped(np.ones((2, 2), np.float32), np.array([1, 0]), 2)
    found = nearest_same(members, wanted, "cpu")
    assert found.row.tolist() == [0, -1]
    assert found.distance.tolist() == [np.sqrt(2), np.inf]
    assert nearest_other(members, wanted, "cpu").distance.tolist() == [np.inf, np.sqrt(2)]


def test_duplicates_make_no_crowd(monkeypatch):
    """Identical references must not be measured one by one."""
    measured = []

    def counting(first, of_first, second, of_second):
        measured.append(len(of_first))
        return exact_distances(first, of_first, second, of_second)

    monkeypatch.setattr(engine, "exact_distances", counting)
    members = grouped(np.ones((3000, 4), np.float32), np.zeros(3000, np.int64), 1)
    wanted = grouped(np.zeros((200, 4), np.float32), np.zeros(200, np.int64), 1)
    found = nearest_same(members, wanted, "cpu")
    assert (found.row == 0).all()
    assert sum(measured) <= 2 * 200


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e30])
def test_numbers_that_cannot_be_squared_are_refused(value):
    rows = np.zeros((4, 2), np.float32)
    rows[2, 1] = value
    groups = np.array([0, 0, 1, 1])
    fine = grouped(np.zeros((4, 2), np.float32), groups, 2)
    with pytest.raises(UserError, match="not a number, infinite or beyond 1e\\+17"):
        nearest_same(fine, grouped(rows, groups, 2), "cpu")
    with pytest.raises(UserError, match="leave them out"):
        nearest_other(grouped(rows, groups, 2), fine, "cpu")


def test_pieces_cover_everything_once_and_keep_small_groups_whole():
    starts = np.array([0, 0, 100, 130, 930, 930, 1000])
    pieces = list(blocks(starts, 256, 128))
    assert [a for a, _ in pieces][1:] == [b for _, b in pieces][:-1]
    assert (pieces[0][0], pieces[-1][1]) == (0, 1000)
    assert all(b - a <= 256 for a, b in pieces)
    assert pieces[0] == (0, 130)  # two small groups together, and the large one apart
    assert list(split(10, 10, 256, 128)) == []


def test_gathering_by_several_threads(monkeypatch):
    rows = np.arange((1 << 23) + 64, dtype=np.float32).reshape(-1, 64)
    indices = np.random.default_rng(0).permutation(len(rows))
    out = np.empty_like(rows)
    gather(rows, indices, out)
    np.testing.assert_array_equal(out, rows[indices])


def test_groups_are_found_again():
    made = grouped(np.zeros((5, 1), np.float32), np.array([2, 0, 2, 0, 3]), 5)
    assert made.order.tolist() == [1, 3, 0, 2, 4]
    assert made.groups.tolist() == [0, 0, 2, 2, 3]
    assert isinstance(made, Grouped)
    assert len(made) == 5


def test_the_precision_of_the_caller_is_given_back():
    before = torch.get_float32_matmul_precision()
    with stated_precision(torch.device("cpu")):
        assert torch.get_float32_matmul_precision() == "highest"
    assert torch.get_float32_matmul_precision() == before


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("kind", KINDS)
def test_cuda_finds_the_neighbours_of_the_processor(kind):
    reference, classes, queries, asked = cloud(kind, np.random.default_rng(3), 20_000, 3000, 300, 40)
    members, wanted = grouped(reference, classes, 40), grouped(queries, asked, 40)
    for search in (nearest_same, nearest_other):
        cpu, cuda = search(members, wanted, "cpu"), search(members, wanted, "cuda")
        np.testing.assert_array_equal(cpu.row, cuda.row)
        np.testing.assert_array_equal(cpu.distance, cuda.distance)
    cpu, cuda = nearest_other_of_all(members, "cpu"), nearest_other_of_all(members, "cuda")
    np.testing.assert_array_equal(cpu.row, cuda.row)
