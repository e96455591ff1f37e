"""A test kit for supervisors: the contract of `Supervisor`, checked on synthetic observations.

    from secondguess import check_supervisor
    check_supervisor(MyScore())          # raises AssertionError with the reason, or returns the checks that passed

The kit needs no model and no data: it makes an observation that holds what the supervisor `needs`, with four well
separated classes, and a second one on which any sensible score should be higher (flat probabilities, traces far from
every class, dropout samples that disagree, images of noise).
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from secondguess.contracts.kit import Kit, check_name, check_parameters, refuses, require, run_checks
from secondguess.errors import UserError
from secondguess.model.needs import Needs
from secondguess.model.observation import Observation
from secondguess.supervisors.base import Supervisor

__all__ = ["check_supervisor", "degenerate_observations", "example_observation"]

CLASSES = 4
Scores = NDArray[np.float64]


def check_supervisor(supervisor: Supervisor | type[Supervisor], *, images: int = 240, seed: int = 0) -> list[str]:
    """Check a supervisor against the contract.

    Args:
        supervisor: an instance, whose parameters are used, or a class that can be made without arguments.
        images: how many images the synthetic observations hold.
        seed: of the synthetic observations.

    Returns:
        The names of the checks that passed, which are all of them.

    Raises:
        AssertionError: naming the check that failed and what was seen.
    """
    given = supervisor() if isinstance(supervisor, type) else supervisor
    if not isinstance(given, Supervisor):
        raise AssertionError(f"{given!r} is not a secondguess.Supervisor")
    kit = _Kit(
        given,
        nominal=example_observation(given.needs, images, seed=seed),
        suspicious=example_observation(given.needs, images, seed=seed + 1, suspicious=True),
        labels=_classes(images),
    )
    return run_checks(kit, CHECKS)


def example_observation(needs: Needs, images: int, *, seed: int = 0, suspicious: bool = False) -> Observation:
    """A synthetic observation of four classes that holds what `needs` asks for; its arrays are read-only."""
    from secondguess.images import ImageSet

    rng = np.random.default_rng(seed)
    truth = _classes(images)
    one_hot = np.eye(CLASSES)[truth]

    def logits(spread: float) -> NDArray[np.float32]:
        noise = rng.normal(0, spread, (images, CLASSES))
        return (0.1 * noise if suspicious else 6 * one_hot + noise).astype(np.float32)

    def trace(width: int = 12) -> NDArray[np.float32]:
        centres = np.random.default_rng(12345).normal(0, 4, (CLASSES, width))  # the same whatever the seed
        far = rng.normal(0, 40, (images, width))
        near = centres[truth] + rng.normal(0, 1, (images, width))
        found = (far if suspicious else near).astype(np.float32)
        return np.concatenate([found, scores], axis=1) if needs.logits else found  # logits are linear in the traces

    def samples(count: int) -> NDArray[np.float32]:
        votes = np.eye(CLASSES)[rng.integers(0, CLASSES, (images, count))] if suspicious else one_hot[:, None, :]
        return _softmax(5 * votes + rng.normal(0, 0.3, (images, count, CLASSES))).astype(np.float32)

    def pixels() -> NDArray[np.float32]:
        templates = np.kron(np.eye(CLASSES).reshape(CLASSES, 1, 2, 2), np.ones((1, 1, 4, 4)))
        noise = rng.random((images, 1, 8, 8))
        return (noise if suspicious else 0.9 * templates[truth] + 0.1 * noise).astype(np.float32)

    scores = logits(0.5)
    observation = Observation(
        probabilities=_softmax(scores.astype(np.float64)),
        logits=scores if needs.logits else None,
        traces={wanted: trace() for wanted in sorted(needs.traces)},
        samples=samples(needs.samples) if needs.samples else None,
        images=ImageSet.from_arrays(pixels()).images if needs.images else None,
    )
    arrays = [
        observation.probabilities,
        observation.logits,
        observation.samples,
        *observation.traces.values(),
    ]
    for array in arrays:
        if array is not None:
            array.setflags(write=False)
    return observation


def degenerate_observations(seen: Observation) -> dict[str, Observation]:
    """The same images seen by a model whose softmax says nothing: saturated, all zeros and ones, tied, constant."""
    truth = _classes(len(seen))
    noise = np.random.default_rng(2).normal(0, 100, (len(seen), CLASSES))
    sure = 300 * np.eye(CLASSES)[truth] + noise
    kinds = {
        "saturated": sure,
        "exact": 1e4 * np.eye(CLASSES)[sure.argmax(axis=1)],
        "tied": np.where(np.eye(CLASSES)[truth] + np.eye(CLASSES)[(truth + 1) % CLASSES] > 0, 2.0, 0.0),
        "constant": np.tile(np.linspace(0.0, 2.0, CLASSES), (len(seen), 1)),
    }
    found = {}
    for name, values in kinds.items():
        logits = values.astype(np.float32)
        probabilities = _softmax(logits.astype(np.float64))
        changes: dict[str, object] = {"probabilities": probabilities}
        if seen.logits is not None:
            changes["logits"] = logits
        if seen.samples is not None:
            changes["samples"] = np.repeat(probabilities[:, None].astype(np.float32), seen.samples.shape[1], axis=1)
        if name == "constant":
            changes["traces"] = {trace: np.ones_like(values) for trace, values in seen.traces.items()}
        found[name] = seen.replace(**changes)
    return found


@dataclass
class _Kit(Kit[Supervisor]):
    nominal: Observation
    suspicious: Observation
    labels: NDArray[np.int64]

    def fresh(self) -> Supervisor:
        return self.given.clone().fit(self.nominal, self.labels)


def check_shape_and_type(kit: _Kit) -> None:
    """`fit` returns self; scores are (n,) float64 without NaN."""
    supervisor = kit.given.clone()
    require(supervisor.fit(kit.nominal, kit.labels) is supervisor, "fit() must return the supervisor itself")
    scores = supervisor.score(kit.nominal)
    wanted = (len(kit.nominal),)
    require(
        scores.dtype == np.float64 and scores.shape == wanted,
        f"score() returned {scores.dtype} of shape {scores.shape}, not float64 of shape {wanted}",
    )


def check_sign(kit: _Kit) -> None:
    """Larger = more suspicious: odd images score higher than ordinary ones."""
    supervisor = kit.fitted
    nominal, suspicious = supervisor.score(kit.nominal), supervisor.score(kit.suspicious)
    above = (suspicious[:, None] > nominal).mean() + 0.5 * (suspicious[:, None] == nominal).mean()
    require(
        bool(above > 0.5),
        f"suspicious images score higher than nominal ones in {above:.0%} of pairs: is the sign flipped?",
    )


def check_determinism(kit: _Kit) -> None:
    """The same observation gives the same scores, from one fit and from two."""
    supervisor = kit.fitted
    first = supervisor.score(kit.suspicious)
    require(np.array_equal(first, supervisor.score(kit.suspicious)), "scoring twice gave different scores")
    require(
        _close(first, kit.fresh().score(kit.suspicious)),
        "fitting twice gave different scores: take a seed parameter",
    )


def check_batch_size(kit: _Kit) -> None:
    """A score depends on its own image alone, not on which others are scored beside it."""
    supervisor = kit.fitted
    whole = supervisor.score(kit.suspicious)
    for size in (1, 7):
        rows = [slice(start, start + size) for start in range(0, len(whole), size)]
        parts = np.concatenate([supervisor.score(kit.suspicious.take(row)) for row in rows])
        require(_close(whole, parts), f"scores in batches of {size} differ from scores of the whole set")


def check_permutation(kit: _Kit) -> None:
    """Shuffled images give shuffled scores."""
    supervisor = kit.fitted
    order = np.random.default_rng(0).permutation(len(kit.suspicious))
    shuffled = supervisor.score(kit.suspicious.take(order))
    require(_close(supervisor.score(kit.suspicious)[order], shuffled), "shuffling the images changed their scores")


def check_score_few(kit: _Kit) -> None:
    """`score_few` gives what `score` gives, on one image, on a few and on many, in float64."""
    supervisor = kit.fitted
    for observation in (kit.nominal, kit.suspicious):
        whole = supervisor.score(observation)
        for rows in _some_rows(len(observation)):
            few = supervisor.score_few(observation.take(rows))
            require(few.dtype == np.float64, f"score_few() returned {few.dtype}, not float64")
            require(_alike(whole, rows, few), f"score_few() differs from score() on {len(rows)} images")


def check_graph(kit: _Kit) -> None:
    """`graph`, where there is one, gives what `score` gives, on one image, on a few and on many, in float64."""
    if not kit.given.has_graph():
        return
    import torch

    from secondguess.supervisors.graph import tensors_of

    try:
        graph = kit.fitted.graph()
    except UserError:
        return  # not with these parameters
    except Exception as error:
        raise AssertionError(f"_graph() failed with {_said(error)}") from error
    for observation in (kit.nominal, kit.suspicious):
        whole = kit.fitted.score(observation)
        for rows in _some_rows(len(observation)):
            count = f"{len(rows)} image{'s' if len(rows) > 1 else ''}"
            try:
                with torch.inference_mode():
                    scores = graph(tensors_of(observation.take(rows)))
            except Exception as error:
                raise AssertionError(f"the graph failed on {count} with {_said(error)}") from error
            require(
                isinstance(scores, torch.Tensor), f"the graph returned a {type(scores).__name__}, not a tensor (n,)"
            )
            require(
                scores.dtype == torch.float64,
                f"the graph returned {scores.dtype}; return float64, as what it is given: `.double()`",
            )
            require(
                tuple(scores.shape) == (len(rows),),
                f"the graph returned the shape {tuple(scores.shape)} for {count}; return one score per image, "
                f"({len(rows)},)",
            )
            found = scores.numpy()
            if not _alike(whole, rows, found):
                worst = int(np.abs(found - whole[rows]).argmax())
                raise AssertionError(
                    f"the graph differs from score() on {count}: it gives {found[worst]:.6g} where score() gives "
                    f"{whole[rows][worst]:.6g}"
                )


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def check_refit(kit: _Kit) -> None:
    """A second fit forgets the first."""
    fresh, used = kit.fitted, kit.given.clone()
    half = slice(0, len(kit.nominal) // 2)
    used.fit(kit.nominal.take(half), kit.labels[half])
    used.fit(kit.nominal, kit.labels)
    require(_close(fresh.score(kit.suspicious), used.score(kit.suspicious)), "state of an earlier fit was kept")


def check_parts(kit: _Kit) -> None:
    """One that learns from merged statistics learns from parts what it learns from all images at once."""
    if not (kit.given.requires_fit and kit.given.merges()):
        return
    from secondguess.supervisors.shards import fit_in_shards

    seen, third = kit.nominal.replace(labels=kit.labels), len(kit.nominal) // 3
    parts = [seen.take(rows) for rows in (slice(0, third), slice(third, third + 1), slice(third + 1, None))]
    scores = fit_in_shards([kit.given], parts)[0].score(kit.suspicious)
    require(_close(kit.fitted.score(kit.suspicious), scores), "fitted from parts it scores differently")


def check_save_and_load(kit: _Kit) -> None:
    """What is saved and loaded scores the same, from a file without pickles."""
    supervisor = kit.fitted
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "supervisor.safetensors"
        supervisor.save(path)
        loaded = type(supervisor).load(path)
    require(loaded.params() == supervisor.params(), "a parameter changed on the way")
    same = _close(supervisor.score(kit.suspicious), loaded.score(kit.suspicious))
    require(same, "the loaded one scores differently")


def check_degenerate(kit: _Kit) -> None:
    """A softmax that says nothing is scored without NaN, by one that knew better and by one that was fitted on it."""
    needs = kit.given.needs
    if needs.images and not (needs.logits or needs.traces or needs.samples):
        return  # it looks at the images alone
    for name, seen in degenerate_observations(kit.nominal).items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # empty classes and divisions by zero may well be met on the way
            judges = [kit.fitted]
            with suppress(UserError):  # it says that nothing can be learnt from this
                judges.append(kit.given.clone().fit(seen, kit.labels))
            for judge in judges:
                try:
                    judge.score(seen)
                except (UserError, ValueError) as error:
                    raise AssertionError(f"probabilities that are {name} cannot be scored: {error}") from error


def check_bad_input(kit: _Kit) -> None:
    """Missing parts, empty sets, too early calls and wrong label counts are `UserError`s, not crashes."""
    supervisor = kit.fitted
    refuses(lambda: supervisor.score(kit.nominal.take(slice(0, 0))), "an empty observation")
    refuses(lambda: supervisor.fit(kit.nominal, kit.labels[:-1]), "a label too few")
    bare = kit.nominal.replace(logits=None, traces={}, samples=None, images=None)
    needs = supervisor.needs
    if needs.logits or needs.traces or needs.samples or needs.images:
        refuses(lambda: supervisor.score(bare), "an observation without what it needs")
    if supervisor.requires_fit:
        refuses(lambda: kit.given.clone().score(kit.nominal), "scoring before fitting")


CHECKS: tuple[Callable[[_Kit], None], ...] = (
    check_name,
    check_parameters,
    check_shape_and_type,
    check_sign,
    check_determinism,
    check_batch_size,
    check_permutation,
    check_score_few,
    check_graph,
    check_refit,
    check_parts,
    check_save_and_load,
    check_degenerate,
    check_bad_input,
)


def _close(first: Scores, second: Scores) -> bool:
    return bool(np.allclose(first, second, rtol=1e-5, atol=1e-7))


def _alike(whole: Scores, rows: NDArray[np.int64], found: Scores) -> bool:
    """Whether scores of some rows are those of the whole set, to the four digits that single precision may leave."""
    finite = whole[np.isfinite(whole)]
    spread = float(finite.std()) if len(finite) else 1.0
    return bool(np.allclose(whole[rows], found, rtol=1e-4, atol=1e-4 * spread))


def _some_rows(count: int) -> list[NDArray[np.int64]]:
    """One image, a few in another order, and all of them."""
    few = np.random.default_rng(1).permutation(count)[:7]
    return [few[:1], few, np.arange(count)]


def _classes(images: int) -> NDArray[np.int64]:
    return np.arange(images, dtype=np.int64) % CLASSES


def _softmax(values: NDArray[np.float64]) -> NDArray[np.float64]:
    exp = np.exp(values - values.max(axis=-1, keepdims=True))
    return np.asarray(exp / exp.sum(axis=-1, keepdims=True))
