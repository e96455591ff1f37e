"""Whatever the shards and however many workers, numbers are those of one process: real processes, and real Dask."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from real_clusters import engine_of
from torch import nn

from secondguess import Classifier, ImageSet, Needs
from secondguess.model import Trace
from secondguess.model import shards as passes
from secondguess.search import distance
from secondguess.search.distance import measure_distances
from secondguess.supervisors import fit_in_shards, make, score_in_shards
from secondguess.supervisors import shards as scoring

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")

NAMES = ("vim", "mdsa", "relative_mahalanobis", "knn", "dsa", "entropy", "mc_dropout_pe")
ENGINES = ("local:1", "local:2", "local:3", "dask")


def classifier(engine: str | None, batch: int = 8) -> Classifier:
    """A small network with dropout, always the same."""
    with torch.random.fork_rng():
        torch.manual_seed(3)
        layers = [nn.Flatten(), nn.Linear(16, 12), nn.ReLU(), nn.Dropout(0.3), nn.Linear(12, 3)]
    return Classifier(
        nn.Sequential(*layers).eval(), output_kind="logits", batch_size=batch, engine=engine, device="cpu"
    )


@pytest.fixture(scope="module")
def images():
    rng = np.random.default_rng(0)
    return ImageSet.from_arrays(rng.random((150, 4, 4)).astype(np.float32), rng.integers(0, 3, 150))


@pytest.fixture(scope="module")
def alone(images):
    """What one process finds: all supervisors fitted on the first images, and their scores of all of them."""
    supervisors = [make(name) for name in NAMES]
    needs = Needs.union(supervisors)
    training = classifier(None).observe(images.take(np.arange(90)), needs)
    fitted = [one.fit(training) if one.requires_fit else one for one in supervisors]
    seen = classifier(None).observe(images, needs)
    distances = measure_distances(classifier(None), images, budget=130, rows=np.arange(40))
    return fitted, training, seen, {one.name: one.score(seen) for one in fitted}, distances


# Examples share the workers; each is a handful of small tasks on them.
@settings(max_examples=12, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(
    engine=st.sampled_from(ENGINES),
    cuts=st.lists(st.integers(1, 89), max_size=5, unique=True),
    rows=st.integers(7, 150),
    batch=st.integers(3, 40),
    few=st.integers(8, 40),
)
def test_the_numbers_are_those_of_one_process(cluster, images, alone, engine, cuts, rows, batch, few):
    cluster.wait_for_workers(2)
    fitted, training, seen, scores, distances = alone
    engine = engine_of(cluster) if engine == "dask" else engine
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(passes, "MOST", rows)
        patch.setattr(scoring, "ROWS", rows)
        patch.setattr(distance, "SMALLEST", few)

        edges = [0, *sorted(cuts), len(training)]
        parts = [training.take(slice(low, high)) for low, high in itertools.pairwise(edges)]
        merging = [one for one in fitted if one.merges() and one.requires_fit]
        for one in fit_in_shards(merging, parts, engine=engine):
            assert_close(one.score(seen), scores[one.name], one.name)

        for name, values in score_in_shards(fitted, seen, engine=engine).items():
            assert_close(values, scores[name], name)

        found = passes.observe_and_score(classifier(engine, batch), images, fitted, Needs(logits=True))
        plain = classifier(None, batch).observe(images, Needs.union(fitted))
        assert len(found.scores) == len(fitted)
        for one in fitted:
            assert_close(found.scores[one.name], one.score(plain), one.name)
        assert_close(found.observation.probabilities, plain.probabilities, "probabilities")
        assert not found.observation.traces and found.observation.samples is None

        measured = measure_distances(classifier(engine), images, budget=130, rows=np.arange(40))
        assert_close(measured.mae, distances.mae, "distances")


def assert_close(one, other, what):
    np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6, err_msg=what)


def test_traces_come_back_where_they_are_asked_for(images, alone):
    fitted, _, seen, scores, _ = alone
    wanted = Needs(traces=frozenset({Trace("penultimate")}), samples=4)
    found = passes.observe_and_score(classifier("local:2"), images, fitted, wanted)
    assert_close(found.observation.trace(Trace("penultimate")), seen.trace(Trace("penultimate")), "traces")
    np.testing.assert_array_equal(found.observation.samples, seen.samples[:, :4])
    assert_close(found.scores["knn"], scores["knn"], "knn")
