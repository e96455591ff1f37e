from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats
from torch.autograd.functional import jacobian

from secondguess.stress.ambiguous.autoencoders import Member, RaaeFleet
from secondguess.stress.ambiguous.latent import Grid, draw, labels, survey

CPU = torch.device("cpu")


class Plane:
    """Two make-believe autoencoders whose label depends on x alone, and the second's image on y alone."""

    device = CPU

    def __init__(self, slope: float = 1.0, logits: tuple[float, float] | None = None) -> None:
        self.slope, self.logits = slope, logits

    def __len__(self) -> int:
        return 2

    def class_logits(self, z: torch.Tensor) -> torch.Tensor:
        if self.logits is not None:
            return torch.tensor(self.logits).expand(*z.shape[:2], 2)
        return torch.stack([-self.slope * z[..., 0], self.slope * z[..., 0]], dim=-1)

    def decode(self, z: torch.Tensor) -> torch.Tensor:
        first = torch.stack([3 * z[0, :, 0], 4 * z[0, :, 1]], dim=-1)
        second = torch.stack([torch.zeros_like(z[1, :, 1]), z[1, :, 1].square()], dim=-1)
        return torch.stack([first, second])[:, :, None, None]


def real_fleet(shape=(1, 8, 8), codes=2) -> RaaeFleet:
    return RaaeFleet([Member((0, 1), 0, 3), Member((0, 2), 0, 4)], shape, codes, CPU)


def points(count: int = 6) -> torch.Tensor:
    return 6 * torch.rand(2, count, 2, generator=torch.Generator().manual_seed(0)) - 3


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_the_label_of_the_paper_is_the_normalised_sigmoid():
    fleet, z = real_fleet(), 5 * points()
    with torch.no_grad():
        sigmoids = fleet.class_logits(z).double().sigmoid()
        expected = sigmoids[..., 0] / sigmoids.sum(dim=-1)
        torch.testing.assert_close(labels(fleet, z).double(), expected, atol=1e-6, rtol=1e-5)


def test_the_legacy_label_is_the_softmax_of_the_logits():
    fleet, z = real_fleet(codes=5), 5 * points()
    with torch.no_grad():
        logits = fleet.class_logits(z).double()
        expected = 1 / (1 + torch.exp(logits[..., 1] - logits[..., 0]))
        torch.testing.assert_close(labels(fleet, z, "legacy").double(), expected, atol=1e-6, rtol=1e-5)
        assert (labels(fleet, z, "legacy") - labels(fleet, z)).abs().max() > 1e-3


@pytest.mark.parametrize("mode", ["paper", "legacy"])
@pytest.mark.parametrize(("logits", "expected"), [((-9e4, -9e4), 0.5), ((-9e4, -8e4), 0.0), ((9e4, -9e4), 1.0)])
def test_far_away_a_label_is_still_a_number(mode, logits, expected):
    p1 = labels(Plane(logits=logits), points(), mode)
    assert torch.equal(p1, torch.full_like(p1, expected))


def test_where_both_logits_are_large_the_two_labels_differ():
    z = points()
    assert labels(Plane(logits=(60.0, 50.0)), z).flatten()[0] == pytest.approx(0.5)
    assert labels(Plane(logits=(60.0, 50.0)), z, "legacy").flatten()[0] == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize(("mode", "right"), [("paper", 3.0), ("legacy", 1.0)])
def test_the_confined_space_and_its_cells(mode, right):
    grid = survey(Plane(), delta_max=0.25, cells=50, mode=mode)
    assert grid.anchors.shape == (2, 50, 50, 2)
    assert grid.p1.shape == grid.weights.shape == (2, 50, 50)
    assert grid.cell == pytest.approx((2 * right / 50, 0.2))
    x, y = grid.anchors[0, :, 0, 0].numpy(), grid.anchors[0, 0, :, 1].numpy()
    np.testing.assert_allclose(x, [-right + (i + 0.5) * 2 * right / 50 for i in range(50)], atol=1e-5)
    np.testing.assert_allclose(y, [-5 + (j + 0.5) * 0.2 for j in range(50)], atol=1e-5)
    np.testing.assert_allclose(grid.anchors[0, 7, :, 0], x[7], atol=1e-6)  # i runs along x
    np.testing.assert_allclose(grid.anchors[1], grid.anchors[0])


@pytest.mark.parametrize("mode", ["paper", "legacy"])
@pytest.mark.parametrize("delta", [0.25, 0.4])
def test_exactly_the_cells_with_a_clear_label_weigh_nothing(mode, delta):
    fleet = real_fleet()
    # An untrained discriminator hesitates everywhere; a hundred times as loud, it does not.
    fleet.parts["discriminator"]["6.weight"] = fleet.parts["discriminator"]["6.weight"].detach() * 100
    grid = survey(fleet, delta_max=delta, cells=20, mode=mode)
    clear = (grid.p1 - (1 - grid.p1)).abs() > delta
    assert clear.any() and not clear.all()
    np.testing.assert_array_equal(grid.weights == 0, clear)
    with torch.no_grad():
        expected = labels(fleet, grid.anchors.reshape(2, 400, 2), mode).reshape(2, 20, 20)
    torch.testing.assert_close(grid.p1, expected)


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 10, 9)])
def test_the_weight_is_the_norm_of_the_decoders_jacobian(shape):
    fleet = real_fleet(shape)
    grid = survey(fleet, delta_max=1.0, cells=3)
    for member in range(2):
        one = fleet.only(member)
        for i, j in ((0, 0), (1, 2), (2, 1)):
            matrix = jacobian(lambda z, one=one: one.decode(z[None, None]).flatten(), grid.anchors[member, i, j])
            assert grid.weights[member, i, j].item() == pytest.approx(matrix.norm().item(), rel=1e-4)


def test_the_legacy_weight_is_the_gradient_of_the_brightness():
    fleet = real_fleet()
    grid = survey(fleet, delta_max=1.0, cells=3, mode="legacy")
    for member in range(2):
        for i, j in ((0, 0), (1, 2), (2, 1)):
            z = grid.anchors[member, i, j].clone().requires_grad_()
            fleet.only(member).decode(z[None, None]).square().sum().backward()
            assert grid.weights[member, i, j].item() == pytest.approx(z.grad.norm().item(), rel=1e-4)


def test_weights_in_closed_form():
    paper = survey(Plane(0.0), delta_max=0.25, cells=4)
    np.testing.assert_allclose(paper.weights[0], 5, rtol=1e-5)  # diag(3, 4)
    np.testing.assert_allclose(paper.weights[1], 2 * paper.anchors[1, ..., 1].abs(), rtol=1e-5)
    legacy = survey(Plane(0.0), delta_max=0.25, cells=4, mode="legacy")
    x, y = legacy.anchors[0, ..., 0].numpy(), legacy.anchors[0, ..., 1].numpy()
    np.testing.assert_allclose(legacy.weights[0], np.hypot(18 * x, 32 * y), rtol=1e-5)
    np.testing.assert_allclose(legacy.weights[1], 4 * np.abs(y) ** 3, rtol=1e-4)


def test_a_survey_leaves_no_graph_behind():
    grid = survey(real_fleet(), delta_max=0.25, cells=3, mode="legacy")
    assert not grid.weights.requires_grad and not grid.p1.requires_grad


def one_cell(mode: str, i: int, j: int, cells: int = 10) -> Grid:
    grid = survey(Plane(0.0), delta_max=0.25, cells=cells, mode=mode)
    weights = torch.zeros(2, cells, cells)
    weights[:, i, j] = 1.0
    return Grid(grid.anchors, grid.p1, weights, grid.cell)


@pytest.mark.parametrize(("mode", "cell"), [("paper", (2, 7)), ("legacy", (7, 2))])
def test_points_come_from_the_weighted_cell_and_in_legacy_mode_from_the_transposed_one(mode, cell):
    grid = one_cell(mode, 2, 7)
    drawn = draw(Plane(0.0), grid, 4000, delta_max=0.25, generator=generator(), mode=mode)
    place = ((drawn.z - grid.anchors[:, *cell][:, None]) / torch.tensor(grid.cell) + 0.5).double().numpy()
    assert drawn.z.shape == (2, 4000, 2) and drawn.kept.all()
    assert place.min() >= -1e-5 and place.max() <= 1 + 1e-5
    for axis in (0, 1):
        assert stats.kstest(place[0, :, axis], "uniform").pvalue > 1e-3
    assert abs(np.corrcoef(place[0].T)[0, 1]) < 0.06
    assert not np.array_equal(place[0], place[1])


def test_cells_are_drawn_as_often_as_they_weigh():
    weights = torch.rand(2, 4, 4, generator=generator(1))
    weights[0, 1] = 0
    grid = survey(Plane(0.0), delta_max=0.25, cells=4)
    grid = Grid(grid.anchors, grid.p1, weights, grid.cell)
    z = draw(Plane(0.0), grid, 20_000, delta_max=0.25, generator=generator()).z.double().numpy()
    for member in range(2):
        counts, _, _ = np.histogram2d(*z[member].T, bins=[np.linspace(-3, 3, 5), np.linspace(-5, 5, 5)])
        expected = weights[member].double().numpy() / weights[member].double().sum().item() * 20_000
        assert not counts[expected == 0].any()
        some = expected > 0
        assert stats.chisquare(counts[some], expected[some] * counts.sum() / expected.sum()).pvalue > 1e-3


@pytest.mark.parametrize("mode", ["paper", "legacy"])
def test_the_final_filter_is_strict_where_the_weight_is_not(mode):
    fleet = Plane(logits=(0.4, 0.0))
    delta = (2 * labels(fleet, points(), mode) - 1).abs().flatten()[0].item()
    grid = survey(fleet, delta_max=delta, cells=4, mode=mode)
    assert (grid.weights > 0).any()
    assert not draw(fleet, grid, 50, delta_max=delta, generator=generator(), mode=mode).kept.any()
    assert draw(fleet, grid, 50, delta_max=delta * 1.001, generator=generator(), mode=mode).kept.all()


def test_a_point_is_judged_where_it_lies_and_not_at_its_anchor():
    fleet = Plane(slope=3.0)
    grid = survey(fleet, delta_max=0.25, cells=6)  # cells so coarse that a label changes within
    grid = Grid(grid.anchors, grid.p1, torch.ones_like(grid.weights), grid.cell)
    drawn = draw(fleet, grid, 2000, delta_max=0.25, generator=generator())
    torch.testing.assert_close(drawn.p1, labels(fleet, drawn.z))
    np.testing.assert_array_equal(drawn.kept, (2 * drawn.p1 - 1).abs() < 0.25)
    assert 0 < drawn.kept.double().mean() < 0.5


def test_nothing_is_kept_of_a_member_without_an_ambiguous_cell():
    grid = survey(Plane(0.0), delta_max=0.25, cells=4)
    weights = grid.weights.clone()
    weights[0] = 0
    drawn = draw(Plane(0.0), Grid(grid.anchors, grid.p1, weights, grid.cell), 30, delta_max=0.25, generator=generator())
    assert drawn.kept.sum(dim=1).tolist() == [0, 30]
    assert torch.isfinite(drawn.z).all()


def test_the_generator_decides():
    grid = survey(Plane(), delta_max=0.25, cells=10)
    one, same, other = (draw(Plane(), grid, 9, delta_max=0.25, generator=generator(seed)).z for seed in (1, 1, 2))
    assert torch.equal(one, same) and not torch.equal(one, other)


def test_in_paper_mode_most_points_survive_and_in_legacy_mode_few():
    # The label depends on x, so the ambiguous cells form a column; transposed, they form a row.
    shares = {}
    for mode in ("paper", "legacy"):
        fleet = Plane(slope=2.0)
        grid = survey(fleet, delta_max=0.25, cells=50, mode=mode)
        shares[mode] = draw(fleet, grid, 2000, delta_max=0.25, generator=generator(), mode=mode).kept.double().mean()
    assert shares["paper"] > 0.8
    assert shares["legacy"] < 0.3
