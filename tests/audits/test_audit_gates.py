from __future__ import annotations

import pytest

from secondguess import UserError
from secondguess.audits import Gate
from secondguess.audits.findings import Number
from secondguess.audits.gates import judge
from secondguess.metrics import Interval

NUMBERS = {
    "accuracy.test": Number.of(Interval(0.9, 0.85, 0.94, 200), "f00d", 0),
    "supervisor.entropy.invalid.auroc": Number.of(Interval(0.8, 0.7, 0.9, 100), "f00d", 0),
    "calibration.mce": Number.of(0.25, "f00d", 0),
}


@pytest.mark.parametrize(
    ("text", "gate"),
    [
        ("accuracy.test>=0.9", Gate("accuracy.test", ">=", 0.9)),
        ("  accuracy.test   <=  .9 ", Gate("accuracy.test", "<=", 0.9)),
        ("a.b>1", Gate("a.b", ">", 1.0)),
        ("a.b<-2.5e-3", Gate("a.b", "<", -0.0025)),
        ("a.b==+1E2", Gate("a.b", "==", 100.0)),
        ("a.b >= 95%", Gate("a.b", ">=", 0.95)),
        ("a.b >= 95 %", Gate("a.b", ">=", 0.95)),
        ("accuracy.class.ankle boot.recall>=0.5", Gate("accuracy.class.ankle boot.recall", ">=", 0.5)),
    ],
)
def test_grammar(text: str, gate: Gate) -> None:
    assert Gate.parse(text) == gate


@pytest.mark.parametrize(
    "text",
    ["", "accuracy", "accuracy>=", ">=0.5", "accuracy=0.5", "accuracy=>0.5", "accuracy!=0.5", "accuracy>=high",
     "accuracy>=0.5 or so", "accuracy>=1.2.3", "accuracy>=nan", "accuracy>=inf", "0.5<accuracy<0.9", "a>=--1", "a>=e"],
)  # fmt: skip
def test_what_is_no_gate_is_an_error_with_an_example(text: str) -> None:
    with pytest.raises(UserError, match=r"is not a gate; write NAME, one of >= <= > < ==, and a number, e\.g\. "):
        Gate.parse(text)


def test_a_gate_reads_as_it_was_written() -> None:
    assert str(Gate.parse("accuracy.test>=95%")) == "accuracy.test >= 0.95"
    assert Gate.parse(str(Gate.parse("a<0.001"))) == Gate.parse("a<0.001")


@pytest.mark.parametrize(
    ("text", "outcome", "value"),
    [
        ("accuracy.test>=0.9", "passed", 0.9),
        ("accuracy.test>0.9", "failed", 0.9),
        ("accuracy.test<=0.9", "passed", 0.9),
        ("accuracy.test<0.9", "failed", 0.9),
        ("accuracy.test==90%", "passed", 0.9),
        ("accuracy.test==0.91", "failed", 0.9),
        ("accuracy.test.low>=0.9", "failed", 0.85),
        ("accuracy.test.low>=85%", "passed", 0.85),
        ("accuracy.test.high<=0.94", "passed", 0.94),
        ("calibration.mce<=0.3", "passed", 0.25),
    ],
)
def test_judgement(text: str, outcome: str, value: float) -> None:
    verdict = judge(Gate.parse(text), NUMBERS)
    assert (verdict.outcome, verdict.value) == (outcome, value)


def test_a_failed_gate_says_what_was_measured() -> None:
    verdict = judge(Gate.parse("accuracy.test.low>=0.9"), NUMBERS)
    assert verdict.reason == "accuracy.test.low is 0.85, not >= 0.9."
    assert verdict.to_dict() == {
        "gate": "accuracy.test.low >= 0.9", "outcome": "failed", "value": 0.85,
        "reason": "accuracy.test.low is 0.85, not >= 0.9.",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("accuracy.tets", "did you mean accuracy.test?"),
        ("accuracy.tets.low", "did you mean accuracy.test.low?"),
        ("supervisor.entropie.invalid.auroc", "did you mean supervisor.entropy.invalid.auroc?"),
        ("zzz", "audit.json lists the numbers under 'numbers'."),
        ("calibration.mce.low", "did you mean calibration.mce?"),
        ("accuracy.test.middle", "did you mean accuracy.test?"),
        ("low", "audit.json lists the numbers under 'numbers'."),
    ],
)
def test_an_unknown_number_is_an_error_with_a_suggestion(name: str, hint: str) -> None:
    verdict = judge(Gate(name, ">=", 0.5), NUMBERS)
    assert (verdict.outcome, verdict.value) == ("error", None)
    assert verdict.reason == f"The audit has no number {name!r}; {hint}"


def test_a_number_called_low_is_itself_and_not_an_end() -> None:
    numbers = NUMBERS | {"accuracy.test.low": Number.of(0.123, "f00d", 0)}
    assert judge(Gate.parse("accuracy.test.low<0.2"), numbers).value == 0.123
