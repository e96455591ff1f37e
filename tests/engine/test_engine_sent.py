"""What is sent to workers is what was meant: nothing is taken for something else, and what is typed in goes along."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
import warnings

import numpy as np
import pytest
import torch
from torch import nn

from secondguess import Classifier, ImageSet, Needs, Supervisor
from secondguess.accuracy.oracles.icos import Icos, InputRules, Partition
from secondguess.accuracy.oracles.inspecting import Inspector
from secondguess.engine.shared import fingerprint_of, travels
from secondguess.model.orders import sent_classifier
from secondguess.model.shards import observe_and_score
from secondguess.search import distance
from secondguess.search.distance import measure_distances
from secondguess.supervisors import make

MODULE = """
import numpy as np


def always(answer):
    return lambda images: np.eye(3)[np.full(len(images), answer)] * 0.9 + 0.1 / 3


def make_a():
    return always(0)


def make_b():
    return always(2)
"""


class Warner(Supervisor):
    """Warns, and suspects dark images."""

    name = "warner"
    requires_fit = False

    @property
    def needs(self) -> Needs:
        return Needs()

    def _score(self, observation):
        warnings.warn("It is dark.", stacklevel=2)
        return 1 - observation.probabilities.max(axis=1)


class Picky(Warner):
    """Fails where the first image is the one that it does not like, with three numbers for each image elsewhere."""

    name = "picky"

    def __init__(self, dislikes: float = -1.0) -> None:
        self.dislikes = dislikes

    @property
    def needs(self) -> Needs:
        return Needs(images=True)

    def score(self, observation):
        if np.isclose(observation.pixels[:1], self.dislikes).all():
            raise MemoryError
        return np.repeat(observation.probabilities.max(axis=1, keepdims=True), 3, axis=1)


def network(engine: str | None = None, **more: object) -> Classifier:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        layers = nn.Sequential(nn.Flatten(), nn.Linear(16, 3))
    return Classifier(layers.eval(), output_kind="logits", batch_size=4, engine=engine, device="cpu", **more)


@pytest.fixture
def images() -> ImageSet:
    return ImageSet.from_arrays(np.random.default_rng(0).random((40, 4, 4)).astype(np.float32))


def test_two_functions_that_are_imported_are_two_models(tmp_path, monkeypatch, images):
    (tmp_path / "two_models.py").write_text(MODULE, "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    how = {"engine": "local:2", "batch_size": 4, "output_kind": "probabilities"}
    models = [Classifier.open(f"two_models:make_{name}", **how) for name in "ab"]
    assert len({sent_classifier(one, images).fingerprint for one in models}) == 2
    assert [set(one.observe(images).predictions.tolist()) for one in models] == [{0}, {2}]


def test_other_starts_are_another_order(images, monkeypatch):
    seen = []

    def noted(tasks, *_, **__):
        seen.append(tasks[0].params["order"].fingerprint)
        raise KeyboardInterrupt

    monkeypatch.setattr(distance, "run_each", noted)
    monkeypatch.setattr(distance, "SMALLEST", 8)
    for grey in (0.8, 0.95, 0.8):
        starts = ImageSet.from_arrays(np.full((6, 4, 4), grey, dtype=np.float32))
        with pytest.raises(KeyboardInterrupt):
            measure_distances(network("local:2"), images, budget=130, starts=starts)
    assert seen[0] == seen[2] != seen[1]


def test_warnings_are_heard_again_where_scores_come_from_the_cache(tmp_path, images):
    for _ in range(2):
        found = observe_and_score(network("local:1", cache=tmp_path), images, [Warner()])
        assert found.warnings == {"warner": ["It is dark."]}
        np.testing.assert_allclose(found.scores["warner"], 1 - found.observation.confidences)


def test_a_scorer_that_fails_on_a_shard_costs_nobody_else_and_is_not_remembered(tmp_path, images):
    class Classic(Picky):
        fingerprint = "the same, whatever it dislikes"

    disliked = images.images[4:5].copy()  # the first of the second shard
    for one, there in ((Classic(disliked), False), (Classic(), True)):
        found = observe_and_score(network("local:1", cache=tmp_path), images, [Warner(), one])
        assert ("picky" in found.scores) is there and "warner" in found.scores
    assert found.scores["picky"].shape == (40, 3)


def test_rules_with_a_function_of_the_users_travel():
    rules = InputRules([Partition("dark", ["cat"], [0], function=lambda pixels: np.zeros(len(pixels)))])
    oracle = Icos(rules)
    assert travels(oracle) and Inspector.of(oracle).fingerprint == fingerprint_of(oracle)


def test_what_cannot_be_pickled_stays_here():
    assert travels(make("entropy")) and not travels(threading.Lock())


@pytest.mark.parametrize("way", ["a script", "typed in"])
def test_a_supervisor_of_a_script_or_a_prompt_scores_on_workers(way, tmp_path):
    code = textwrap.dedent(
        """
        import numpy as np
        from secondguess import Needs, Observation, Supervisor
        from secondguess.supervisors import score_in_shards

        class Mine(Supervisor):
            name = "mine"
            requires_fit = False

            @property
            def needs(self):
                return Needs()

            def _score(self, observation):
                return 1 - observation.probabilities.max(axis=1)

        if __name__ == "__main__":
            seen = Observation(probabilities=np.array([[0.6, 0.4], [0.1, 0.9]] * 20))
            found = score_in_shards([Mine()], seen, engine="local:2")["mine"]
            assert len(Mine().fingerprint) == 32 and Mine().fingerprint == Mine().fingerprint
            np.testing.assert_allclose(found, [0.4, 0.1] * 20)
            print("scored")
        """
    )
    given = ["-c", code]
    if way == "a script":
        (tmp_path / "mine.py").write_text(code, "utf-8")
        given = ["mine.py"]
    done = subprocess.run([sys.executable, *given], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "scored", done.stderr
