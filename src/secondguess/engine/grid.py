"""Run a grid: compute what the ledger does not hold, and put each result into it as soon as it is known."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import Any

from secondguess.engine.engines import Engine, open_engine
from secondguess.engine.ledger import Entry, Ledger
from secondguess.engine.task import Failure, Outcome, Task, WorkerLost
from secondguess.errors import UserError
from secondguess.progress import Progress, Silent

__all__ = ["run"]


def run(
    tasks: Sequence[Task],
    ledger: Ledger,
    engine: Engine | str = "local",
    *,
    retries: int = 3,
    progress: Progress | None = None,
    label: str = "tasks",
) -> list[Entry]:
    """Run the tasks that have no entry in the ledger.

    A task that fails does not stop the others; the first failure is raised when all have ended. A mistake of the user
    stops at once. Either way, and after Ctrl-C or a crash, what has ended is in the ledger, and a second run goes on
    from there.

    Args:
        tasks: independent of each other; the same task twice is computed once.
        ledger: where results lie.
        engine: an engine, or its name as `open_engine` takes it.
        retries: how often a task that lost its worker is tried again.
        progress: reports to this.
        label: what to call the work there.

    Returns:
        The entries, in the order of the tasks.
    """
    distinct = {task.key: task for task in tasks}
    made = {key: entry for key, task in distinct.items() if (entry := ledger.get(task)) is not None}
    waiting = [task for key, task in distinct.items() if key not in made]
    if waiting:
        named = f"{label} ({len(made)} kept)" if made else label
        made |= _computed(waiting, ledger, engine, retries, progress or Silent(), named)
    return [made[task.key] for task in tasks]


def _computed(
    waiting: Sequence[Task], ledger: Ledger, engine: Engine | str, retries: int, progress: Progress, label: str
) -> dict[str, Entry]:
    """The entries of tasks that had none."""
    chosen = open_engine(engine) if isinstance(engine, str) else engine
    made: dict[str, Entry] = {}
    failures: list[Exception] = []
    calls = [task.call() for task in waiting]
    # Closed at once when something is raised here: the engine then drops what is still waiting.
    ending: Any = chosen.run(calls, retries=retries)
    with closing(ending), progress.task(label, len(waiting)) as advance:
        for done, (place, outcome) in enumerate(ending, start=1):
            task = waiting[place]
            if isinstance(outcome, Outcome):
                made[task.key] = _kept(task, outcome, ledger)
            else:
                failures.append(_raised(task, outcome))
            advance(done, len(waiting))
    if failures:
        failures[0].add_note(f"{len(failures)} of {len(waiting)} tasks failed; the others are in {ledger.path}.")
        raise failures[0]
    return made


def _kept(task: Task, outcome: Outcome, ledger: Ledger) -> Entry:
    try:
        return ledger.put(task, outcome)
    except UserError as error:
        raise UserError(f"{error} What ended before is kept in {ledger.path}; run it again to go on.") from error


def _raised(task: Task, outcome: Failure | WorkerLost) -> Exception:
    """What to raise in the end, unless it is a mistake of the user, which the other tasks would meet too."""
    if isinstance(outcome, WorkerLost):
        return outcome
    error = outcome.error(task)
    if isinstance(error, UserError):
        raise error
    return error
