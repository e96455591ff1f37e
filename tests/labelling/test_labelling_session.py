from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from label_house import NAMES, make_pool

from secondguess.errors import UserError
from secondguess.labelling.answers import consensus, name_of, shortcuts, spoken
from secondguess.labelling.curve import curve
from secondguess.labelling.session import LabellingSession, NotAsked
from secondguess.labelling.store import Store
from secondguess.metrics.discovery import discovery_ratio_interval, sdr_curve
from secondguess.search.base import Search
from secondguess.search.chance import RandomSearch
from secondguess.search.low_confidence import LowConfidenceSearch
from secondguess.search.pool import Pool
from secondguess.search.registry import make, names

Open = Callable[..., LabellingSession]


class Learning(Search):
    """Asks near the errors found so far: what comes next depends on every answer before."""

    name = "learning"

    def _choose(self, candidates, n):
        found = self.labelled[self.errors]
        if not len(found):
            return candidates[:n]
        features = self.pool.features
        near = ((features[candidates][:, None] - features[found]) ** 2).sum(axis=2).min(axis=1)
        return candidates[np.argsort(near, kind="stable")[:n]]


def current(session: LabellingSession, who: str = "Ada") -> int:
    question = session.next(who)
    assert question is not None
    return question.image


def answer(session: LabellingSession, *classes: int, who: str = "Ada") -> int:
    image = current(session, who)
    session.answer(who, image, classes)
    return image


def test_images_come_in_the_order_of_the_search(open_session: Open, pool: Pool) -> None:
    session = open_session(LowConfidenceSearch().fit(pool))
    seen = [answer(session, 0) for _ in range(30)]
    assert seen == np.argsort(pool.confidence, kind="stable").tolist()
    assert session.next("Ada") is None
    assert session.progress("Ada").remaining == 0


def test_asking_again_gives_the_same_image(open_session: Open) -> None:
    session = open_session()
    assert current(session) == current(session)
    assert len(session._store.events()) == 1


def test_an_answer_is_held_against_the_models(open_session: Open, pool: Pool) -> None:
    session = open_session()
    image = current(session)
    predicted = int(pool.predictions[image])
    verdict = session.answer("Ada", image, (predicted,))
    assert (verdict.said, verdict.model, verdict.wrong) == (NAMES[predicted], NAMES[predicted], False)
    assert verdict.confidence == pool.confidence[image]
    image = current(session)
    other = (int(pool.predictions[image]) + 1) % 3
    assert session.answer("Ada", image, (other,)).wrong


def test_ambiguous_and_invalid_images_are_told_as_such(open_session: Open, pool: Pool) -> None:
    session = open_session()
    first, second, third = (answer(session, *classes) for classes in ((2, 0), (), (0, 1, 2)))
    assert session._settled[first].tolist() == [0.5, 0, 0.5]
    assert session._settled[second].tolist() == [0, 0, 0]
    assert session.search.labelled.tolist() == [first, second, third]
    assert session.search.errors.tolist() == [pool.predictions[first] == 1, True, False]
    assert session.errors()[-1 if pool.predictions[first] == 1 else 0].said in ("cat or owl", "invalid")


def test_errors_are_listed_latest_first(open_session: Open, pool: Pool) -> None:
    session = open_session()
    wrong = [answer(session, (int(pool.predictions[current(session)]) + 1) % 3) for _ in range(3)]
    right = answer(session, int(pool.predictions[current(session)]))
    found = session.errors()
    assert [one.image for one in found] == wrong[::-1]
    assert right not in [one.image for one in found]
    assert {one.annotators for one in found} == {("Ada",)}
    assert all(one.wrong and one.model == NAMES[pool.predictions[one.image]] for one in found)


def test_progress_counts_what_stands(open_session: Open, pool: Pool) -> None:
    session = open_session(goal=7)
    labelled = [answer(session, 0), answer(session, 1)]
    session.skip("Ada", current(session))
    answer(session, 1, who="Bob")
    progress = session.progress("Ada")
    told = session.search.labelled
    assert (progress.labelled, progress.skipped, progress.mine) == (3, 1, 2)
    assert (progress.remaining, progress.pool, progress.goal) == (26, 30, 7)
    assert progress.errors == int((pool.predictions[told] != [0, 1, 1]).sum())
    assert progress.expected == pytest.approx((1 - pool.confidence[told]).sum())
    assert set(labelled) < set(told.tolist())
    assert session.progress("Eve").can_undo is False


def test_a_skipped_image_does_not_come_back(open_session: Open) -> None:
    session = open_session()
    skipped = current(session)
    session.skip("Ada", skipped)
    rest = [answer(session, 0) for _ in range(29)]
    assert skipped not in rest
    assert session.next("Ada") is None


def test_undo_brings_the_image_back_and_the_answer_is_forgotten(open_session: Open) -> None:
    session = open_session()
    first, second = answer(session, 0), answer(session, 1)
    third = current(session)
    assert session.undo("Ada")
    question = session.next("Ada")
    assert question is not None and (question.image, question.before) == (second, "dog")
    assert session.search.labelled.tolist() == [first]
    assert session.undo("Ada")
    assert (current(session), session.progress("Ada").labelled) == (first, 0)
    assert not session.undo("Ada")
    session.answer("Ada", first, (2,))
    assert current(session) == second  # what was undone comes back, latest first, and then what was left lying
    session.skip("Ada", second)
    assert current(session) == third
    assert session.undo("Ada")
    question = session.next("Ada")
    assert question is not None and (question.image, question.before) == (second, "skipped")
    assert session.search.labelled.tolist() == [first]


def test_undo_concerns_ones_own_answers_only(open_session: Open) -> None:
    session = open_session()
    mine, theirs = answer(session, 0, who="Ada"), answer(session, 1, who="Bob")
    assert session.undo("Ada")
    assert current(session, "Ada") == mine
    assert session.search.labelled.tolist() == [theirs]


def test_a_search_forgets_what_was_undone(open_session: Open, pool: Pool) -> None:
    """After an answer, an undo and another answer, the next image is the one of a session that never erred."""
    straight = open_session(Learning().fit(pool))
    image = current(straight)
    right = int(pool.predictions[image])
    straight.answer("Ada", image, ((right + 1) % 3,))
    straight.undo("Ada")
    straight.answer("Ada", image, (right,))
    assert straight.search.labelled.tolist() == [image]
    assert not straight.search.errors.any()
    fresh = Learning().fit(pool)
    fresh.skip(list(straight._turns))
    fresh.tell([image], [right])
    assert straight.search.ask(1) == fresh.ask(1)


@pytest.mark.parametrize("name", [*names(), "learning"])
def test_a_session_opened_again_is_where_it_was(name: str, store: Store, pool: Pool) -> None:
    """Whatever people do, a session that is read from the store goes on as the running one would have."""
    rng = np.random.default_rng(1)

    def opened() -> LabellingSession:
        search = Learning(seed=3) if name == "learning" else make(name, seed=3)
        return LabellingSession(search.fit(pool), store, overlap=2)

    session = opened()
    for step in range(40):
        who = ["Ada", "Bob", "Eve"][rng.integers(3)]
        question = session.next(who)
        action = rng.random()
        if action < 0.2:
            session.undo(who)
        elif question is not None and action < 0.3:
            session.skip(who, question.image)
        elif question is not None:
            session.answer(who, question.image, tuple(np.flatnonzero(rng.random(3) < 0.5).tolist()))
        if step % 8 == 0:
            again = opened()
            assert again.search.labelled.tolist() == session.search.labelled.tolist()
            assert again.search.errors.tolist() == session.search.errors.tolist()
            assert [again.progress(one) for one in ("Ada", "Bob")] == [session.progress(one) for one in ("Ada", "Bob")]
            assert (again._turns, again._open, again._done) == (session._turns, session._open, session._done)
            assert again.search.ask(3).tolist() == session.search.ask(3).tolist()
            session = opened()  # as after a kill


def test_a_request_that_is_repeated_counts_once(open_session: Open) -> None:
    session = open_session()
    image = current(session)
    first = session.answer("Ada", image, (1,), "key-1")
    assert session.answer("Ada", image, (1,), "key-1") == first
    following = current(session)
    session.skip("Ada", following, "key-2")
    session.skip("Ada", following, "key-2")
    assert session.undo("Ada", "key-3")
    assert session.undo("Ada", "key-3")
    assert (current(session), session.progress("Ada").labelled) == (following, 1)
    assert [event.kind for event in session._store.events()] == ["asked", "answered", "asked", "skipped", "undone"]


def test_an_answer_about_another_image_is_refused(open_session: Open) -> None:
    session = open_session()
    image = current(session)
    with pytest.raises(NotAsked, match=f"Bob has not been asked about image {image}"):
        session.answer("Bob", image, (0,))
    session.answer("Ada", image, (0,))
    with pytest.raises(NotAsked, match="or has answered it already"):
        session.answer("Ada", image, (1,))
    assert session.progress("Ada").labelled == 1


@pytest.mark.parametrize("classes", [(3,), (-1,), (0, 0), (0, 7)])
def test_answers_that_are_none_are_refused(open_session: Open, classes: tuple[int, ...]) -> None:
    session = open_session()
    image = current(session)
    with pytest.raises(UserError, match=r"give different classes out of 0\.\.2"):
        session.answer("Ada", image, classes)
    assert current(session) == image


def test_annotators_get_different_images(open_session: Open) -> None:
    session = open_session()
    seen = {who: [answer(session, 0, who=who) for _ in range(10)] for who in ("Ada", "Bob", "Eve")}
    assert len({image for images in seen.values() for image in images}) == 30


def test_with_overlap_an_image_goes_to_several(open_session: Open, pool: Pool) -> None:
    session = open_session(overlap=2)
    first = current(session, "Ada")
    session.answer("Ada", first, (0,))
    assert len(session.search.labelled) == 0
    assert current(session, "Ada") != first
    assert current(session, "Bob") == first
    session.answer("Bob", first, (1,))
    assert session.search.labelled.tolist() == [first]
    assert session._settled[first].tolist() == [0.5, 0.5, 0]
    assert session.search.errors.tolist() == [pool.predictions[first] == 2]
    assert current(session, "Eve") == current(session, "Ada")  # Ada's second image needs another annotator


def test_with_overlap_a_skip_is_a_turn_too(open_session: Open) -> None:
    session = open_session(overlap=2)
    first = current(session, "Ada")
    session.skip("Ada", first)
    session.answer("Bob", current(session, "Bob"), (1,))
    assert session._settled[first].tolist() == [0, 1, 0]


def test_an_image_that_somebody_left_goes_to_whoever_is_there(open_session: Open) -> None:
    session = open_session()
    left = current(session, "Bob")
    rest = [answer(session, 0) for _ in range(29)]
    assert left not in rest
    assert answer(session, 1) == left
    assert session.next("Ada") is None
    assert session.progress("Ada").labelled == 30
    session.answer("Bob", left, (1,))  # he comes back: his answer counts as well
    assert session._settled[left].tolist() == [0, 1, 0]


def test_an_answer_after_a_skip_counts_from_then(store: Store) -> None:
    def open_small() -> LabellingSession:
        return LabellingSession(RandomSearch().fit(small), store)

    small = make_pool(3)
    session = open_small()
    left, others, between = (current(session, who) for who in ("Ada", "Bob", "Cleo"))
    session.answer("Bob", others, (0,))
    assert current(session, "Bob") == left
    session.skip("Ada", left)
    session.answer("Cleo", between, (1,))
    session.answer("Bob", left, (2,))
    assert session.search.labelled.tolist() == [others, between, left]
    assert open_small().search.labelled.tolist() == [others, between, left]


def test_the_goal_ends_the_session(open_session: Open) -> None:
    session = open_session(goal=2)
    answer(session, 0)
    answer(session, 0)
    assert session.next("Ada") is None
    assert session.undo("Ada")
    assert session.next("Ada") is not None
    with pytest.raises(UserError, match="Each image is to go to 0 annotators; give at least 1"):
        open_session(overlap=0)


def test_the_models_answer_is_hidden_until_one_has_answered(open_session: Open, pool: Pool) -> None:
    session = open_session()
    question = session.next("Ada")
    assert question is not None
    assert question.prediction is None
    assert "prediction" not in question.why
    assert question.why["confidence"] == pool.confidence[question.image]
    assert not session.is_answered(question.image)
    session.answer("Ada", question.image, (0,))
    assert session.is_answered(question.image)
    shown = open_session(show_answer=True).next("Ada")
    assert shown is not None
    name = NAMES[pool.predictions[shown.image]]
    assert shown.prediction == (name, pool.confidence[shown.image])
    assert "prediction" not in shown.why  # it is said once


def test_look_alikes_are_the_nearest_images(open_session: Open, pool: Pool) -> None:
    from sklearn.neighbors import NearestNeighbors

    session = open_session()
    question = session.next("Ada")
    assert question is not None
    referee = NearestNeighbors(n_neighbors=7).fit(pool.features)
    expected = referee.kneighbors(pool.features[[question.image]], return_distance=False)[0, 1:]
    assert question.look_alikes == expected.tolist()


def test_a_pool_of_two_images_has_one_look_alike(store: Store) -> None:
    pool = make_pool(2)
    session = LabellingSession(RandomSearch().fit(pool), store)
    question = session.next("Ada")
    assert question is not None
    assert question.look_alikes == [1 - question.image]


def test_names_of_annotators() -> None:
    assert name_of("  Ada Lovelace ") == "Ada Lovelace"
    for bad in ("", "   ", "a\nb", "x" * 61):
        with pytest.raises(UserError, match="The annotator's name"):
            name_of(bad)


def test_consensus() -> None:
    assert consensus([(1,)], 3).tolist() == [0, 1, 0]
    assert consensus([(0, 1), (1,)], 3).tolist() == [0.25, 0.75, 0]
    assert consensus([()], 2).tolist() == [0, 0]
    assert consensus([(), (1,)], 2).tolist() == [0, 1]  # half is not more than half
    assert consensus([(), (), (1,)], 2).tolist() == [0, 0]


def test_answers_in_words() -> None:
    assert [spoken(one, NAMES) for one in ((1,), (0, 2), ())] == ["dog", "cat or owl", "invalid"]


def test_shortcuts() -> None:
    assert shortcuts(["cat", "dog"]) == ["1", "2"]
    assert shortcuts([str(k) for k in range(10)]) == list("0123456789")
    assert shortcuts(["cat", "1", "dog"]) == ["2", "1", "3"]
    assert shortcuts(["7", "7"]) == ["7", "1"]
    many = shortcuts([f"class {k}" for k in range(40)])
    given = [key for key in many if key]
    assert given[:11] == [*"1234567890", "q"]
    assert len(given) == len(set(given)) == 31  # all letters but those of the commands, then no more
    assert not set(given) & set("asieu/?")
    assert many[31:] == [""] * 9


def test_the_curve_is_the_discovery_ratio_with_its_interval() -> None:
    rng = np.random.default_rng(0)
    confidence = rng.uniform(0.6, 0.95, 70)
    errors = rng.random(70) < 0.3
    drawn = curve(errors, confidence)
    places = np.array(drawn["labels"])
    assert places[-1] == 70 and len(places) <= 25 and (np.diff(places[:-1]) == places[0]).all()
    np.testing.assert_allclose(drawn["value"], sdr_curve(errors, confidence)[places - 1])
    referee = discovery_ratio_interval(errors, 1 - confidence)
    assert (drawn["low"][-1], drawn["high"][-1]) == pytest.approx((referee.low, referee.high))
    assert curve(errors[:0], confidence[:0]) == {"labels": [], "value": [], "low": [], "high": []}


def test_the_interval_holds_its_ratio_even_where_all_are_errors() -> None:
    confidence = np.array([0.999, 0.9, 1.0, 0.99, 0.7])
    drawn = curve(np.array([True, False, True, True, True]), confidence)
    for low, value, high in zip(drawn["low"], drawn["value"], drawn["high"], strict=True):
        assert low <= value * (1 + 1e-9) and value <= high * (1 + 1e-9)
