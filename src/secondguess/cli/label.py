"""`secondguess label`: a page on which a person looks at the images that a search leads to."""

from __future__ import annotations

import sys
import warnings
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
from secondguess.errors import UserError, require

if TYPE_CHECKING:
    from secondguess.images import ImageSet
    from secondguess.labelling.session import LabellingSession
    from secondguess.labelling.store import Store
    from secondguess.model.classifier import Classifier
    from secondguess.progress import Progress
    from secondguess.search.distance import Distances
    from secondguess.search.pool import Pool

__all__ = ["label"]

# In the folder of the labels:
KEYS, PORT, DISTANCES, SCORES = ".access.json", ".port.json", "distances", "scores.npz"


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
    data: Annotated[
        str | None, typer.Option(help="A data set that has the classes' names, instead.", rich_help_panel="Data")
    ] = None,
    search: Annotated[
        str, typer.Option(help="Which image comes next; see docs/labelling.md.", rich_help_panel="Search")
    ] = "adversarial-distance",
    critical: Annotated[
        str | None, typer.Option(help="Only images that the model gives this class.", rich_help_panel="Search")
    ] = None,
    min_confidence: Annotated[
        float, typer.Option(help="Only images with a confidence above this.", rich_help_panel="Search")
    ] = 0.65,
    attack: Annotated[
        str,
        typer.Option(help="How distances are measured: hop_skip_jump, boundary, gradient.", rich_help_panel="Search"),
    ] = "hop_skip_jump",
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
    if export is not None:
        _export(out, export, as_json=json)
        return
    if model is None or images is None:
        raise UserError("There is nothing to label; say with --model and --images what it is about.")
    for module in ("fastapi", "uvicorn"):
        require(module, "app")
    from secondguess.cli.label_supervisors import advisers, nominal_images, with_kept_scores, with_scores
    from secondguess.labelling.store import Store
    from secondguess.search.registry import get_search

    name = search.replace("-", "_")
    needs_distances = get_search(name).needs_distances  # a name that does not exist is told before the long work
    progress = progress_for(quiet=quiet or json)
    classifier = open_classifier(model, weights, mean, std, output, batch_size, device)
    loading = loading_for(classifier.input_shape, size, channels, fit, skip_bad=skip_bad)
    found = _named(classifier, images, classes, data, loading)
    asked = advisers(classifier, name, supervisors, train)
    nominal = nominal_images(classifier, asked, train, found.shape, loading)
    store = Store(out)
    try:
        pool = _pool(classifier, found, critical, min_confidence, seed, progress)
        about: dict[str, Any] = {
            "model": classifier.fingerprint,
            "images": found.content_fingerprint,
            "search": name,
            "seed": seed,
        }
        about |= {"critical": critical, "min_confidence": min_confidence, "classes": list(pool.observation.class_names)}
        about |= {"attack": attack, "budget": budget} if needs_distances else {}
        if supervisors is not None:
            about |= {
                "supervisors": sorted(listed(supervisors)),
                "train": None if nominal is None else nominal.fingerprint,
            }
        store.agree(about)  # before the long work
        if asked:
            score = partial(with_scores, pool, classifier, asked, nominal, seed, progress)
            pool = with_kept_scores(pool, out / SCORES, about, score)
        if needs_distances:
            pool = pool.with_distances(_distances(classifier, pool, attack, budget, seed, out, progress))
        labelling = _labelling(name, pool, store, seed, overlap=overlap, goal=labels, show_answer=show_answer)
        store.begin(about)
        _serve(labelling, store, classifier, annotator, port, browser=browser, as_json=json)
    finally:
        store.close()


def _named(
    classifier: Classifier, where: str, classes: str | None, data: str | None, loading: dict[str, Any]
) -> ImageSet:
    """The images; the classifier is told what its classes are called, by the first that knows."""
    from secondguess.images import load, load_images

    if classes is not None and data is not None:
        raise UserError("Give the names of the classes with --classes or with --data, not both.")
    found = replace(load_images(where, **loading), name=where)
    if classes is not None:
        classifier.class_names = tuple(listed(classes))
    elif data is not None:
        classifier.class_names = load(data, **loading).test.class_names
    elif not classifier.class_names and not Path(where).is_dir():  # folders of what arrives need not be classes
        classifier.class_names = found.class_names
    return found


def _pool(
    classifier: Classifier, images: ImageSet, critical: str | None, min_confidence: float, seed: int, progress: Progress
) -> Pool:
    from secondguess.search.pool import Pool

    with progress.task(f"Looking at {images.name}", len(images)) as advance, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # images without an answer are told of before the link
        pool = Pool.of(
            classifier, images, critical=critical, min_confidence=min_confidence, seed=seed, progress=advance
        )
    if pool.size == 0:
        what = "any class" if critical is None else critical
        raise UserError(
            f"None of the {len(images):,} images is given {what} with a confidence above {min_confidence}; "
            "lower --min-confidence."
        )
    return pool


def _distances(
    classifier: Classifier, pool: Pool, attack: str, budget: int | None, seed: int, out: Path, progress: Progress
) -> Distances:
    """Distances of the images that may be asked about; counterexamples stay in their file."""
    from secondguess.search.distance import measure_distances

    return measure_distances(
        classifier,
        pool.images,
        rows=pool.rows,
        attack=attack,
        budget=budget,
        seed=seed,
        checkpoint=out / DISTANCES,
        progress=progress,
    )


def _labelling(name: str, pool: Pool, store: Store, seed: int, **options: Any) -> LabellingSession:
    from secondguess.labelling.session import LabellingSession
    from secondguess.search.registry import make_search

    return LabellingSession(lambda: make_search(name, pool, seed=seed), store, **options)


def _serve(
    labelling: LabellingSession,
    store: Store,
    classifier: Classifier,
    annotator: str,
    port: int,
    *,
    browser: bool,
    as_json: bool,
) -> None:
    from secondguess.labelling.explaining import explainer
    from secondguess.labelling.routes import LabelPage, label_app
    from secondguess.web.access import Keys
    from secondguess.web.pictures import Album
    from secondguess.web.server import listen, serve

    listening = listen(port, remembered=store.folder / PORT)
    keys = Keys.kept_in(store.folder / KEYS)
    pool = labelling.search.pool
    album = Album(pool.images.images)
    page = LabelPage(labelling, store, keys, album, annotator, explainer(classifier, pool, album))

    def announce(link: str) -> None:
        if as_json:
            print_json({"link": link, "labelled": len(labelling.search.labelled), "unanswered": pool.unanswered})
        else:
            for remark in _remarks(pool):
                say(remark)
            say(f"{pool.size:,} images may be asked about. Open this link; Ctrl-C ends the session:")
            say(link)
        sys.stdout.flush()  # somebody may read the link from a pipe

    serve(label_app(page), keys, listening, announce=announce, browser=browser)
    if not as_json:
        found = labelling.search
        say(f"Images labelled: {len(found.labelled):,}, errors found: {int(found.errors.sum()):,}.")
        say(f"The labels are in {store.folder}; the same command goes on, --export csv makes a table of them.")


def _remarks(pool: Pool) -> list[str]:
    """What went wrong with images and their distances, in sentences; nothing where nothing did."""
    remarks = []
    if pool.unanswered:
        remarks.append(
            f"The model had no usable answer (NaN or an error) to {pool.unanswered:,} of {len(pool):,} images; these "
            "are left out."
        )
    if pool.distances is None:
        return remarks
    failed, unusable = int(pool.distances.failed[pool.rows].sum()), pool.distances.unusable[pool.rows]
    if unusable.any():
        remarks.append(
            f"{int(unusable.sum()):,} questions about {int((unusable > 0).sum()):,} images had no answer that can be "
            "used (NaN or an error); the distances of these images may be too large."
        )
    if failed:
        remarks.append(f"No other decision was found near {failed:,} images; they are asked about last.")
    return remarks


def _export(out: Path, kind: str, *, as_json: bool) -> None:
    from secondguess.labelling.export import export, table
    from secondguess.labelling.store import Store

    store = Store(out, read_only=True)
    try:
        path, answers = export(store, kind), len(table(store)["index"])
    finally:
        store.close()
    print_json({"file": str(path), "answers": answers}) if as_json else say(f"Answers: {answers:,}, in {path}")
