"""`secondguess label`: a page on which a person labels the images that a search selects."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from secondguess.cli.groups import grouped
from secondguess.cli.options import (
    IMAGES,
    TRAIN,
    Common,
    LoadingOptions,
    OptionalModel,
    Out,
    Seed,
    listed,
    open_classifier,
    plain,
    print_json,
    say,
)
from secondguess.errors import UserError

__all__ = ["label"]


def _search(help: str, **options: Any) -> Any:
    return typer.Option(help=help, rich_help_panel="Search", **options)


def _page(*names: str, help: str, **options: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel="Page", **options)


@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """Which images are asked about, and which first."""

    search: Annotated[str, _search("Which image comes next; see docs/labelling.md.")] = "adaptive"
    critical: Annotated[str | None, _search("Only images that the model gives this class.")] = None
    min_confidence: Annotated[float, _search("Only images with a confidence above this.")] = 0.65
    attack: Annotated[str, _search("How distances are measured: hop-skip-jump, boundary, gradient, none.")] = (
        "hop-skip-jump"
    )
    budget: Annotated[
        int | None, _search("Questions to the model about each image. [default: the attack's]", min=1)
    ] = None
    minutes: Annotated[
        float,
        _search("Time for measuring distances, while the page is open; sets the number of questions.", min=0.1),
    ] = 10.0
    max_images: Annotated[
        int | None,
        _search(
            "Images to search, drawn at random. [default: as many as the model looks at in 15 seconds]",
            min=1,
        ),
    ] = None
    supervisors: Annotated[
        str | None,
        _search("Whose scores the adaptive search learns from, separated by commas; see `secondguess supervisors`."),
    ] = None

    def arguments(self) -> dict[str, Any]:
        """The arguments of `find_errors`."""
        return {
            "search": self.search,
            "critical": self.critical,
            "min_confidence": self.min_confidence,
            "attack": None if plain(self.attack) == "none" else self.attack,
            "budget": self.budget,
            "minutes": self.minutes,
            "behind": True,
            "max_images": self.max_images,
            "supervisors": None if self.supervisors is None else listed(self.supervisors),
        }


@dataclass(frozen=True, kw_only=True)
class PageOptions:
    """What the page does, and where it is served."""

    labels: Annotated[int | None, _page(help="Stop after this number of labels.", min=1)] = None
    annotator: Annotated[str, _page(help="The name that the page suggests.")] = ""
    overlap: Annotated[int, _page(help="How many annotators each image goes to.", min=1)] = 1
    show_answer: Annotated[bool, _page("--show-answer/--hide-answer", help="Show the model's answer before yours.")] = (
        False
    )
    port: Annotated[int, _page(help="Where to listen; 0: any free port.", min=0, max=65535)] = 0
    browser: Annotated[bool, _page("--browser/--no-browser", help="Open the page.")] = True

    def arguments(self) -> dict[str, Any]:
        """The arguments of `ErrorSearch.open`."""
        return {
            "goal": self.labels,
            "annotator": self.annotator,
            "overlap": self.overlap,
            "show_answer": self.show_answer,
            "port": self.port,
            "browser": self.browser,
        }


@grouped
def label(
    *,
    model: OptionalModel,
    images: Annotated[str | None, IMAGES] = None,
    train: Annotated[str | None, TRAIN] = None,
    loading: LoadingOptions,
    search: SearchOptions,
    page: PageOptions,
    out: Out,
    export: Annotated[str | None, typer.Option(help="Write the labels as csv, parquet or npz and end.")] = None,
    seed: Seed = 0,
    common: Common,
) -> None:
    """Label images on a local page, led by a search for confident mistakes.

    The page opens as soon as the model has seen the images, or a random part of many; how far each of them is from
    another answer is measured behind it, and the search goes by that once it is known. The page is for this machine
    only. Every answer is on disk, in the folder `--out`, before the next image appears; the same command goes on where
    it was. Ctrl-C ends it.

    **Examples**

    `secondguess label --model m.onnx --images incoming/ --out labels/`

    `secondguess label --model m.onnx --images incoming/ --classes cat,dog --critical dog --out labels/`

    `secondguess label --model m.onnx --images new/ --supervisors knn --train train.npz --out labels/`

    `secondguess label --export csv --out labels/`
    """
    from secondguess.labelling import export_labels, find_errors
    from secondguess.labelling.page import check_extra

    if export is not None:
        path, answers = export_labels(out, export)
        print_json({"file": str(path), "answers": answers}) if common.json else say(f"Answers: {answers:,}, in {path}")
        return
    if model.model is None or images is None:
        raise UserError("There is nothing to label; say with --model and --images what it is about.")
    check_extra()  # before the long work
    classifier = open_classifier(model, loading)
    chosen = search.arguments() | {"train": train, "folder": out, "seed": seed, "progress": common.progress}
    found = find_errors(classifier, images, **chosen, **loading.arguments(classifier))

    remarks: list[str] = []

    def announce(link: str) -> None:
        if common.json:
            print_json({"link": link, "labelled": len(found.labelled), "unanswered": found.pool.unanswered})
        else:
            remarks.extend(found.remarks)
            for remark in remarks:
                say(remark)
            say(f"{found.pool.size:,} images may be asked about. Open this link; Ctrl-C ends the session:")
            say(link)
        sys.stdout.flush()  # the link may be read from a pipe

    with found:
        found.open(**page.arguments(), announce=announce, block=True)
        if not common.json:
            for remark in found.remarks[len(remarks) :]:  # of distances, which were measured meanwhile
                say(remark)
            say(f"Images labelled: {len(found.labelled):,}, errors found: {len(found.errors):,}.")
            say(f"The labels are in {out}; the same command goes on, --export csv makes a table of them.")
