"""`secondguess compare`: has it become worse?"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from secondguess.cli.groups import grouped
from secondguess.cli.options import (
    DATA,
    MAX_TEST,
    OBSERVING,
    TEST,
    TRAIN,
    Common,
    LoadingOptions,
    Out,
    ReadingOptions,
    Seed,
    gate_code,
    listed,
    print_json,
    say,
)

if TYPE_CHECKING:
    from secondguess.comparison import Comparison

__all__ = ["compare"]

AUDIT = "The folder or the audit.json of an audit; or a model, as --model of the other commands takes one."


@grouped
def compare(
    *,
    before: Annotated[str, typer.Argument(help=AUDIT, show_default=False)],
    after: Annotated[str, typer.Argument(help="The same of what it has become.", show_default=False)],
    no_worse_than: Annotated[
        float | None,
        typer.Option("--no-worse-than", help="A gate: the percentage points of accuracy that may be lost.", min=0),
    ] = None,
    gates: Annotated[
        list[str] | None,
        typer.Option("--assert", help='A gate, e.g. "flips.negative<=5" or "worse<=0"; may be repeated.'),
    ] = None,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print the comment for a pull request instead of the summary.")
    ] = False,
    data: Annotated[str | None, DATA] = None,
    test: Annotated[str | None, TEST] = None,
    train: Annotated[str | None, TRAIN] = None,
    max_test: Annotated[int | None, MAX_TEST] = None,
    loading: LoadingOptions,
    models: ReadingOptions,
    engine: Annotated[str, OBSERVING] = "local",
    stress: Annotated[
        str, typer.Option(help="For models: stress sets, separated by commas; none.", rich_help_panel="Stress")
    ] = "corrupted,invalid",
    supervisors: Annotated[
        str, typer.Option(help="For models: supervisors, separated by commas.", rich_help_panel="Stress")
    ] = "max_softmax,entropy",
    out: Out = Path("out/compare"),
    seed: Seed = 0,
    common: Common,
) -> int:
    """Compare two audits, or two models, image by image: what has become better, what worse, and which images.

    Audits are compared by what they kept of each image in `predictions.npz`; give `--test` to see the images whose
    answer has changed. Models are asked about the images of `--test` (or `--data`) first, and about stress images made
    of them.

    Writes `compare.html`, `compare.json`, `compare.md` and `junit.xml` into the folder `--out`. Exit code 0: fine, 1: a
    gate failed, 2: something given cannot be used.

    **Examples**

    `secondguess compare last-release/audit.json out/audit/audit.json --no-worse-than 0.5`

    `secondguess compare old/model.toml new.onnx --test photos/test`

    `secondguess compare old/ new/ --test photos/test --assert "flips.negative<=5" --markdown`

    `secondguess compare old.onnx new.onnx --test photos/test --engine local:8`
    """
    from secondguess.comparison import compare as run_comparison

    result = run_comparison(
        before,
        after,
        data,
        test=test,
        train=train,
        supervisors=listed(supervisors),
        stress=listed(stress),
        no_worse_than=no_worse_than,
        gates=gates or (),
        max_test=max_test,
        seed=seed,
        opening=models.changes() | loading.changes() | {"engine": engine},
        folder=out,
        progress=common.progress,
        command=shlex.join(["secondguess", *sys.argv[1:]]),
        **loading.arguments(),
    )
    if common.json:
        print_json(result.to_dict())
    else:
        say(result.markdown()) if markdown else _print(result)
    return gate_code(result.gates)


def _print(result: Comparison) -> None:
    say()
    for line in result.summary().splitlines():
        say(f"  {line}")
    say()
    for note in result.notes:
        say(f"  {note}")
    for gate in result.gates:
        if gate.outcome != "passed":
            say(f"  Gate {gate.outcome}: {gate.reason}")
    say(f"Page: {result.page}")
