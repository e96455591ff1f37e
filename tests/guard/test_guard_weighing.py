"""The weights of a panel's evidence."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from secondguess.guard.panel import Panel, fit_panel
from secondguess.guard.weighing import weigh
from secondguess.metrics import auroc


def test_weights_lift_the_kind_that_is_neglected():
    """The network sees the first kind, as a supervisor does; the last supervisor sees the other."""
    rng = np.random.default_rng(0)
    quiet, first, second = rng.normal(size=(600, 4)), rng.normal(size=(400, 4)), rng.normal(size=(400, 4))
    first[:, :2] += 2
    second[:, 3] += 2
    weights = weigh(quiet, [first, second])
    assert (weights >= 0).all() and weights[2] < 0.2 * weights[3]
    for kind, column in ((first, 0), (second, 3)):
        alone = auroc(quiet[:, column], kind[:, column])
        assert auroc(quiet @ weights, kind @ weights) > alone - 0.1  # the evidence for the other kind is noise for this
    assert auroc(quiet[:, 0], second[:, 0]) < 0.6
    assert weigh(quiet, [first, second]).tolist() == weights.tolist()


def test_a_panel_is_weighed_the_same_for_one_image_and_for_many():
    rng = np.random.default_rng(1)
    nominal = rng.normal(size=(120, 4))
    first, last = 3 * np.eye(4)[[0, 2]]
    panel = fit_panel(nominal, {"adversarial": nominal[:60] + first, "invalid": nominal[60:] + last})
    assert panel.shares.shape == (5,) and (panel.shares >= 0).all()
    scores = np.vstack([nominal[:20] * 3, np.full((1, 4), np.inf), np.full((1, 4), -np.inf)])
    together = panel.combine(scores)[0]
    assert [panel.combine(row[None])[0][0] for row in scores] == pytest.approx(together.tolist())
    network = replace(panel, shares=np.zeros(0)).combine(scores)[0]
    # The same by hand: the network's share, and the surprise of every supervisor among its references.
    limited, r = np.clip(scores, -1e30, 1e30), len(panel.references)
    ranks = [
        np.interp(x, own, np.arange(1, r + 1), left=0) for x, own in zip(limited.T, panel.references.T, strict=True)
    ]
    surprises = -np.log((1 + r - np.array(ranks).T) / (r + 1))
    assert together == pytest.approx(panel.shares[0] * network + surprises @ panel.shares[1:])


def test_a_panel_of_an_earlier_version_has_no_shares():
    rng = np.random.default_rng(2)
    nominal = rng.normal(size=(60, 2))
    panel = fit_panel(nominal, {"invalid": nominal + 3})
    arrays = {name: array for name, array in panel.arrays().items() if name != "shares"}
    read = Panel.restored(panel.card(), arrays)
    plain = replace(panel, shares=np.zeros(0))
    assert read.combine(nominal)[0].tolist() == plain.combine(nominal)[0].tolist()


def test_weights_are_found_with_networks_that_have_not_met_a_sort():
    """Each sort shows in a score of its own: a network says nothing of one that it has not met, its supervisor does."""
    rng = np.random.default_rng(3)
    nominal, sorts = rng.normal(size=(240, 4)), np.repeat([0, 1, 2], 60)
    strange = rng.normal(size=(180, 4)) + 3 * np.eye(4)[sorts]
    trusting, careful = (
        fit_panel(nominal, {"invalid": strange}, sorts=known) for known in (None, {"invalid": sorts.astype(str)})
    )
    network = [panel.shares[0] / panel.shares[1:4].min() for panel in (trusting, careful)]
    assert network[1] < 0.5 * network[0]
    again = fit_panel(nominal, {"invalid": strange}, sorts={"invalid": sorts.astype(str)})
    assert again.shares.tolist() == careful.shares.tolist()
