from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from sklearn.decomposition import PCA
from sklearn.preprocessing import StandardScaler

from secondguess import Classifier, ImageSet
from secondguess.errors import UserError
from secondguess.images.sources import ViewSource
from secondguess.search import Pool
from secondguess.search import pool as pools
from secondguess.search.checks import example_pool
from secondguess.search.pool import pixel_features
from secondguess.supervisors import make_all


@pytest.fixture(scope="module")
def images():
    rng = np.random.default_rng(0)
    return ImageSet.from_arrays(rng.random((60, 1, 5, 5)).astype(np.float32), class_names=["cat", "dog"], layout="NCHW")


@pytest.fixture(scope="module")
def classifier():
    def model(x):
        dog = 1 / (1 + np.exp(-20 * (x.mean(axis=(1, 2, 3)) - 0.5)))
        return np.stack([1 - dog, dog], axis=1)

    return Classifier(model, class_names=["cat", "dog"], version="1", output_kind="probabilities")


def test_features_are_principal_components_of_standardised_pixels(images):
    pixels = images.materialise().reshape(60, -1)
    referee = PCA(5).fit_transform(StandardScaler().fit_transform(pixels))
    found = pixel_features(images.images)
    distances = [np.linalg.norm(one[:, None] - one, axis=2) for one in (found, referee)]
    assert distances[0] == pytest.approx(distances[1], abs=1e-3)


def test_features_learnt_from_a_part_are_applied_to_all(images, monkeypatch):
    monkeypatch.setattr(pools, "LEARNT_FROM", 40)
    monkeypatch.setattr(pools, "AT_ONCE", 7)
    assert pixel_features(images.images).shape == (60, 5)
    assert pixel_features(images.images, seed=1) != pytest.approx(pixel_features(images.images))


def test_the_critical_class_above_the_threshold(classifier, images):
    probabilities = classifier.predict(images)
    pool = Pool.of(classifier, images, critical="dog", min_confidence=0.65)
    assert pool.eligible.tolist() == (probabilities[:, 1] > 0.65).tolist()
    assert pool.size == pool.eligible.sum() == len(pool.rows)
    assert len(pool) == 60
    assert Pool.of(classifier, images, critical=1).eligible.tolist() == pool.eligible.tolist()
    everything = Pool.of(classifier, images, min_confidence=0.0)
    assert everything.size == 60
    assert everything.confidence == pytest.approx(probabilities.max(axis=1))


def test_labels_of_a_pool_count_in_the_order_of_the_models_classes(classifier, images):
    """A folder has its classes in the order of their names; whoever is asked answers in the model's."""
    truth = classifier.observe(images).predictions
    here, there = (
        ImageSet.from_arrays(images.materialise(), labels, class_names=names, layout="NCHW")
        for labels, names in ((truth, ["cat", "dog"]), (1 - truth, ["dog", "cat"]))
    )
    pools_of = [Pool.of(classifier, one, min_confidence=0) for one in (here, there)]
    for pool in pools_of:
        assert pool.images.class_names == ("cat", "dog")
        assert (pool.images.labels == pool.predictions).all()


def test_the_threshold_itself_is_excluded(images):
    def model(x):
        return np.tile([0.35, 0.65], (len(x), 1))

    classifier = Classifier(model, version="2", output_kind="probabilities")
    assert Pool.of(classifier, images, min_confidence=0.65).size == 0
    assert Pool.of(classifier, images, min_confidence=0.6499).size == 60


def test_scores_and_other_features(classifier, images):
    pool = Pool.of(classifier, images, supervisors=make_all("deep_gini"), features=np.arange(120).reshape(60, 2))
    assert pool.features.tolist() == np.arange(120.0).reshape(60, 2).tolist()
    probabilities = classifier.predict(images)
    assert pool.scores["deep_gini"] == pytest.approx(1 - (probabilities**2).sum(axis=1))


def test_penultimate_features():
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(25, 6), torch.nn.ReLU(), torch.nn.Linear(6, 2))
    pixels = np.random.default_rng(1).random((9, 1, 5, 5)).astype(np.float32)
    pool = Pool.of(
        Classifier(model, output_kind="logits"), ImageSet.from_arrays(pixels, layout="NCHW"), features="penultimate"
    )
    with torch.no_grad():
        referee = model[:3](torch.from_numpy(pixels)).numpy()
    assert pool.features == pytest.approx(referee, abs=1e-5)


def test_narrowed_keeps_what_may_be_asked_about():
    pool, labels = example_pool(100)
    narrow = pool.narrowed()
    assert len(narrow) == narrow.size == pool.size
    assert narrow.confidence.tolist() == pool.confidence[pool.rows].tolist()
    assert narrow.distances.mae.tolist() == pool.distances.mae[pool.rows].tolist()
    assert narrow.scores["example"].tolist() == pool.scores["example"][pool.rows].tolist()
    assert narrow.images.materialise().tolist() == pool.images.materialise()[pool.rows].tolist()
    assert narrow.errors(labels[pool.rows]).tolist() == pool.errors(labels)[pool.rows].tolist()
    with pytest.raises(UserError, match="None of the 100 images may be asked about"):
        pool.only(pool.rows[:0]).narrowed()


def test_without_pixels_nothing_else_changes():
    pool, _ = example_pool(60)
    bare = pool.without_pixels()
    assert bare.images.shape == (1, 1, 1)
    assert bare.distances.counterexamples.shape == (60, 1, 1, 1)
    assert bare.confidence.tolist() == pool.confidence.tolist()
    assert bare.distances.mae.tolist() == pool.distances.mae.tolist()


def test_features_of_large_images_are_learnt_from_as_many_as_memory_allows(images, monkeypatch):
    """All images have their features, however few are read at a time and learnt from."""
    read = []

    class Watched(ViewSource):
        def _read(self, rows):
            found = super()._read(rows)
            read.append(len(found))
            return found

    source = Watched(images.images, np.arange(len(images)))
    whole = pixel_features(source)
    assert max(read) == len(images)
    monkeypatch.setattr(pools, "AT_ONCE_BYTES", 9 * 4 * int(np.prod(images.shape)))
    read.clear()
    np.testing.assert_allclose(pixel_features(source), whole, rtol=1e-4, atol=1e-5)
    assert max(read) <= 9
    monkeypatch.setattr(pools, "LEARNT_BYTES", 30 * 4 * int(np.prod(images.shape)))
    read.clear()
    assert pixel_features(source).shape == whole.shape
    assert sum(read) == 30 + len(images)


def test_only_never_admits_more():
    pool, _ = example_pool(60)
    assert pool.only(np.arange(60)).eligible.tolist() == pool.eligible.tolist()
    assert pool.only(pool.rows[:4]).rows.tolist() == pool.rows[:4].tolist()


def test_unknown_labels_matter_only_where_images_may_be_asked_about():
    pool, labels = example_pool(60)
    hidden = np.where(pool.eligible, labels, -1)
    assert pool.errors(hidden).tolist() == pool.errors(labels).tolist()
    with pytest.raises(UserError, match="labels run from -1"):
        pool.errors(np.full(60, -1))
    with pytest.raises(UserError, match="3 labels were given for a pool of 60"):
        pool.errors([0, 1, 2])


def test_bad_input(classifier, images):
    with pytest.raises(UserError, match="There is no class 'bird'; the classes are cat, dog"):
        Pool.of(classifier, images, critical="bird")
    with pytest.raises(UserError, match=r"critical class is 2, but the classes are numbered 0\.\.1"):
        Pool.of(classifier, images, critical=2)
    with pytest.raises(UserError, match="must exceed 1"):
        Pool.of(classifier, images, min_confidence=1.0)
    with pytest.raises(UserError, match="no features called 'wavelets'"):
        Pool.of(classifier, images, features="wavelets")
    pool, _ = example_pool(60)
    with pytest.raises(UserError, match="60 images were observed, but 2 rows of features"):
        dataclasses.replace(pool, features=np.zeros((2, 2)))
    with pytest.raises(UserError, match="not all finite"):
        dataclasses.replace(pool, features=np.full((60, 2), np.nan))


def sick_at(bad, images, fault):
    """The classifier of the other tests, but for images at the positions `bad`, at which it has a fault."""
    sums = images.materialise()[bad].sum(axis=(1, 2, 3))

    def model(x):
        dog = 1 / (1 + np.exp(-20 * (x.mean(axis=(1, 2, 3)) - 0.5)))
        answers = np.stack([1 - dog, dog], axis=1)
        at_fault = np.isin(x.sum(axis=(1, 2, 3)), sums)
        if fault == "error" and at_fault.any():
            raise RuntimeError("no answer today")
        answers[at_fault] = np.nan
        return answers

    return Classifier(model, class_names=["cat", "dog"], version="sick", output_kind="probabilities", batch_size=16)


@pytest.mark.parametrize("fault", ["nan", "error"])
def test_an_image_without_an_answer_is_left_out(classifier, images, fault):
    bad = [0, 17, 59]
    with pytest.warns(UserWarning, match=r"no usable answer \(NaN or an error\) to 3 of 60 images"):
        pool = Pool.of(sick_at(bad, images, fault), images, min_confidence=0.0, supervisors=make_all("deep_gini"))
    well = Pool.of(classifier, images, min_confidence=0.0, supervisors=make_all("deep_gini"))
    assert np.flatnonzero(~pool.eligible).tolist() == bad
    assert (pool.unanswered, well.unanswered, len(pool)) == (3, 0, 60)
    rows = pool.rows
    np.testing.assert_array_equal(pool.confidence[rows], well.confidence[rows])
    np.testing.assert_array_equal(pool.scores["deep_gini"][rows], well.scores["deep_gini"][rows])
    np.testing.assert_array_equal(pool.features, well.features)
    assert pool.narrowed().size == 57
    assert pool.narrowed().unanswered == 3


def test_activations_of_an_image_without_an_answer_are_left_out_too(images):
    import torch

    class Sick(torch.nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.body, self.head = torch.nn.Linear(25, 4), torch.nn.Linear(4, 2)
            self.bad = float(images.images[7].sum())

        def forward(self, x):
            flat = x.flatten(1)
            odd = (flat.sum(dim=1) - self.bad).abs() < 1e-4
            return self.head(torch.relu(self.body(flat))).masked_fill(odd[:, None], float("nan"))

    model = Sick()
    classifier = Classifier(model, output_kind="logits")
    with pytest.warns(UserWarning, match="to 1 of 60 images"):
        pool = Pool.of(classifier, images, min_confidence=0.0, features="penultimate")
    assert np.flatnonzero(~pool.eligible).tolist() == [7]
    with torch.no_grad():
        expected = torch.relu(model.body(torch.from_numpy(images.materialise()).flatten(1))).numpy()
    np.testing.assert_allclose(pool.features[pool.rows], expected[pool.rows], atol=1e-6)
    assert not pool.features[7].any()


def test_a_model_without_any_answer_is_the_users_to_mend(images):
    with pytest.raises(UserError, match=r"returned NaN or infinity for 16 of 16 images .*; check its weights"):
        Pool.of(sick_at(range(60), images, "nan"), images)
    with pytest.raises(UserError, match="RuntimeError: no answer today"):
        Pool.of(sick_at(range(60), images, "error"), images)
    misnamed = Classifier(lambda x: np.full((len(x), 2), 0.5), class_names=["cat", "dog", "owl"], version="1")
    with pytest.raises(UserError, match="gives 2 classes, but 3 class names"):
        Pool.of(misnamed, images)


def test_a_model_that_is_down_in_the_middle_ends_with_its_own_error(images):
    calls = []

    def model(x):
        calls.append(len(x))
        if len(calls) > 2:
            raise ConnectionError("the line is dead")
        return np.full((len(x), 2), 0.5)

    with pytest.raises(UserError, match="ConnectionError: the line is dead"):
        Pool.of(Classifier(model, version="down", output_kind="probabilities", batch_size=16), images)
    assert len(calls) < 20
