"""A plan is kept to: sizes, exclusive times, re-planning, deadlines, the record. All on a clock that we set."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from secondguess import Classifier
from secondguess.accuracy.planned import price_of_rules
from secondguess.errors import UserError
from secondguess.images import ImageSet
from secondguess.model.needs import Needs
from secondguess.planning import OutOfTime, Part, Plan, Price, recorded_sizes
from secondguess.progress import Callback, Lines, Silent, Titled, announce
from secondguess.supervisors import make, pricing


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def passes(self, seconds: float) -> None:
        self.now += seconds


class Heard(Silent):
    """A progress that keeps what is announced."""

    def __init__(self, said: list[str]) -> None:
        self.said = said

    def say(self, text: str) -> None:
        self.said.append(text)


def parts() -> list[Part]:
    return [
        Part("test", "observe the test images", Price(0.01, full=1000, least=100, unit="images", essential=True)),
        Part("supervisor.vae", "fit vae", Price(10.0, full=30, least=2, unit="epochs")),
        Part("stress.adversarial", "attack images", Price(0.5, full=300, least=60, unit="images")),
    ]


def test_full_sizes_without_a_limit() -> None:
    plan = Plan(parts())
    assert [plan.size(name) for name in ("test", "supervisor.vae", "stress.adversarial")] == [1000, 30, 300]
    assert plan.size("unheard of") is None
    assert plan.reduced("supervisor.vae") is None


def test_a_plan_fits_and_says_what_it_makes_smaller() -> None:
    plan = Plan(parts(), 5.0, clock=Clock())
    assert plan.planned <= 300
    assert plan.size("test") == 1000
    assert plan.reduced("test") is None
    size = plan.reduced("supervisor.vae")
    assert size is not None and 2 <= size < 30
    table = plan.table()
    assert f"{size} epochs" in table and "instead of 30" in table and "5 minutes allowed" in table


def test_a_part_that_does_not_fit_is_left_out_with_one_sentence() -> None:
    plan = Plan(parts(), 0.5, clock=Clock())
    assert plan.size("stress.adversarial") == 0
    with pytest.raises(OutOfTime, match=r"Too little time: it takes 30 s at least; allow more"):
        plan.require("stress.adversarial")


def test_times_of_parts_within_parts_are_their_own() -> None:
    clock = Clock()
    plan = Plan(parts(), clock=clock)
    with plan.doing("test"):
        clock.passes(1)
        with plan.doing("supervisor.vae"):
            clock.passes(5)
        clock.passes(2)
    assert plan.part("test").seconds == 3
    assert plan.part("supervisor.vae").seconds == 5


def test_what_has_not_begun_is_planned_anew() -> None:
    clock = Clock()
    plan = Plan(parts(), 5.0, clock=clock)
    heard: list[str] = []
    plan.watched(Heard(heard))
    before = plan.part("stress.adversarial").size
    with plan.doing("supervisor.vae"):
        clock.passes(2.0 * plan.part("supervisor.vae").expected)
    after = plan.part("stress.adversarial").size
    assert after < before
    [said] = heard
    assert after == 0 and said == "It takes longer than planned; the rest is sized anew: without attack images."
    assert plan.part("supervisor.vae").size > 0, "what has been done keeps its size"

    quick = Plan(parts(), 5.0, clock=(other := Clock()))
    quick.watched(Heard(heard))
    with quick.doing("supervisor.vae"):
        other.passes(0.1 * quick.part("supervisor.vae").expected)
    more = quick.size("stress.adversarial")
    assert more > before
    told = "It goes faster than planned; the rest is sized anew"
    assert heard[1] == f"{told}: attack images: {more} instead of {before}."


@pytest.mark.parametrize("ask", [Plan.size, Plan.reduced, Plan.require])
@pytest.mark.parametrize("pace", [0.1, 2.0])
def test_a_size_that_was_asked_for_stands_though_its_part_has_not_begun(
    ask: Callable[[Plan, str], int | None], pace: float, tmp_path: Path
) -> None:
    clock = Clock()
    plan = Plan(parts(), 5.0, clock=clock, path=tmp_path / "plan.json", key="k")
    heard: list[str] = []
    plan.watched(Heard(heard))
    other = Plan(parts(), 5.0, clock=clock)
    asked = ask(plan, "stress.adversarial")
    for one in (plan, other):
        with one.doing("supervisor.vae"):
            clock.passes(pace * one.part("supervisor.vae").expected)
    assert ask(plan, "stress.adversarial") == asked == recorded_sizes({"plan": plan.to_dict()})["stress.adversarial"]
    assert Plan.kept(tmp_path / "plan.json", "k", 5.0).part("stress.adversarial").size == asked
    assert other.size("stress.adversarial") != asked and not heard


def test_what_is_left_out_when_it_is_asked_for_stays_out() -> None:
    clock = Clock()
    plan = Plan([Part("first", "x", Price(fixed=200.0, required=True)), *parts()[2:]], 3.0, clock=clock)
    assert plan.leaves_out("stress.adversarial") and not plan.leaves_out("first") and not plan.leaves_out("no such")
    with pytest.raises(OutOfTime, match="Too little time"):
        plan.require("stress.adversarial")
    with plan.doing("first"):
        clock.passes(1)
    assert plan.leaves_out("stress.adversarial")


def test_what_was_asked_for_and_is_still_to_be_done_takes_its_time() -> None:
    """A part whose size stands is not done yet: others have what it leaves."""
    first = Part("first", "x", Price(fixed=100.0, required=True))
    late = Part("late", "y", Price(1.0, full=100, least=10, required=True))
    rest = Part("rest", "z", Price(1.0, full=1000, least=10))
    plan = Plan([first, late, rest], 5.0, clock=(clock := Clock()))
    stands = plan.size("late")
    with plan.doing("first"):
        clock.passes(100)
    assert plan.size("rest") == int(0.85 * 200 - stands)


def test_what_is_done_within_others_takes_their_time_and_is_recorded_once(tmp_path: Path) -> None:
    def made() -> list[Part]:
        samples = Part("samples", "dropout samples", Price(0.01, full=100, least=10, unit="samples", per="test"))
        return [*parts(), samples]

    plan = Plan(made(), 10.0, clock=(clock := Clock()), path=tmp_path / "plan.json", key="k")
    before = {part.name: part.expected for part in plan.parts}
    samples, share = plan.part("samples").size, before["samples"] / 2
    assert 10 < samples < 100 and share > 10
    among = ["test", "stress.adversarial", "stress.of another plan"]
    assert plan.shared_out("samples", among) == samples
    after = {part.name: part.expected for part in plan.parts}
    shares = {"test": share, "stress.adversarial": share, "samples": -before["samples"]}
    assert after == pytest.approx({name: before[name] + shares.get(name, 0.0) for name in before})
    sizes = {part.name: part.size for part in plan.parts}
    with plan.doing("test"):
        clock.passes(after["test"])  # samples included: as expected, so that nothing has to be smaller
    assert all(part.size >= sizes[part.name] for part in plan.parts)
    with plan.doing("supervisor.vae"):
        clock.passes(0.1 * after["supervisor.vae"])
    assert plan.part("samples").size == samples and plan.part("samples").expected == 0
    record = {one["name"]: one for one in plan.to_dict()["parts"]}
    assert record["samples"]["size"] == samples and record["samples"]["among"] == among[:2]
    assert all("among" not in one for name, one in record.items() if name != "samples")

    kept = Plan(made(), 10.0, clock=Clock(), path=tmp_path / "plan.json", key="k")
    kept.shared_out("samples", among)
    with kept.doing("nothing of it"), kept.doing("supervisor.vae"):
        pass
    again = Plan.kept(tmp_path / "plan.json", "k", 10.0)
    assert again is not None and again.shared_out("samples", among) == samples
    for name in ("test", "stress.adversarial"):
        assert again.part(name).expected == pytest.approx(kept.part(name).expected, rel=1e-4), "shared out once"


def test_what_cannot_be_done_has_no_share_in_what_is_done_within_others() -> None:
    hindered = Part("stress.mine", "my images", Price(full=300, unit="images", hindrance="foolbox is missing."))
    plan = Plan([*parts(), hindered, Part("samples", "dropout samples", Price(1.0, full=10, unit="samples"))])
    expected = plan.part("test").expected
    assert plan.shared_out("samples", ["test", "stress.mine"]) == 10
    assert plan.part("stress.mine").expected == 0 and plan.part("test").expected == expected + 5


def test_work_at_the_pace_that_was_learnt_changes_nothing() -> None:
    """What was sized for a slow machine is not made smaller again because the machine is as slow as that."""
    clock = Clock()
    steps = [Part(f"step {k}", f"step {k}", Price(1.0, full=300, least=10, unit="images")) for k in range(6)]
    plan = Plan(steps, 10.0, clock=clock)
    heard: list[str] = []
    plan.watched(Heard(heard))
    with plan.doing("step 0"):
        clock.passes(4.0 * plan.part("step 0").expected)
    sizes = [part.size for part in plan.parts]
    assert len(heard) == 1 and heard[0].startswith("It takes longer than planned; the rest is sized anew: step 1: ")
    for part in plan.parts[1:]:
        with plan.doing(part.name):
            clock.passes(part.expected)
    assert [part.size for part in plan.parts] == sizes and len(heard) == 1


def test_sizes_that_grow_and_shrink_at_once_are_not_said_to_follow_from_the_pace() -> None:
    clock = Clock()
    first = Part("first", "observe", Price(fixed=100.0, required=True))
    some = Part("some", "attack images", Price(1.0, full=300, least=10, unit="images", required=True))
    plan = Plan([first, some, Part("dear", "fit vae", Price(fixed=180.0))], 5.0, clock=clock)
    heard: list[str] = []
    plan.watched(Heard(heard))
    before = plan.part("some").size
    assert plan.leaves_out("dear")
    with plan.doing("first"):
        clock.passes(20)
    after = plan.size("some")
    assert plan.size("dear") and after < before, "what comes back takes from the others"
    assert heard == [
        f"The time that is left is shared out anew: attack images: {after} instead of {before}; fit vae after all."
    ]


@pytest.mark.parametrize("seconds", [0.5, 1.0, 2.0, 3.0, 4.0, 5.0])
def test_time_to_spare_makes_nothing_smaller(seconds: float) -> None:
    clock = Clock()
    first = Part("first", "observe", Price(fixed=1.0, required=True))
    plan = Plan([first, Part("rest", "attack images", Price(0.1, full=30000, least=10))], 5.0, clock=clock)
    before = plan.part("rest").size
    with plan.doing("first"):
        clock.passes(seconds)
    assert plan.part("rest").size >= before


def test_what_cannot_be_done_is_said_before_it_is_tried_and_takes_no_time(tmp_path: Path) -> None:
    why = "foolbox is not installed."
    hindered = Part("stress.adversarial", "attack images", Price(full=300, unit="images", hindrance=why))
    plan = Plan([*parts()[:2], hindered], 5.0, clock=Clock(), path=tmp_path / "plan.json", key="k")
    assert "5 minutes allowed" in plan.table() and "1 minute allowed" in Plan(parts(), 1.0, clock=Clock()).table()
    [row] = [line for line in plan.table().splitlines() if "attack" in line]
    assert row.split() == ["attack", "images", "cannot", "be", "done:", *why.split()]
    assert plan.part("stress.adversarial").expected == 0
    assert json.loads((tmp_path / "plan.json").read_text("utf-8"))["parts"][2]["remark"] == f"cannot be done: {why}"
    assert Plan.kept(tmp_path / "plan.json", "k", 5.0) is None  # what was missing may be there now


def test_a_small_deviation_changes_nothing() -> None:
    clock = Clock()
    plan = Plan(parts(), 5.0, clock=clock)
    before = plan.size("stress.adversarial")
    with plan.doing("test"):
        clock.passes(1.1 * plan.part("test").expected)
    assert plan.size("stress.adversarial") == before


def test_progress_beyond_the_deadline_ends_a_part() -> None:
    clock = Clock()
    plan = Plan(parts(), 5.0, clock=clock)
    seen: list[int] = []
    progress = plan.watched(Callback(lambda done, total: seen.append(done)))
    with (
        pytest.raises(OutOfTime, match=r"expected to take .* was ended after"),
        plan.doing("stress.adversarial"),
        progress.task("Attacking", 100) as advance,
    ):
        for done in range(100):
            clock.passes(30)
            advance(done, 100)
    assert 1 < len(seen) < 100


def test_what_was_ended_is_recorded_as_left_out_so_that_a_repeated_plan_leaves_it_out(tmp_path: Path) -> None:
    clock = Clock()
    plan = Plan(parts(), 5.0, clock=clock, path=tmp_path / "plan.json", key="k")
    sizes = recorded_sizes({"plan": plan.to_dict()})
    progress = plan.watched(Callback(lambda done, total: None))
    with plan.doing("test"):
        with (
            pytest.raises(OutOfTime),
            plan.doing("stress.adversarial"),
            progress.task("Attacking", 2) as advance,
        ):
            clock.passes(1000)
            advance(1, 2)
        assert plan.part("stress.adversarial").remark == "ended, since the time was over; allow more minutes"
    recorded = recorded_sizes({"plan": plan.to_dict()})
    assert recorded["stress.adversarial"] == 0 < sizes["stress.adversarial"]
    assert recorded["test"] == sizes["test"], "only that part had nothing to show"
    assert Plan.kept(tmp_path / "plan.json", "k", 5.0).leaves_out("stress.adversarial")
    repeated = parts()
    for part in repeated:
        part.given = recorded[part.name]
    again = Plan(repeated)
    with pytest.raises(OutOfTime), again.doing("stress.adversarial"):
        again.require("stress.adversarial")
    assert again.part("stress.adversarial").remark.startswith("left out: "), "it was left out, not ended"


def test_what_was_finished_once_keeps_its_size_whatever_is_ended_later() -> None:
    plan = Plan(parts(), 5.0, clock=Clock())
    with plan.doing("supervisor.vae"):
        pass
    size = plan.size("supervisor.vae")
    with pytest.raises(OutOfTime), plan.doing("supervisor.vae"):
        raise OutOfTime("The minutes are over.")
    assert plan.size("supervisor.vae") == size and not plan.part("supervisor.vae").ended


def test_what_is_left_out_claims_no_time_and_finished_work_stays() -> None:
    clock = Clock()
    short, long = Part("short", "fit one", Price(fixed=0.001)), Part("long", "attack images", Price(fixed=90.0))
    plan = Plan([short, long], 1.0, clock=clock)
    assert plan.size("long") == 0
    progress = plan.watched(Callback(lambda done, total: None))
    with plan.doing("short"), progress.task("Fitting", 2) as advance:
        clock.passes(5)  # much longer than expected, but nobody else needs the minute
        advance(1, 2)
        clock.passes(60)
        advance(2, 2)
    assert short.seconds == 65


def test_what_costs_next_to_nothing_is_done_even_if_drawing_up_the_plan_took_all_the_time() -> None:
    fits = [Part(f"fit {number}", f"fit {number}", Price(fixed=0.1)) for number in range(10)]
    plan = Plan([*fits, Part("long", "attack images", Price(fixed=30.0))], 1.0, clock=Clock(), spent=70.0)
    assert all(part.size for part in fits)
    assert plan.size("long") == 0
    assert Plan(fits, 0.1, clock=Clock(), spent=70.0).part("fit 0").remark == (
        "left out: there is no time left for it; allow more minutes"
    )


def test_essential_and_given_parts_have_no_deadline() -> None:
    clock = Clock()
    given = [*parts()[:2], Part("mine", "mine", Price(1.0, full=10), given=10)]
    plan = Plan(given, 1.0, clock=clock)
    for name in ("test", "mine"):
        with plan.doing(name), plan.watched(Callback(lambda done, total: None)).task("x", 1) as advance:
            clock.passes(10_000)
            advance(1, 1)
    assert plan.size("mine") == 10


def test_sizes_are_recorded_and_repeated(tmp_path: Path) -> None:
    plan = Plan(parts(), 5.0, clock=Clock())
    sizes = recorded_sizes({"plan": plan.to_dict()})
    assert sizes == {part.name: part.size for part in plan.parts}
    path = tmp_path / "audit.json"
    path.write_text(json.dumps({"plan": plan.to_dict()}))
    assert recorded_sizes(path) == sizes
    path.write_text(json.dumps({"record": {"plan": plan.to_dict()}}))
    assert recorded_sizes(path) == sizes
    path.write_text("{}")
    with pytest.raises(UserError, match="No plan is recorded there"):
        recorded_sizes(path)
    with pytest.raises(UserError, match=r"is no audit\.json"):
        recorded_sizes(tmp_path / "none.json")


def test_a_kept_plan_has_the_same_sizes_whatever_the_machine_does(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    clock = Clock()
    plan = Plan(parts(), 5.0, clock=clock, path=path, key="k")
    with plan.doing("supervisor.vae"):
        clock.passes(1000)
    again = Plan.kept(path, "k", 5.0)
    assert again is not None
    assert [part.size for part in again.parts] == [part.size for part in plan.parts]
    assert Plan.kept(path, "other", 5.0) is None
    path.write_text(path.read_text().replace('"size": ', '"size": 1'))
    assert Plan.kept(path, "k", 5.0) is None, "a damaged file is no plan"


def test_a_kept_plan_still_says_what_it_would_have_taken(tmp_path: Path) -> None:
    plan = Plan(parts(), 0.5, clock=Clock(), path=tmp_path / "plan.json", key="k")
    again = Plan.kept(tmp_path / "plan.json", "k", 0.5)
    assert again is not None
    for one in (plan, again):
        assert one.part("stress.adversarial").remark == "left out: it takes 30 s at least; allow more minutes"


def test_minutes_are_above_zero() -> None:
    with pytest.raises(UserError, match="0 minutes were given"):
        Plan(parts(), 0)


def test_work_goes_on_where_nobody_listens_any_more() -> None:
    class Closed:
        def write(self, text: str) -> None:
            raise BrokenPipeError

        def flush(self) -> None:
            raise BrokenPipeError

    with Lines(Closed()).task("Working", 2) as advance:  # type: ignore[arg-type]
        advance(2, 2)
    assert announce(Lines(Closed()), "a plan") is None  # type: ignore[arg-type]


def test_announcements_reach_lines_and_nobody_else(capsys: Any) -> None:
    class Other:
        @contextmanager
        def task(self, label: str, total: int) -> Any:
            yield lambda done, total: None

    announce(Other(), "nothing")
    announce(Callback(lambda done, total: None), "nothing")
    announce(Titled(Lines(), "title"), "hello")
    announce(Plan([]).watched(Lines()), "again")
    assert capsys.readouterr().err == "hello\nagain\n"


def test_rules_for_many_classes_are_dearer_and_those_for_large_images_are_not() -> None:
    def each(size: int, classes: int) -> float:
        pixels = np.zeros((classes, 3, size, size), np.float32)
        images = ImageSet.from_arrays(pixels, np.arange(classes), layout="NCHW")
        pace = SimpleNamespace(images=images, slowness=1.0, passing=lambda: 0.0)
        return price_of_rules(pace, 100).each  # type: ignore[arg-type]

    assert each(32, 300) > 5 * each(32, 10)
    assert each(224, 10) < 2 * each(32, 10), "they are learnt from larger cells"


def test_fits_for_many_classes_are_priced_for_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pricing, "timed", lambda work, clock: 0.001 * work.args[0])

    def each(classes: int) -> float:
        pixels = np.random.default_rng(0).random((4000, 1, 2, 2), dtype=np.float32)
        train = ImageSet.from_arrays(pixels, np.arange(4000) % classes, layout="NCHW")
        model = Classifier(lambda x: np.full((len(x), classes), 1 / classes))
        pace: Any = SimpleNamespace(classifier=model, clock=lambda: 0.0, observing=lambda needs: 0.0)
        (part,) = pricing.parts_of_fits([make("kl_matching")], Needs(), train, pace)
        return part.price.each

    few, many = each(10), each(1000)
    assert few == pytest.approx(0.001)
    assert 3 < many / few < 8, "of a thousand classes, 200 images show about 180"
