"""`secondguess score`: how suspicious are predictions of which only arrays are at hand?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from secondguess.cli.groups import grouped
from secondguess.cli.options import ENGINE, Common
from secondguess.errors import UserError

if TYPE_CHECKING:
    from secondguess.results import Result
    from secondguess.supervisors.arrays import Scores

__all__ = ["score"]

WHO = "Say who scores with --supervisor (secondguess supervisors lists them), or with --oracle."


@grouped
def score(
    *,
    arrays: Annotated[Path, typer.Argument(help="An .npz file: probabilities, logits or predictions; traces; labels.")],
    supervisor: Annotated[
        list[str] | None,
        typer.Option("--supervisor", help="Who scores, such as dsa or dsa:layers=conv1. May be repeated."),
    ] = None,
    oracle: Annotated[
        str | None, typer.Option("--oracle", help="Who judges instead, such as cross-reference or selfchecker.")
    ] = None,
    train: Annotated[
        Path | None,
        typer.Option("--train", help="Arrays of training images. [default: those called train_...]"),
    ] = None,
    validation: Annotated[
        Path | None,
        typer.Option(
            "--validation", help="For an oracle: of validation images. [default: those called validation_...]"
        ),
    ] = None,
    coverage: Annotated[
        Path | None,
        typer.Option("--coverage", help="A file that collects the surprise coverage of set after set of images."),
    ] = None,
    buckets: Annotated[
        int | None, typer.Option("--buckets", help="Of a new coverage: parts of its range. [default: 1000]")
    ] = None,
    upper: Annotated[
        float | None,
        typer.Option("--upper", help="Of a new coverage: where its range ends. [default: at the largest score]"),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder for a table (.csv) and the same as JSON.")
    ] = None,
    engine: Annotated[str, ENGINE] = "local",
    common: Common,
) -> None:
    """Score predictions without a model: from activations, probabilities or the predictions of several networks.

    The arrays are described in docs/arrays.md.

    **Examples**

    `secondguess score traces.npz --supervisor dsa --train train.npz`

    `secondguess score probabilities.npz --supervisor entropy --supervisor max-softmax --json`

    `secondguess score traces.npz --supervisor dsa --train train.npz --coverage dsa.json`

    `secondguess score predictions.npz --oracle cross-reference --out out/verdicts`

    `secondguess score traces.npz --supervisor knn --train train.npz --engine local:8 --out out/scores`
    """
    if coverage is None and (buckets is not None or upper is not None):
        raise UserError("--buckets and --upper are those of a surprise coverage; name its file with --coverage, too.")
    if oracle is not None:
        if coverage is not None:
            raise UserError("--coverage is for supervisors; an oracle gives verdicts, no scores.")
        result: Result = _judged(arrays, supervisor, oracle, train, validation, engine)
    else:
        scores = _scored(arrays, supervisor, train, validation, engine, out, common)
        result = scores if coverage is None else scores.collect(coverage, buckets=buckets, upper=upper)
    if out is not None:
        result.save(out)
    common.show(result)


def _scored(
    arrays: Path,
    supervisors: list[str] | None,
    train: Path | None,
    validation: Path | None,
    engine: str,
    out: Path | None,
    common: Common,
) -> Scores:
    from secondguess.supervisors import score_arrays

    if supervisors is None:
        raise UserError(WHO)
    if validation is not None:
        raise UserError("--validation is for oracles; supervisors learn from --train alone.")
    folder = None if out is None or engine == "local" else out / "shards"
    return score_arrays(arrays, supervisors, train=train, engine=engine, folder=folder, progress=common.progress)


def _judged(
    arrays: Path,
    supervisors: list[str] | None,
    oracle: str,
    train: Path | None,
    validation: Path | None,
    engine: str,
) -> Result:
    from secondguess.accuracy.oracles import judge_arrays

    if supervisors is not None:
        raise UserError("--supervisor and --oracle were both given; one of them scores.")
    if engine != "local":
        raise UserError("An oracle judges in this process, so --engine is for --supervisor only; leave it out.")
    return judge_arrays(arrays, oracle, train=train, validation=validation)
