"""A search for errors under way: it asks, a person or a program answers, and what has been found can be read.

Every answer is kept: in memory, or in a folder from which the same call goes on later, in code or on the page.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from secondguess.contracts.registry import unknown
from secondguess.environment import versions
from secondguess.errors import UserError
from secondguess.files import make_folder, write_bytes, write_json
from secondguess.labelling.export import exported
from secondguess.labelling.questions import Found
from secondguess.labelling.session import LabellingSession
from secondguess.labelling.store import Store
from secondguess.metrics.discovery import discovery_ratio_interval
from secondguess.model.classifier import Classifier
from secondguess.progress import Stopped
from secondguess.results import Result, flat
from secondguess.search import find
from secondguess.search.pool import Pool, wrong
from secondguess.search.registry import make

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from secondguess.metrics import Interval
    from secondguess.web.server import ServedPage

__all__ = ["ErrorSearch"]

ANNOTATOR = "code"  # under which labels are kept that were not given on the page
PICTURES = 8  # in a notebook


class ErrorSearch(Result):
    """A search for errors under way: ask, tell, and read what has been found. Made by `find_errors`.

    Args:
        classifier: the model in question.
        name: of the search.
        pool: the images, and which of them may be asked about.
        store: where answers are kept; those already there are taken up.
        about: what the session is about.
        measure: returns the pool with distances, where they are still to be measured.
        stop: ends `measure` early, which then raises `Stopped`.

    Attributes:
        classifier: the model in question.
        pool: the images, and which of them may be asked about.
        session: which image comes next, and what was answered.
    """

    def __init__(
        self,
        classifier: Classifier,
        name: str,
        pool: Pool,
        store: Store,
        about: Mapping[str, Any],
        measure: Callable[[], Pool] | None = None,
        stop: Callable[[], None] = lambda: None,
    ) -> None:
        self.classifier, self.pool = classifier, pool
        self._measure, self._stop = measure, stop
        self._behind: threading.Thread | None = None
        self._name, self._store, self._about = name, store, dict(about)
        self.session = self._session()
        self._page: ServedPage | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the page and release the folder, so that another process can go on."""
        if self._page is not None:
            self._page.close()
        if self._behind is not None:  # a thread that computes while Python ends would abort the process
            self._stop()
            self._behind.join()
        self._store.close()

    @property
    def folder(self) -> Path | None:
        """Where labels are kept, or None."""
        return self._store.folder

    @property
    def errors(self) -> list[Found]:
        """The confirmed errors, latest first: image, the annotator's answer, the model's, its confidence."""
        return self.session.errors()

    @property
    def labelled(self) -> NDArray[np.int64]:
        """(t,) positions of the images whose label is known, in the order of the labels."""
        return self.session.search.labelled

    @property
    def ratio(self) -> Interval | None:
        """Errors found, divided by those that the confidences predict, with a 95 % interval; None without labels."""
        errors, confidence = self.session.outcomes()
        return discovery_ratio_interval(errors, 1 - confidence) if len(errors) else None

    @property
    def remarks(self) -> list[str]:
        """Problems with images and their distances, one sentence each."""
        return find.remarks(self.pool)

    def ask(self, n: int = 1) -> NDArray[np.int64]:
        """The next images to label, (n,) positions, or fewer when no more are left.

        Those that were asked for before and have neither a label nor a skip come first.
        """
        if n < 1:
            raise UserError(f"{n} images were asked for; ask for at least 1.")
        return np.array(self.session.ask(ANNOTATOR, n), dtype=np.int64)

    def tell(self, indices: ArrayLike, labels: ArrayLike) -> None:
        """Take in labels of images, whether they were asked for or not; a second label replaces the first.

        Args:
            indices: (m,) positions.
            labels: (m,) classes by name or number, or (m, K) soft labels: a prediction is an error where its class has
                no share in the label, and a row of zeros says "none of the classes". Of a soft label it is kept which
                classes have one.
        """
        rows, truth = self._positions(indices), self._classes(labels)
        wrong(self.pool.predictions[rows], truth, self.pool.observation.num_classes)  # refuses labels that are none
        for row, label in zip(rows.tolist(), truth, strict=True):
            classes = np.flatnonzero(label).tolist() if truth.ndim == 2 else [int(label)]
            self.session.record(ANNOTATOR, row, tuple(classes))

    def skip(self, indices: ArrayLike) -> None:
        """Never ask about these images (again)."""
        for row in self._positions(indices).tolist():
            self.session.record(ANNOTATOR, row, None)

    def why(self, index: int) -> dict[str, float | str]:
        """The reasons for asking about an image now: finite numbers and texts by name."""
        return self.session.search.why(index)

    def measure(self) -> None:
        """Measure the distances that are still to be measured; from then on the search chooses by them, too."""
        measure, self._measure = self._measure, None
        if measure is not None:
            self.pool = measure()
            self.session.take(self.pool)

    def _measure_behind(self) -> None:
        """Measure in a thread: the page works without distances, so what goes wrong is said and not raised."""

        def work() -> None:
            try:
                self.measure()
            except Stopped:
                pass  # what was measured is kept
            except Exception as error:
                warnings.warn(f"The distances could not be measured: {error}", stacklevel=2)

        if self._measure is not None:
            self._behind = threading.Thread(target=work, name="distances", daemon=True)
            self._behind.start()

    def open(
        self,
        port: int = 0,
        browser: bool = True,
        *,
        annotator: str = "",
        overlap: int = 1,
        goal: int | None = None,
        show_answer: bool = False,
        announce: Callable[[str], None] = print,
        block: bool | None = None,
    ) -> ServedPage | None:
        """Serve the labelling page to this machine; needs a `folder`, and the extra `app`.

        Args:
            port: where to listen; 0 for any free port.
            browser: whether to open the page in the browser.
            annotator: the name that the page suggests.
            overlap: how many annotators each image goes to.
            goal: end after this number of labels; None for no end but the last image.
            show_answer: whether the model's answer is shown before the annotator's.
            announce: called with the link once the page can be opened.
            block: whether to return only after Ctrl-C; by default not where Python is used interactively, as in a
                notebook, where the page is served while you go on.

        Returns:
            The page that is served while you go on: its `link`, and `close()`, which ends it.
        """
        if self.folder is None:
            raise UserError(
                "Answers on the page are kept in a folder; name one with find_errors(..., folder='labels')."
            )
        from secondguess.labelling.page import serve_page
        from secondguess.web.server import is_interactive

        if self._page is not None:
            self._page.close()
        self.session = self._session(overlap=overlap, goal=goal, show_answer=show_answer)
        self._measure_behind()
        self._page = serve_page(
            self.session,
            self._store,
            self.classifier,
            annotator,
            port,
            browser=browser,
            announce=announce,
            block=not is_interactive() if block is None else block,
        )
        return self._page

    def summary(self) -> str:
        """What is searched, what has been found, and how to go on."""
        images, ratio, errors = self.pool.images, self.ratio, self.errors
        above = f"a confidence above {self._about['min_confidence']}"
        lines = [
            f"Search for confident errors of {self.classifier.name} among {len(self.pool):,} images of {images.name}",
            f"{self.pool.size:,} predictions with {above} may be asked about, by the search {self._name!r}.",
        ]
        if ratio is None:
            lines.append("Nothing is labelled yet.")
        else:
            lines.append(
                f"{len(self.labelled):,} labelled: {len(errors):,} errors, {ratio.value:.1f} times as many as the "
                f"confidences announce (95 % interval {ratio.low:.1f} to {ratio.high:.1f})."
            )
        lines += [f"Image {self._id(one.image)} is {one.said}; {self._guess(one)}." for one in errors[:3]]
        where = "kept in memory only; save(folder) writes them" if self.folder is None else f"kept in {self.folder}"
        return "\n".join([*lines, *self.remarks[:3], f"The labels are {where}."])

    def to_dict(self) -> dict[str, Any]:
        """What the search is about and what has been found, as JSON can hold it."""
        ratio, images = self.ratio, self.pool.images
        return {
            "model": {"name": self.classifier.name, "fingerprint": self.classifier.fingerprint},
            "images": {"name": images.name, "images": len(images), "fingerprint": images.content_fingerprint},
            "versions": versions(),
            "settings": self._about,
            "may_be_asked_about": self.pool.size,
            "unanswered": self.pool.unanswered,
            "remarks": self.remarks,
            "labelled": len(self.labelled),
            "errors": [{"id": self._id(one.image)} | asdict(one) for one in self.errors],
            "discovery_ratio": None if ratio is None else {"value": ratio.value, "low": ratio.low, "high": ratio.high},
        }

    def rows(self) -> list[dict[str, Any]]:
        """The errors that were found, one a row."""
        return [flat({"id": self._id(one.image)} | asdict(one)) for one in self.errors]

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the errors found over the labels given, and how many the confidences announce.

        Args:
            ax: where to draw; a new figure if left out.
        """
        from secondguess.report import plots

        errors, confidence = self.session.outcomes()
        labels, where = np.arange(len(errors) + 1), plots.new_axes(ax, 4.6, 3.0)
        for values, label, colour in (
            (errors, "found", plots.PLAIN.accent),
            (1 - confidence, "announced by the confidences", plots.PLAIN.muted),
        ):
            where.plot(labels, np.concatenate([[0], np.cumsum(values)]), color=colour, label=label)
        where.set(xlabel="labels", ylabel="errors", ylim=(0, None))
        where.legend(frameon=False)
        return where

    def save(self, folder: str | Path) -> Path:
        """Write `errors.json` (all that was found) and `labels.csv` (one row per answer) into a folder."""
        place = make_folder(folder)
        write_json(place / "errors.json", self.to_dict())
        write_bytes(place / "labels.csv", exported(self._store, "csv"))
        return place

    def _repr_html_(self) -> str:
        """The summary, the errors found, and the images that come next."""
        errors = [(one.image, f"{one.said}; {self._guess(one)}") for one in self.errors[:PICTURES]]
        coming = [(image, self._id(image)) for image in self.session.upcoming(ANNOTATOR, PICTURES)]
        parts = [
            super()._repr_html_(),
            self._gallery("Errors found", errors),
            self._gallery("Asked about next", coming),
        ]
        return "".join(parts)

    def _gallery(self, title: str, cards: list[tuple[int, str]]) -> str:
        from secondguess.report.pictures import data_uri

        shown = "".join(
            f'<figure style="display:inline-block;margin:4px"><img src="{data_uri(self.pool.images.images[image])}" '
            f'alt="" width="96"><figcaption>{escape(text)}</figcaption></figure>'
            for image, text in cards
        )
        return f"<p>{title}</p>{shown}" if cards else ""

    def _session(self, **options: Any) -> LabellingSession:
        name, pool, seed = self._name, self.pool, self._about["seed"]
        return LabellingSession(make(name, seed=seed).fit(pool), self._store, **options)

    def _id(self, image: int) -> str:
        ids = self.pool.images.ids
        return ids[image] if ids else str(image)

    def _guess(self, one: Found) -> str:
        return f"the model said {one.model} ({one.confidence:.0%})"

    def _classes(self, labels: ArrayLike) -> NDArray[Any]:
        """Labels as an array, of numbers where they are names."""
        given = np.atleast_1d(np.asarray(labels))
        if given.dtype.kind not in "UO":
            return given
        names = self.pool.observation.class_names
        for name in map(str, given.ravel()):
            if name not in names:
                raise unknown("class", name, names)
        return np.array([names.index(str(name)) for name in given.ravel()], dtype=np.int64).reshape(given.shape)

    def _positions(self, indices: ArrayLike) -> NDArray[np.int64]:
        rows = np.atleast_1d(np.asarray(indices))
        if rows.ndim != 1 or (
            rows.size and (rows.dtype.kind not in "iu" or rows.min() < 0 or rows.max() >= len(self.pool))
        ):
            raise UserError(f"The positions {indices!r} were given; give integers in 0..{len(self.pool) - 1}.")
        return rows.astype(np.int64)
