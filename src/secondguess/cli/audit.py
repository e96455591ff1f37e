"""`secondguess audit`: everything known about one classifier, in one report."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from secondguess.cli.groups import grouped
from secondguess.cli.options import (
    AMBIGUOUS,
    DATA,
    MAX_TEST,
    TEST,
    TRAIN,
    Common,
    LoadingOptions,
    OptionalModel,
    Out,
    PlanOptions,
    Seed,
    gate_code,
    listed,
    open_classifier,
    plain,
    print_json,
    say,
)
from secondguess.errors import UserError

if TYPE_CHECKING:
    from secondguess.audits import AuditResult

__all__ = ["audit"]

FAILED, INTERRUPTED = 1, 130
TRAINING = "Training a model"
MINUTES = 10.0


@grouped
def audit(
    *,
    model: OptionalModel,
    architecture: Annotated[
        str | None,
        typer.Option(help="What to train without --model. [default: simple_cnn]", rich_help_panel=TRAINING),
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(min=1, help="Instead of the paper's, when training.", rich_help_panel=TRAINING)
    ] = None,
    data: Annotated[str | None, DATA] = None,
    test: Annotated[str | None, TEST] = None,
    train: Annotated[str | None, TRAIN] = None,
    max_test: Annotated[int | None, MAX_TEST] = None,
    votes: Annotated[
        str | None,
        typer.Option(
            help="Votes of people on the test images: .npz (array counts), .npy or .csv (counts0, counts1, ...).",
            rich_help_panel="Data",
        ),
    ] = None,
    rules: Annotated[
        str | None,
        typer.Option(
            help="Which labels can occur where, as TOML or JSON; see docs/accuracy.md.", rich_help_panel="Data"
        ),
    ] = None,
    loading: LoadingOptions,
    invalid: Annotated[str, typer.Option(help="Images that belong to no class.", rich_help_panel="Stress")] = "mixed",
    stress: Annotated[
        str, typer.Option(help="Stress sets, separated by commas; none: no stress sets.", rich_help_panel="Stress")
    ] = "ambiguous,corrupted,adversarial,invalid",
    supervisors: Annotated[
        str,
        typer.Option(
            help="Names separated by commas, with parameters after colons (dsa:subsampling=0.3); standard: all but the "
            "expensive ones; all.",
            rich_help_panel="Stress",
        ),
    ] = "standard",
    sections: Annotated[
        str, typer.Option(help="Sections of the report, separated by commas.", rich_help_panel="Stress")
    ] = "all",
    protect: Annotated[
        str,
        typer.Option(
            help="What an alarm is for: errors of the model, novelty of the image, or both.", rich_help_panel="Stress"
        ),
    ] = "both",
    ambiguous: Annotated[str, AMBIGUOUS] = "auto",
    plan: PlanOptions,
    gates: Annotated[
        list[str] | None,
        typer.Option("--assert", help='A gate, e.g. "accuracy.test.low>=0.95"; may be repeated.'),
    ] = None,
    out: Out = Path("out/audit"),
    seed: Seed = 0,
    common: Common,
) -> int:
    """Audit a classifier: accuracy, calibration, supervisors on stress sets, images to inspect.

    It is planned to take 10 minutes: the model is timed on a few images, and the plan is printed before the work.

    Writes `report.html`, `audit.json`, `predictions.npz` and `junit.xml` into the folder `--out`. Exit code 0: fine,
    1: a gate or a section failed, 2: something given cannot be used, 130: interrupted (what was found until then is
    in the report).

    **Examples**

    `secondguess audit` trains a small classifier on 5,000 MNIST digits and audits it.

    `secondguess audit --model resnet20.onnx --test photos/test --train photos/train --out out/mine`

    `secondguess audit --model model.toml --data photos/`

    `secondguess audit --model m.onnx --test test/ --assert "supervisor.entropy.invalid.auroc>=0.8"`
    """
    from secondguess.audits import audit as run_audit

    if model.model is None and (model.weights or test or train):
        raise UserError("Images or weights of your own were given without a model; say which with --model.")
    result = run_audit(
        None if model.model is None else open_classifier(model, loading),
        data,
        test=test,
        train=train,
        supervisors=listed(supervisors),
        stress=[f"invalid:{invalid}" if name == "invalid" else name for name in listed(stress)],
        ambiguous=ambiguous,
        gates=gates or (),
        sections="all" if sections == "all" else listed(sections),
        architecture=architecture,
        epochs=epochs,
        max_test=max_test,
        protect=plain(protect),  # type: ignore[arg-type]
        votes=votes,
        rules=rules,
        seed=seed,
        device=model.device,
        folder=out,
        progress=common.progress,
        **plan.arguments(MINUTES),
        command=shlex.join(["secondguess", *sys.argv[1:]]),
        **loading.arguments(),
    )
    print_json(result.to_dict()) if common.json else _print(result)
    return _code(result)


def _print(result: AuditResult) -> None:
    say()
    for line in result.summary().splitlines():
        say(f"  {line}")
    say()
    for gate in result.gates:
        if gate.outcome != "passed":
            say(f"  Gate {gate.outcome}: {gate.reason}")
    say(f"Report: {result.report}")


def _code(result: AuditResult) -> int:
    """0 fine, 1 a gate failed or a section did, 2 a gate asks for a number that this audit does not have."""
    if result.interrupted:
        return INTERRUPTED
    return FAILED if result.failed else gate_code(result.gates)
