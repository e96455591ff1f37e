"""`secondguess label`: a page on which a person looks at the images that a search leads to."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from secondguess.cli.options import (
    BatchSize,
    Channels,
    Debug,
    Device,
    Fit,
    Json,
    Mean,
    Out,
    Output,
    Quiet,
    Seed,
    Size,
    SkipBad,
    Std,
    Weights,
    listed,
    loading_for,
    open_classifier,
    print_json,
    progress_for,
    say,
)
from secondguess.errors import UserError

__all__ = ["label"]


def label(
    out: Out,
    model: Annotated[
        str | None,
        typer.Option(help="An .onnx or .pt2 file, zoo:NAME, or package.module:make_model.", rich_help_panel="Model"),
    ] = None,
    weights: Weights = None,
    mean: Mean = "0",
    std: Std = "1",
    output: Output = "auto",
    batch_size: BatchSize = 256,
    images: Annotated[
        str | None, typer.Option(help="The images to search: a folder, a file or a name.", rich_help_panel="Data")
    ] = None,
    size: Size = None,
    channels: Channels = None,
    fit: Fit = "stretch",
    skip_bad: SkipBad = False,
    classes: Annotated[
        str | None,
        typer.Option(help="What the model's classes are called, separated by commas.", rich_help_panel="Data"),
    ] = None,
    search: Annotated[
        str, typer.Option(help="Which image comes next; see docs/labelling.md.", rich_help_panel="Search")
    ] = "adaptive",
    critical: Annotated[
        str | None, typer.Option(help="Only images that the model gives this class.", rich_help_panel="Search")
    ] = None,
    min_confidence: Annotated[
        float, typer.Option(help="Only images with a confidence above this.", rich_help_panel="Search")
    ] = 0.65,
    attack: Annotated[
        str,
        typer.Option(
            help="How distances are measured: hop-skip-jump, boundary, gradient, none.", rich_help_panel="Search"
        ),
    ] = "hop-skip-jump",
    budget: Annotated[
        int | None,
        typer.Option(
            min=1, help="Questions to the model about each image. [default: the attack's]", rich_help_panel="Search"
        ),
    ] = None,
    supervisors: Annotated[
        str | None,
        typer.Option(
            help="Whose scores the adaptive search learns from, separated by commas; see `secondguess supervisors`.",
            rich_help_panel="Search",
        ),
    ] = None,
    train: Annotated[
        str | None,
        typer.Option(
            help="Labelled images the model was trained on, which these supervisors are fitted on.",
            rich_help_panel="Search",
        ),
    ] = None,
    labels: Annotated[
        int | None, typer.Option(min=1, help="Stop after so many labels.", rich_help_panel="Page")
    ] = None,
    annotator: Annotated[str, typer.Option(help="The name that the page suggests.", rich_help_panel="Page")] = "",
    overlap: Annotated[
        int, typer.Option(min=1, help="How many annotators each image goes to.", rich_help_panel="Page")
    ] = 1,
    show_answer: Annotated[
        bool,
        typer.Option(
            "--show-answer/--hide-answer", help="Show the model's answer before yours.", rich_help_panel="Page"
        ),
    ] = False,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Where to listen; 0: any free port.", rich_help_panel="Page")
    ] = 0,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open the page.", rich_help_panel="Page")
    ] = True,
    export: Annotated[
        str | None, typer.Option(help="Write the labels as csv, parquet or npz and end.", rich_help_panel="Page")
    ] = None,
    seed: Seed = 0,
    device: Device = "auto",
    quiet: Quiet = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Label images on a local page, led by a search for confident mistakes.

    The page is for this machine only. Every answer is on disk, in the folder `--out`, before the next image appears;
    the same command goes on where it was. Ctrl-C ends it.

    **Examples**

    `secondguess label --model m.onnx --images incoming/ --out labels/`

    `secondguess label --model m.onnx --images incoming/ --classes cat,dog --critical dog --out labels/`

    `secondguess label --model m.onnx --images new/ --search adaptive --supervisors knn --train train.npz --out labels/`

    `secondguess label --export csv --out labels/`
    """
    from secondguess.labelling import export_labels, find_errors
    from secondguess.labelling.page import check_extra

    if export is not None:
        path, answers = export_labels(out, export)
        print_json({"file": str(path), "answers": answers}) if json else say(f"Answers: {answers:,}, in {path}")
        return
    if model is None or images is None:
        raise UserError("There is nothing to label; say with --model and --images what it is about.")
    check_extra()  # before the long work
    classifier = open_classifier(model, weights, mean, std, output, batch_size, device)
    if classes is not None:
        classifier.class_names = tuple(listed(classes))
    found = find_errors(
        classifier,
        images,
        search=search,
        supervisors=None if supervisors is None else listed(supervisors),
        train=train,
        critical=critical,
        min_confidence=min_confidence,
        attack=None if attack == "none" else attack,
        budget=budget,
        folder=out,
        seed=seed,
        progress=progress_for(quiet=quiet or json),
        **loading_for(classifier.input_shape, size, channels, fit, skip_bad=skip_bad),
    )

    def announce(link: str) -> None:
        if json:
            print_json({"link": link, "labelled": len(found.labelled), "unanswered": found.pool.unanswered})
        else:
            for remark in found.remarks:
                say(remark)
            say(f"{found.pool.size:,} images may be asked about. Open this link; Ctrl-C ends the session:")
            say(link)
        sys.stdout.flush()  # somebody may read the link from a pipe

    with found:
        found.open(
            port,
            browser,
            annotator=annotator,
            overlap=overlap,
            goal=labels,
            show_answer=show_answer,
            announce=announce,
        )
        if not json:
            say(f"Images labelled: {len(found.labelled):,}, errors found: {len(found.errors):,}.")
            say(f"The labels are in {out}; the same command goes on, --export csv makes a table of them.")
