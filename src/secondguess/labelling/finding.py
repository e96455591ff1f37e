"""`find_errors`: which images a person should inspect to find the confident mistakes of a model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from secondguess.contracts.registry import snake_case
from secondguess.images import check_loading
from secondguess.labelling.error_search import ErrorSearch
from secondguess.labelling.store import Store
from secondguess.model.agreement import relabelled, with_names_of
from secondguess.model.classifier import Classifier
from secondguess.progress import Progress, Stoppable, announce, attending, shown
from secondguess.search import find
from secondguess.search.distance import checked_attack
from secondguess.search.pool import MIN_CONFIDENCE
from secondguess.search.registry import get

if TYPE_CHECKING:
    from secondguess.images import ImageSet
    from secondguess.supervisors import Supervisor

__all__ = ["find_errors"]

DISTANCES, SCORES = "distances", "scores.npz"  # in the folder of the labels


@attending
def find_errors(
    model: Any,
    images: Any,
    *,
    search: str = "adaptive",
    supervisors: str | Iterable[str | Supervisor] | None = None,
    train: Any = None,
    critical: int | str | None = None,
    min_confidence: float = MIN_CONFIDENCE,
    attack: str | None = "hop_skip_jump",
    budget: int | None = None,
    minutes: float | None = None,
    behind: bool = False,
    max_images: int | None = None,
    folder: str | Path | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    **loading: Any,
) -> ErrorSearch:
    """Search images without labels for confident mistakes of a model.

    Args:
        model: a `Classifier`, or anything that `Classifier.open` takes.
        images: an `ImageSet`, a data set, an array, or the path or name of images to load.
        search: which image comes next, by name; `secondguess.search.names()` lists them.
        supervisors: whose scores the adaptive search learns from, by name or ready-made.
        train: labelled images the model was trained on, which these supervisors are fitted on.
        critical: number or name of the class whose predictions are in question; None for all classes.
        min_confidence: only predictions with a confidence above this may be asked about; 0 admits all.
        attack: how distances to another decision are measured, for searches that use them: `"hop_skip_jump"`,
            `"boundary"` or `"gradient"`; None measures none, which the adaptive search can do without.
        budget: the largest number of queries to the model for each image; the attack's own number if left out.
        minutes: that measuring distances may take, which sets the budget where none is given; without both it is the
            attack's own number.
        behind: measure distances while the page is open, where the search can begin without them; see
            `ErrorSearch.measure`.
        max_images: the largest number of images to search, drawn at random; if left out, all of them, but with `behind`
            only as many as the model looks at in some 15 seconds.
        folder: where labels, scores and distances are kept; the same call goes on where it was. Without it they are
            kept in memory, and there is no page.
        seed: of everything random.
        progress: where to report; by default bars in a notebook, and nothing elsewhere.
        **loading: options of `load` for images given by name; `size` and `channels` default to what the model takes.
    """
    progress, kind = shown(progress), get(search)  # an unknown name is refused at once
    attack = None if attack is None or not kind.needs_distances else snake_case(attack)
    advice = supervisors if supervisors is None or isinstance(supervisors, str) else list(supervisors)
    classifier = Classifier.open(model)
    options = classifier.loading | check_loading(loading, find_errors)
    found = find.open_images(images, classifier, options)
    asked = find.scoring_supervisors(classifier, kind.name, advice, train)
    training = find.fitting_images(asked, train, found.shape, options)
    classifier = with_names_of(classifier, found, training)
    training = None if training is None else relabelled(training, classifier.class_names, classifier.description.names)
    store = Store(None if folder is None else Path(folder))
    try:
        known = store.settings
        if max_images is None and behind:  # a session that goes on has the images that it had
            max_images = known.get("max_images") if known else find.as_many_as_open(classifier, found)
        if max_images is not None and max_images < len(found):
            announce(
                progress,
                f"{max_images:,} of the {len(found):,} images are searched, drawn at random, so that the page is there "
                f"soon; --max-images {len(found)} searches all.",
            )
            found = find.sampled(found, max_images, seed)
        else:
            max_images = None
        pool = find.make_pool(classifier, found, critical, min_confidence, seed, progress)
        if attack is not None and budget is None and minutes is not None:
            # A session that goes on asks as many questions as before, whatever the machine does now.
            budget = known.get("budget") if known else find.affordable(classifier, pool, attack, minutes)
        about: dict[str, Any] = {"model": classifier.fingerprint, "images": found.content_fingerprint}
        about |= {"search": search if ":" in search else kind.name, "seed": seed, "critical": critical}
        about |= {"min_confidence": min_confidence, "classes": list(pool.observation.class_names)}
        about |= {} if max_images is None else {"max_images": max_images}
        about |= {} if attack is None else {"attack": attack, "budget": budget}
        about |= _spelt(advice, training) if asked else {}
        store.agree(about)  # before the long work
        scores, distances = (None if store.folder is None else store.folder / name for name in (SCORES, DISTANCES))
        pool = find.add_scores(pool, classifier, asked, training, seed, progress, kept=scores, about=about)
        measure, stoppable = None, Stoppable(progress)
        if attack is not None:
            checked_attack(classifier, attack, budget)  # while somebody listens: it may be measured behind the page
            measure = partial(find.add_distances, pool, classifier, attack, budget, seed, stoppable, kept=distances)
        if measure is not None and not (behind and kind.can_wait):
            pool, measure = measure(), None
        made = ErrorSearch(classifier, about["search"], pool, store, about, measure, stoppable.stop)
        store.begin(about)
    except BaseException:
        store.close()
        raise
    return made


def _spelt(supervisors: str | Sequence[str | Supervisor] | None, training: ImageSet | None) -> dict[str, Any]:
    """Supervisors and what they are fitted on, by which a session is recognised."""
    given = [supervisors] if isinstance(supervisors, str) else supervisors or ()
    spelt = sorted(one if isinstance(one, str) else repr(one) for one in given)
    return {"supervisors": spelt, "train": None if training is None else training.fingerprint}
