"""A labelling session: which image a person sees next, what was said, and what has been found. No HTTP in here.

The state of a session follows from its events: every action is one event in the store, and a session that is opened
again reads them from the first to the last. What a search chooses depends on the answers it was given, in their order,
and on nothing else, so a new search with the answers that stand continues where the old one was. An answer is undone in
the same way, since no search can forget.

An image is settled when as many annotators as `overlap` says have answered or skipped it. The search is then given the
mean of their answers, or skips the image where all of them did.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from secondguess.database import DatabaseFailed
from secondguess.errors import UserError
from secondguess.labelling.answers import Answer, checked, consensus, name_of, spoken
from secondguess.labelling.questions import Comparison, Found, Question, SessionProgress
from secondguess.labelling.store import Event, Kind, Seen, Store

if TYPE_CHECKING:
    from secondguess.search.base import Search
    from secondguess.search.pool import Pool

__all__ = ["LabellingSession", "NotAsked"]

LOOK_ALIKES = 6


class NotAsked(UserError):
    """An answer about an image that the annotator has not been asked about, or no longer."""


class LabellingSession:
    """Leads annotators through a search.

    Args:
        search: begun on its pool; it begins anew whenever an answer is undone.
        store: where events are kept; those already there are taken up.
        overlap: how many annotators each image goes to.
        goal: end after this number of labels; None for no end but the pool's.
        show_answer: whether the model's answer is shown before the annotator's.
    """

    def __init__(
        self,
        search: Search,
        store: Store,
        *,
        overlap: int = 1,
        goal: int | None = None,
        show_answer: bool = False,
    ) -> None:
        if overlap < 1:
            raise UserError(f"Each image is to go to {overlap} annotators; give at least 1.")
        self._store = store
        self.overlap, self.goal, self.show_answer = overlap, goal, show_answer
        self._lock = threading.RLock()
        self._turns: dict[int, dict[str, Answer | None]] = {}  # by image and annotator; None is a skip
        self._open: dict[str, list[int]] = {}  # what each annotator has before them, the current image last
        self._done: dict[str, list[int]] = {}  # what each annotator has answered or skipped, in order
        self._before: dict[tuple[str, int], Answer | None] = {}  # what was undone
        self._settled: dict[int, NDArray[np.float64] | None] = {}  # soft labels in the order of settling; None: skipped
        self.search = search if search.remaining == search.pool.size else search.clone().fit(search.pool)
        for event in store.events():
            self._apply(event)
        self._catch_up(self.search)

    @property
    def class_names(self) -> tuple[str, ...]:
        """The K names."""
        return self.search.pool.observation.class_names

    def next(self, annotator: str) -> Question | None:
        """The image that an annotator has before them, or a new one; None when there is nothing left for them."""
        annotator = name_of(annotator)
        with self._lock:
            mine = self._open.get(annotator) or self._handed_out(annotator)
            return self._question(annotator, mine[-1]) if mine else None

    def ask(self, annotator: str, n: int = 1) -> list[int]:
        """The next n images for an annotator: those that they have before them already, then new ones."""
        annotator = name_of(annotator)
        with self._lock:
            mine = self._open.get(annotator, [])[:n]
            return mine + self._handed_out(annotator, n - len(mine))

    def upcoming(self, annotator: str, n: int) -> list[int]:
        """What `ask` would give, without asking for it."""
        with self._lock:
            mine = self._open.get(name_of(annotator), [])[:n]
            left = n - len(mine)
            return mine + (self._begun_anew().ask(left).tolist() if left else [])

    def answer(self, annotator: str, image: int, classes: Answer, key: str | None = None) -> Comparison:
        """Take an answer; it is on disk when this returns.

        Args:
            annotator: who answers.
            image: the image that they were asked about.
            classes: one class, several where it is ambiguous, none where it is invalid.
            key: of the request; the same key twice counts once.
        """
        answer = checked(classes, len(self.class_names))
        with self._act("answered", annotator, image, key, answer) as event:
            return self._verdict(event.image, event.classes or ())

    def skip(self, annotator: str, image: int, key: str | None = None) -> None:
        """Pass on an image; with overlap, others may still answer it."""
        with self._act("skipped", annotator, image, key):
            pass

    def record(self, annotator: str, image: int, classes: Answer | None) -> None:
        """Take in what is known of an image, whether it was asked about or not; it replaces an earlier answer.

        Args:
            annotator: the source of the answer.
            image: position of the image.
            classes: as `answer` takes them, or None to skip the image.
        """
        annotator = name_of(annotator)
        answer = None if classes is None else checked(classes, len(self.class_names))
        with self._lock:
            again = image in self._done.get(annotator, ())
            said = Event("skipped" if answer is None else "answered", image, annotator, answer)
            if not again and image not in self._open.get(annotator, ()):
                self._begin(annotator, image)
            # Together: an answer is not taken back unless the one in its place is on disk.
            for event in self._store.append_all([Event("undone", image, annotator), said] if again else [said]):
                self._apply(event)
            if again:  # a search cannot forget
                self.search = self._begun_anew()
            else:
                self._pass_on(image)

    def undo(self, annotator: str, key: str | None = None) -> bool:
        """Take back the annotator's last answer or skip, so that the image is before them again.

        Returns:
            Whether there was anything to take back.
        """
        annotator = name_of(annotator)
        with self._lock:
            if key is not None and self._store.find(key) is not None:
                return True
            if not self._done.get(annotator):
                return False
            event = Event("undone", self._done[annotator][-1], annotator, key=key)
            self._apply(self._store.append(event))
            self.search = self._begun_anew()
            return True

    def take(self, pool: Pool) -> None:
        """Go on with a pool of the same images of which more is known; what annotators have before them stays."""
        with self._lock:
            fresh = self.search.clone().fit(pool)
            self._catch_up(fresh)
            self.search = fresh

    def progress(self, annotator: str) -> SessionProgress:
        """How far the session is, for an annotator."""
        annotator = name_of(annotator)
        with self._lock:
            labelled, errors = self.search.labelled, self.search.errors
            return SessionProgress(
                labelled=len(labelled),
                skipped=sum(label is None for label in self._settled.values()),
                mine=sum(turns.get(annotator) is not None for turns in self._turns.values()),
                remaining=self.search.remaining,
                pool=self.search.pool.size,
                goal=self.goal,
                errors=int(errors.sum()),
                expected=float((1 - self.search.pool.confidence[labelled]).sum()),
                can_undo=bool(self._done.get(annotator)),
            )

    def outcomes(self) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
        """Of the labelled images, in their order: whether the model is wrong (t,), and its confidence (t,)."""
        with self._lock:
            return self.search.errors, self.search.pool.confidence[self.search.labelled]

    def errors(self) -> list[Found]:
        """The errors found so far, latest first."""
        with self._lock:
            images = self.search.labelled[self.search.errors].tolist()[::-1]
            return [self._found(image) for image in images]

    def is_answered(self, image: int) -> bool:
        """Whether this image has an answer, so that the model's answer need not be hidden any more."""
        with self._lock:
            return any(answer is not None for answer in self._turns.get(image, {}).values())

    @contextmanager
    def _act(
        self, kind: Kind, annotator: str, image: int, key: str | None, classes: Answer | None = None
    ) -> Iterator[Event]:
        """Store an event and follow it; one with a known key has happened already."""
        annotator = name_of(annotator)
        with self._lock:
            event = None if key is None else self._store.find(key)
            if event is None:
                if image not in self._open.get(annotator, ()):
                    raise NotAsked(f"{annotator} has not been asked about image {image}, or has answered it already.")
                event = self._store.append(Event(kind, image, annotator, classes, key=key))
                self._apply(event)
                self._pass_on(image)
            yield event

    def _apply(self, event: Event) -> None:
        """Apply an event, except to the search."""
        image, who = event.image, event.annotator
        turns = self._turns.setdefault(image, {})
        mine, done = self._open.setdefault(who, []), self._done.setdefault(who, [])
        if event.kind == "asked":
            mine.append(image)
        elif event.kind == "undone":
            done.remove(image)
            mine.append(image)
            self._before[who, image] = turns.pop(who)
        else:
            mine.remove(image)
            done.append(image)
            turns[who] = event.classes
            self._before.pop((who, image), None)
        self._settle(image)

    def _settle(self, image: int) -> None:
        turns = self._turns[image]
        if len(turns) < self.overlap:
            self._settled.pop(image, None)
            return
        if self._settled.get(image) is None:
            self._settled.pop(image, None)  # a skip has no place among the labels that it could keep
        answers = [answer for answer in turns.values() if answer is not None]
        self._settled[image] = consensus(answers, len(self.class_names)) if answers else None

    def _pass_on(self, image: int) -> None:
        """Let the search know about an image that has just been settled."""
        if image in self._settled:
            _tell(self.search, image, self._settled[image])

    def _begun_anew(self) -> Search:
        """A search of the same kind that knows the answers that stand, and nothing else."""
        fresh = self.search.clone().fit(self.search.pool)
        self._catch_up(fresh)
        return fresh

    def _catch_up(self, fresh: Search) -> None:
        """Tell a fresh search all that stands."""
        for image, label in self._settled.items():
            _tell(fresh, image, label)
        unsettled = [image for image in self._turns if image not in self._settled]
        fresh.skip(np.array(unsettled, dtype=np.int64))  # they are with somebody already

    def _handed_out(self, annotator: str, n: int = 1) -> list[int]:
        """What `_hand_out` gives; the search asks again for images that could not be stored as asked about."""
        try:
            return self._hand_out(annotator, n)
        except DatabaseFailed:
            self.search = self._begun_anew()
            raise

    def _hand_out(self, annotator: str, n: int) -> list[int]:
        """Begin images with this annotator: those that others have begun, if they need more answers, or new ones."""
        images: list[int] = []
        while len(images) < n and (image := self._unfinished(annotator, self.overlap)) is not None:
            images.append(self._begin(annotator, image))
        wanted = n - len(images)
        if self.goal is not None:
            wanted = min(wanted, self.goal - len(self.search.labelled))
        if wanted > 0:
            asked = self.search.ask(wanted).tolist()
            images += [self._begin(annotator, image) for image in asked]
            # An annotator may have left in the middle of an image: when there are no others, it goes to any annotator.
            while len(asked) < wanted and (image := self._unfinished(annotator, None)) is not None:
                asked.append(self._begin(annotator, image))
                images.append(image)
        return images

    def _begin(self, annotator: str, image: int) -> int:
        """Note that this annotator has an image before them now."""
        pool = self.search.pool
        name = pool.images.ids[image] if pool.images.ids else str(image)
        seen = Seen(name, int(pool.predictions[image]), float(pool.confidence[image]))
        self._apply(self._store.append(Event("asked", image, annotator), seen))
        return image

    def _unfinished(self, annotator: str, most: int | None) -> int | None:
        """An image that is not settled, not this annotator's, and with fewer than `most` annotators so far."""
        for image, turns in self._turns.items():
            holders = set(turns) | {who for who, images in self._open.items() if image in images}
            if image not in self._settled and annotator not in holders and (most is None or len(holders) < most):
                return image
        return None

    def _question(self, annotator: str, image: int) -> Question:
        pool = self.search.pool
        why = self.search.why(image)
        why.pop("prediction", None)  # it is said apart, or not at all
        shown = (self.class_names[pool.predictions[image]], float(pool.confidence[image])) if self.show_answer else None
        undone = (annotator, image) in self._before
        before = self._before.get((annotator, image))
        words = "skipped" if before is None else spoken(before, self.class_names)
        return Question(image, why, self._look_alikes(image), words if undone else None, shown)

    def _look_alikes(self, image: int) -> list[int]:
        """The nearest images by Euclidean distance of their features, the image itself left out."""
        features = self.search.pool.features
        distances = ((features - features[image]) ** 2).sum(axis=1)
        distances[image] = np.inf
        return [int(one) for one in np.argsort(distances, kind="stable")[: min(LOOK_ALIKES, len(features) - 1)]]

    def _verdict(self, image: int, answer: Answer) -> Comparison:
        pool = self.search.pool
        predicted = int(pool.predictions[image])
        said, model = spoken(answer, self.class_names), self.class_names[predicted]
        return Comparison(image, said, model, float(pool.confidence[image]), predicted not in answer)

    def _found(self, image: int) -> Found:
        """An error and the answers of its annotators, each once."""
        answers = {who: answer for who, answer in self._turns[image].items() if answer is not None}
        verdict = self._verdict(image, ())
        said = "; ".join(dict.fromkeys(spoken(answer, self.class_names) for answer in answers.values()))
        return Found(image, said, verdict.model, verdict.confidence, True, tuple(answers))


def _tell(search: Search, image: int, label: NDArray[np.float64] | None) -> None:
    if label is None:
        search.skip(np.array([image]))
    else:
        search.tell(np.array([image]), label[None])
