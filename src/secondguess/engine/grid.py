"""Run a grid: compute what the ledger does not hold, and put each result into it as soon as it is known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

from secondguess.engine.engines import Engine, open_engine
from secondguess.engine.ledger import Entry, Ledger
from secondguess.engine.task import Failure, Outcome, Task, WorkerLost
from secondguess.errors import UserError
from secondguess.progress import Progress, Silent

__all__ = ["run", "run_each"]


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
    unique = list(distinct.values())
    found = run_each(unique, ledger, engine, retries=retries, progress=progress, label=label)
    made = {unique[place].key: entry for place, entry in found}
    return [made[task.key] for task in tasks]


def run_each(
    tasks: Sequence[Task],
    ledger: Ledger | None,
    engine: Engine | str = "local",
    *,
    retries: int = 3,
    progress: Progress | None = None,
    label: str = "tasks",
) -> Iterator[tuple[int, Entry]]:
    """As `run`, one entry after the other, so that nobody holds all of them.

    Args:
        tasks: independent of each other, and distinct.
        ledger: where results lie; None to keep none.
        engine: an engine, or its name as `open_engine` takes it.
        retries: how often a task that lost its worker is tried again.
        progress: reports to this.
        label: what to call the work there.

    Yields:
        The place of a task among `tasks` and its entry: first those that the ledger holds, then the others as they end.
    """
    waiting = []
    for place, task in enumerate(tasks):
        entry = None if ledger is None else ledger.get(task)
        if entry is None:
            waiting.append(place)
        else:
            yield place, entry
    if not waiting:
        return
    kept = len(tasks) - len(waiting)
    named = f"{label} ({kept} kept)" if kept else label
    chosen = open_engine(engine) if isinstance(engine, str) else engine
    failures: list[Exception] = []
    # Closed at once when something is raised here: the engine then drops what is still waiting.
    ending: Any = chosen.run([tasks[place].call() for place in waiting], retries=retries)
    with closing(ending), (progress or Silent()).task(named, len(waiting)) as advance:
        for done, (number, outcome) in enumerate(ending, start=1):
            task = tasks[waiting[number]]
            ended = _kept(task, outcome, ledger) if isinstance(outcome, Outcome) else _raised(task, outcome)
            if isinstance(ended, Entry):
                yield waiting[number], ended
            else:
                failures.append(ended)
            advance(done, len(waiting))
    if failures:
        where = "" if ledger is None else f"; the others are in {ledger.path}"
        failures[0].add_note(f"{len(failures)} of {len(waiting)} tasks failed{where}.")
        raise failures[0]


def _kept(task: Task, outcome: Outcome, ledger: Ledger | None) -> Entry | Exception:
    """What the ledger holds now, or why it cannot hold this result."""
    if ledger is None:
        return Entry.of(outcome, outcome.result)
    try:
        return ledger.put(task, outcome)
    except UserError as error:
        raise UserError(f"{error} What ended before is kept in {ledger.path}; run it again to go on.") from error
    except (TypeError, ValueError) as error:  # JSON cannot hold it, which says nothing about other tasks
        error.add_note(f"That was {task.name} with {dict(task.params)}, seed {task.seed}.")
        return error


def _raised(task: Task, outcome: Failure | WorkerLost) -> Exception:
    """What to raise in the end, unless it is a mistake of the user, which the other tasks would meet too."""
    if isinstance(outcome, WorkerLost):
        return outcome
    error = outcome.error(task)
    if isinstance(error, UserError):
        raise error
    return error
