"""Every check of a composition, with judges that say what a test wants them to say."""

from types import SimpleNamespace

import numpy as np
import pytest

from secondguess.stress.ambiguous.flow.judge import Look, chosen_classes
from secondguess.stress.ambiguous.flow.pool import Pool
from secondguess.stress.ambiguous.flow.selection import CHECKS, Selection
from secondguess.stress.ambiguous.flow.shares import ShareCalibration

CLASSES = 4
PAIR = (0, 1)


def images_of(numbers):
    """One pixel each, by which the fakes know which image they see."""
    return np.array(numbers, dtype=np.uint8)[:, None, None, None]


class Judge:
    """Says of image k what `opinions[k]` holds: probabilities at a glance, when examined, the share when settled."""

    field, shares = SimpleNamespace(classes=CLASSES), ShareCalibration()

    def __init__(self, opinions):
        self.opinions, self.seen = opinions, []

    def _look(self, images, part, wanted):
        found = np.array([self.opinions[int(k)][part] for k in images[:, 0, 0, 0]]).reshape(-1, CLASSES)
        found = np.where(wanted, found, 0.0)
        return Look(np.where(wanted[:, :, None], 1.0, np.nan), found / found.sum(axis=1, keepdims=True))

    def glance(self, images, wanted=None, *, seen=None):
        wanted = np.ones((len(images), CLASSES), bool) if wanted is None else wanted
        if seen is not None:
            wanted = wanted | ~np.isnan(seen.losses).any(axis=2)
        self.seen.append(("glance", images[:, 0, 0, 0].tolist(), wanted))
        return self._look(images, 0, wanted)

    def compare(self, images, pair, seen):
        self.seen.append(("compare", images[:, 0, 0, 0].tolist(), None))
        return self._look(images, 1, chosen_classes(pair, CLASSES))

    def examine(self, images, seen, *, compared):
        assert (~np.isnan(compared.losses).any(axis=2) == chosen_classes(np.array([PAIR]), CLASSES)).all()
        self.seen.append(("examine", images[:, 0, 0, 0].tolist(), None))
        return self._look(images, 1, ~np.isnan(seen.losses).any(axis=2))

    def settle(self, images, pair, seen):
        self.seen.append(("settle", images[:, 0, 0, 0].tolist(), None))
        share = np.array([self.opinions[int(k)][2] for k in images[:, 0, 0, 0]])
        return np.stack([share, 1 - share], axis=1)

    def lean(self, pair, seen):
        return np.log(seen.probabilities[:, 0] / seen.probabilities[:, 1])


class Committee:
    shares = ShareCalibration()

    def __init__(self, opinions):
        self.opinions = opinions

    def judge(self, images):
        return np.array([self.opinions[round(float(k) * 255)] for k in images.images[:][:, 0, 0, 0]])


class Reality:
    def __init__(self, unreal):
        self.unreal = unreal

    def accepts(self, images):
        return ~np.isin(images[:, 0, 0, 0], self.unreal)


BETWEEN = [0.48, 0.48, 0.02, 0.02]
LEANING = [0.90, 0.06, 0.02, 0.02]
ELSEWHERE = [0.30, 0.30, 0.38, 0.02]
FINE = (BETWEEN, BETWEEN, 0.5)


def selected(opinions, committee=None, unreal=(), sound=None, **changes):
    settings = {"delta_max": 0.4, "mass": 0.9, "disagreement": 0.35} | changes
    judge = Judge(opinions)
    numbers = sorted(opinions)
    theirs = None if committee is None else Committee(committee)
    selection = Selection(judge, theirs, Reality(list(unreal)), **settings)
    return selection.select(images_of(numbers), np.tile(PAIR, (len(numbers), 1)), sound), judge


@pytest.mark.parametrize(
    ("opinion", "last"),
    [
        (FINE, "settled"),
        ((BETWEEN, ELSEWHERE, 0.5), None),  # examined, other classes have too much
        ((BETWEEN, [0.75, 0.21, 0.02, 0.02], 0.5), "between"),  # examined, it leans
        ((BETWEEN, BETWEEN, 0.8), "real"),  # settled, it leans
        ((LEANING, BETWEEN, 0.5), "between"),  # at a glance, it leans so far that nobody looks again
        (([0.40, 0.40, 0.18, 0.02], BETWEEN, 0.5), "settled"),  # at a glance, others have a fifth: worth another look
        ((ELSEWHERE, BETWEEN, 0.5), None),  # at a glance, they have too much
    ],
)
def test_a_candidate_fails_the_check_that_it_should_fail(opinion, last):
    found, _ = selected({0: FINE, 1: opinion})
    passed = [check for check in CHECKS if 1 in found.passed[check]]
    assert passed == list(CHECKS[: CHECKS.index(last) + 1] if last else ())
    assert all(0 in found.passed[check] for check in CHECKS)


def test_what_is_not_real_is_rejected():
    found, _ = selected({0: FINE, 1: FINE}, unreal=[1])
    assert found.passed["agreed"].tolist() == [0, 1]
    assert found.passed["real"].tolist() == [0]


@pytest.mark.parametrize(
    ("theirs", "last"),
    [
        (BETWEEN, "settled"),
        ([0.35, 0.22, 0.41, 0.02], None),  # less than two thirds of the mass that is asked of the judge
        ([0.40, 0.24, 0.34, 0.02], "settled"),
        ([0.85, 0.13, 0.01, 0.01], "ambiguous"),  # the judges' mean is mild, but they disagree
        ([0.97, 0.01, 0.01, 0.01], "between"),  # the judges' mean leans at once
    ],
)
def test_the_committee_has_a_say(theirs, last):
    found, _ = selected({0: FINE, 1: FINE}, committee={0: BETWEEN, 1: theirs}, delta_max=0.5)
    passed = [check for check in CHECKS if 1 in found.passed[check]]
    assert passed == list(CHECKS[: CHECKS.index(last) + 1] if last else ())


def test_what_settles_far_from_the_committee_is_rejected_too():
    found, _ = selected({0: FINE, 1: (BETWEEN, BETWEEN, 0.88)}, committee={0: BETWEEN, 1: BETWEEN}, delta_max=0.7)
    assert found.passed["settled"].tolist() == [0]
    kept, _ = selected(
        {0: FINE, 1: (BETWEEN, BETWEEN, 0.88)}, committee={0: BETWEEN, 1: BETWEEN}, delta_max=0.7, disagreement=0.4
    )
    assert kept.passed["settled"].tolist() == [0, 1]


@pytest.mark.parametrize("pool", [Pool(), Pool(0.8, 0.1)])
def test_labels_are_the_log_odds_of_both_judges_with_their_weights(pool):
    found, _ = selected({0: (BETWEEN, BETWEEN, 0.6)}, committee={0: [0.3, 0.6, 0.05, 0.05]}, pool=pool)
    log_odds = pool.judge * np.log(0.6 / 0.4) + pool.committee * np.log(0.3 / 0.6)
    assert found.share == pytest.approx([1 / (1 + np.exp(-log_odds))], abs=1e-3)
    assert found.share_generative == pytest.approx([0.6])
    assert found.share_committee == pytest.approx([1 / 3], abs=1e-3)
    alone, _ = selected({0: (BETWEEN, BETWEEN, 0.6)}, pool=pool)
    assert alone.share == pytest.approx([0.6])
    assert alone.share_committee is None


def test_every_share_is_that_of_its_own_judge_s_calibration(monkeypatch):
    """The judge's log-odds count for a fifth less a bias of the class, the committee's for a half."""
    apart = np.array([[0, 7.5, 1, 1], [7.5, 0, 1, 1], [1, 1, 0, 1], [1, 1, 1, 0]])
    monkeypatch.setattr(Judge, "shares", ShareCalibration(2.0, apart, np.array([0.4, 0.0, 9.0, 9.0])))
    monkeypatch.setattr(Committee, "shares", ShareCalibration(0.5))
    # raw log-odds: of the judge at a glance, when examined and when settled; of the committee
    opinions = {
        0: ([0.90, 0.06, 0.02, 0.02], [0.92, 0.04, 0.02, 0.02], 0.99),  # mild in units of shares, at every look
        1: ([0.9599, 1e-7, 0.02, 0.02], BETWEEN, 0.5),  # leans at a glance even so
    }
    theirs = {0: [0.3, 0.6, 0.05, 0.05], 1: [0.6, 0.3, 0.05, 0.05]}
    found, _ = selected(opinions, theirs, delta_max=0.5)
    assert found.passed["settled"].tolist() == [0]
    own, second = (np.log(99) - 0.4) / 5, 0.5 * np.log(0.3 / 0.6)
    assert found.share_generative == pytest.approx([1 / (1 + np.exp(-own))], abs=1e-3)
    assert found.share_committee == pytest.approx([1 / (1 + np.exp(-second))], abs=1e-3)
    assert found.share == pytest.approx([1 / (1 + np.exp(-(own + second) / 2))], abs=1e-3)
    glanced = [((np.log(a / b) - 0.4) / 5 + sign * second) / 2 for (a, b), sign in (((90, 6), 1), ((0.9599, 1e-7), -1))]
    assert found.leans == pytest.approx(glanced, abs=1e-3)
    assert found.near.tolist() == [1]
    assert found.near_leans == pytest.approx(glanced[1:], abs=1e-3)
    alone, _ = selected({0: opinions[0]}, delta_max=0.9)
    assert alone.share == pytest.approx([1 / (1 + np.exp(-own))], abs=1e-3)


@pytest.mark.parametrize("scale", [0.3, 1.0, 3.0])
def test_a_committee_rules_out_by_its_calibrated_share(monkeypatch, scale):
    monkeypatch.setattr(Committee, "shares", ShareCalibration(scale))
    share = np.linspace(0.03, 0.97, 40)
    theirs = {k: [0.96 * one, 0.96 * (1 - one), 0.02, 0.02] for k, one in enumerate(share)}
    _, judge = selected(dict.fromkeys(range(40), FINE), theirs, sound=np.zeros(40, bool), delta_max=0.5)
    logits = scale * np.log(share / (1 - share))
    scaled = 1 / (1 + np.exp(-logits))
    answers = np.linspace(0.0005, 0.9995, 4000)
    odds = (np.log(answers / (1 - answers)) + logits[:, None]) / 2
    saved = (np.abs(np.tanh(odds / 2)) <= 0.5) & (np.abs(answers - scaled[:, None]) <= 0.35)
    assert judge.seen[0][:2] == ("glance", np.flatnonzero(saved.any(axis=1)).tolist())


def test_the_committee_says_which_other_classes_are_worth_a_look():
    theirs = {0: [0.45, 0.45, 0.095, 0.005], 1: [0.4, 0.4, 0.1, 0.1], 2: [0.4995, 0.4995, 0.0006, 0.0004]}
    _, judge = selected(dict.fromkeys(range(3), FINE), committee=theirs)
    second = judge.seen[2]
    assert second[:2] == ("glance", [0, 1, 2]), "after the two classes were compared"
    assert second[2].all(), "of four classes, two others are looked at in any case"
    _, judge = selected(dict.fromkeys(range(3), FINE))
    assert judge.seen[2][2].all()


def test_the_judge_is_not_asked_where_no_answer_could_help():
    sure, near = [0.93, 0.05, 0.01, 0.01], [0.6, 0.38, 0.01, 0.01]
    opinions, theirs = dict.fromkeys(range(3), FINE), {0: near, 1: sure, 2: sure}
    found, judge = selected(opinions, theirs, sound=np.array([False, False, True]))
    assert judge.seen[0][1] == [0, 2], "the second image is not looked at, the third for the dial only"
    assert found.sounded.tolist() == [2]
    assert found.leans == pytest.approx([np.log(0.93 / 0.05) / 2], abs=1e-3)  # the judge's half is 0
    assert found.passed["between"].tolist() == [0, 1, 2], "that is not what they fail by"
    assert found.passed["ambiguous"].tolist() == found.passed["settled"].tolist() == [0]
    assert judge.seen[1][1] == [0], "beyond the first look the third one is lost, too"


@pytest.mark.parametrize("pool", [Pool(), Pool(0.7, 0.2), Pool(0.3, 0.9)])
@pytest.mark.parametrize(("delta_max", "disagreement"), [(0.5, 0.35), (0.2, 0.1), (0.7, 0.2)])
def test_the_committee_rules_out_exactly_what_no_judge_could_save(delta_max, disagreement, pool):
    """Against every answer that a judge could give."""
    shares, answers = np.linspace(0.002, 0.998, 250), np.linspace(0.0005, 0.9995, 4000)
    from secondguess.stress.ambiguous.flow.selection import _Left

    committee = np.stack([shares, 1 - shares, 0 * shares, 0 * shares], axis=1)
    pair, as_is = np.tile(PAIR, (len(shares), 1)), ShareCalibration()
    left = _Left(images_of(np.zeros(len(shares))), pair, committee, as_is, as_is, pool)
    possible = Selection(None, None, None, delta_max, 0.9, disagreement, pool)._possible(left)
    odds = pool.judge * np.log(answers / (1 - answers)) + pool.committee * np.log(shares / (1 - shares))[:, None]
    saved = (np.abs(np.tanh(odds / 2)) <= delta_max) & (np.abs(answers - shares[:, None]) <= disagreement)
    assert (possible != saved.any(axis=1)).sum() <= 2  # the answers that are tried lie on a grid
    assert possible.any()
    assert not possible.all()


@pytest.mark.parametrize("classes", [2, 3, 10])
def test_rivals_of_few_and_many_classes(classes):
    from secondguess.stress.ambiguous.flow.selection import _Left

    theirs = np.full((1, classes), 1e-4)
    theirs[0, :2] = 0.4
    if classes == 10:
        theirs[0, [4, 6, 7]] = [0.05, 0.03, 0.022]
    as_is = ShareCalibration()
    left = _Left(images_of([0]), np.array([PAIR]), theirs, as_is, as_is, Pool())
    rivals = left.rivals()
    assert not rivals[0, :2].any()
    assert rivals.sum() == {2: 0, 3: 1, 10: 3}[classes]
    assert _Left(images_of([0]), np.array([PAIR]), None, as_is, as_is, Pool()).rivals() is None


def test_near_misses_are_of_their_two_classes_but_lean_or_divide_the_judges():
    opinions = {
        0: FINE,
        1: (LEANING, LEANING, 0.5),  # leans at a glance
        2: (BETWEEN, [0.88, 0.08, 0.02, 0.02], 0.5),  # leans when the two are compared
        3: (BETWEEN, [0.20, 0.76, 0.02, 0.02], 0.5),  # is mild in the mean, but the committee sees the other class
        4: (BETWEEN, BETWEEN, 0.95),  # leans when settled
        5: (BETWEEN, ELSEWHERE, 0.5),  # of a third class, when examined
        6: (BETWEEN, [0.76, 0.02, 0.20, 0.02], 0.5),  # leans, before anybody has examined the third class
        7: FINE,  # unreal
        8: FINE,  # so far to one side for the committee that the judge does not look
        9: FINE,  # of a third class for the committee
    }
    theirs = dict.fromkeys(opinions, BETWEEN) | {
        3: [0.72, 0.24, 0.02, 0.02], 8: [0.96, 0.02, 0.01, 0.01], 9: [0.28, 0.28, 0.42, 0.02],
    }  # fmt: skip
    sound = np.arange(10) < 8
    found, judge = selected(opinions, theirs, unreal=[7], sound=sound)
    assert found.passed["settled"].tolist() == [0]
    leans = dict(zip(found.near.tolist(), found.near_leans, strict=True))
    assert sorted(leans) == [1, 2, 3, 4, 6, 8]
    assert leans[1] == pytest.approx(np.log(0.9 / 0.06) / 2, abs=1e-3)
    assert leans[3] == pytest.approx((np.log(0.20 / 0.76) + np.log(0.72 / 0.24)) / 2, abs=1e-3)
    assert leans[4] == pytest.approx(np.log(0.95 / 0.05) / 2, abs=1e-3)
    assert leans[8] == pytest.approx(np.log(0.96 / 0.02), abs=1e-2), "nobody else has looked"
    examined = [numbers for name, numbers, _ in judge.seen if name == "examine"]
    assert examined == [[0, 4, 5, 7]], "other classes are examined last"


def test_what_only_the_committee_has_seen_leans_as_if_the_judge_agreed():
    far = [0.96, 0.02, 0.01, 0.01]
    found, _ = selected(
        {0: FINE, 1: FINE}, {0: BETWEEN, 1: far}, sound=np.array([False, False]), delta_max=0.5, pool=Pool(0.9, 0.6)
    )
    assert found.near.tolist() == [1]
    assert found.near_leans == pytest.approx([1.5 * np.log(0.96 / 0.02)], abs=1e-2)


def test_nothing_is_left_and_nothing_breaks():
    found, _ = selected({0: (LEANING, LEANING, 0.95)})
    assert len(found.share) == 0
    assert [len(found.passed[check]) for check in CHECKS] == [1, 0, 0, 0, 0]
    assert found.sounded.tolist() == [0]
    assert found.leans == pytest.approx([np.log(0.9 / 0.06)])
    assert chosen_classes(np.array([PAIR]), CLASSES).tolist() == [[True, True, False, False]]
