"""From probabilities to verdicts, from verdicts to actions."""

from __future__ import annotations

import numpy as np
import pytest

from secondguess import UserError
from secondguess.guard.actions import ACTIONS, DEFAULT, Actions
from secondguess.guard.verdicts import ANOMALIES, KINDS, SUSPICIOUS, Verdict, decide, verdict_of


def test_decide_is_the_rule_in_words() -> None:
    rng = np.random.default_rng(0)
    chances = rng.dirichlet(np.ones(4), 300)
    alarms = rng.random(300) < 0.7
    codes = decide(alarms, chances, ANOMALIES, 0.6)
    for row in range(300):
        ranked = [ANOMALIES[k] for k in np.argsort(-chances[row])]
        expected = ("nominal",)
        if alarms[row]:
            expected = tuple(ranked[:1]) if chances[row].max() >= 0.6 else tuple(ranked[:2])
        assert verdict_of(codes[row]) == Verdict(expected)


def test_a_guard_without_stress_sets_is_suspicious_only() -> None:
    codes = decide(np.array([True, False]), np.ones((2, 1)), (SUSPICIOUS,), 0.7)
    assert [str(verdict_of(row)) for row in codes] == ["suspicious", "nominal"]
    assert verdict_of(codes[1]).is_nominal
    assert not verdict_of(codes[0]).is_nominal


def test_of_two_kinds_the_more_careful_action_is_taken() -> None:
    for first in ANOMALIES:
        for second in ANOMALIES:
            action = Actions()(Verdict((first, second)))
            assert ACTIONS.index(action) == max(ACTIONS.index(DEFAULT[first]), ACTIONS.index(DEFAULT[second]))
    assert str(Verdict(("ambiguous", "invalid"))) == "ambiguous or invalid"
    assert Verdict(("ambiguous", "invalid")).kind == "ambiguous"


def test_actions_can_be_chosen() -> None:
    chosen = Actions({"adversarial": "ask", "nominal": "hedge"})
    assert chosen(Verdict(("adversarial",))) == "ask"
    assert chosen(Verdict(("nominal",))) == "hedge"
    assert chosen.to_dict() == dict(DEFAULT) | {"adversarial": "ask", "nominal": "hedge"}
    assert set(chosen.to_dict()) == set(KINDS)


def test_unknown_kinds_and_actions_are_refused() -> None:
    with pytest.raises(UserError, match="no kind of anomaly 'weird'"):
        Actions({"weird": "ask"})  # type: ignore[dict-item]
    with pytest.raises(UserError, match="no action 'shrug' for 'invalid'; there is accept, hedge"):
        Actions({"invalid": "shrug"})  # type: ignore[dict-item]


def test_a_verdict_equals_its_text() -> None:
    nominal, one, two = Verdict(("nominal",)), Verdict(("invalid",)), Verdict(("ambiguous", "invalid"))
    assert nominal == "nominal" and one != "nominal" and two == "ambiguous or invalid"
    assert nominal == Verdict(("nominal",)) and nominal != one
    assert {nominal, one} == {"nominal", "invalid"} and "nominal" in [nominal]
    assert nominal != 0
