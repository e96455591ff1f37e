"""Decoding in threads and reading ahead give what reading one by one gives, in bounded memory."""

from __future__ import annotations

import threading
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import secondguess as sg
from secondguess import Classifier, ImageSet, Observation, load_images
from secondguess.accuracy.oracles.icos.features import feature_matrix
from secondguess.images import parallel, scratch
from secondguess.images.decode import BadImage, decode
from secondguess.images.fitting import fit_image
from secondguess.images.parallel import in_parallel, read_ahead
from secondguess.images.sources import Source
from secondguess.stress import Corrupted, Invalid
from secondguess.stress.ambiguous import PixelBlend


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("photos")
    rng = np.random.default_rng(0)
    for label in ("cat", "dog"):
        (root / label).mkdir()
        for number in range(20):
            picture = Image.fromarray(rng.integers(0, 256, (40, 50, 3), dtype=np.uint8))
            picture.save(root / label / f"{number:02}.jpg")
    return root


def test_threads_decode_what_one_would(folder: Path) -> None:
    images = load_images(folder, size=32)
    files = sorted(folder.rglob("*.jpg"))
    one_by_one = np.stack([fit_image(decode(file, "x"), (3, 32, 32), "stretch") for file in files])
    np.testing.assert_array_equal(images.materialise(), one_by_one)
    np.testing.assert_array_equal(images.images[np.array([31, 3, 3])], one_by_one[[31, 3, 3]])


def test_the_first_bad_image_in_order_is_named(folder: Path, tmp_path: Path) -> None:
    for number, file in enumerate(sorted(folder.rglob("*.jpg"))):
        content = file.read_bytes()
        (tmp_path / f"{number:02}.jpg").write_bytes(content[:-300] if number in (7, 30) else content)
    images = load_images(tmp_path, size=32, channels=3)
    with pytest.raises(BadImage, match=r"07\.jpg"):
        images.materialise()
    left = load_images(tmp_path, size=32, channels=3, skip_bad=True)
    assert [Path(name).name for name in left.skipped] == ["07.jpg", "30.jpg"] and len(left) == 38


def test_results_keep_their_order_and_few_are_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel.os, "cpu_count", lambda: 4)
    taken: list[int] = []

    def arguments() -> Any:
        for number in range(100):
            taken.append(number)
            yield (number,)

    def slow(number: int) -> int:
        time.sleep(0.002 * (number % 3))
        return number

    found = in_parallel(slow, arguments())
    assert next(found) == 0
    assert len(taken) <= 4 * parallel.WAITING + 1, "not everything is taken at once"
    assert list(found) == list(range(1, 100))


class Counting(Source):
    """Images of zeros that say which were read, and by whom."""

    def __init__(self, slow: bool) -> None:
        self.shape, self.slow = (1, 4, 4), slow
        self.read: list[int] = []
        self.threads: set[str] = set()

    def __len__(self) -> int:
        return 25

    def _read(self, rows: Any) -> Any:
        self.threads.add(threading.current_thread().name)
        self.read.append(rows.start)
        return np.full((rows.stop - rows.start, 1, 4, 4), rows.start, dtype=np.float32)


@pytest.mark.parametrize("slow", [False, True])
def test_at_most_one_batch_is_read_ahead(slow: bool) -> None:
    source = Counting(slow)
    for number, (rows, images) in enumerate(read_ahead(source, 10)):
        assert len(images) == rows.stop - rows.start and (images == rows.start).all()
        assert len(source.read) <= number + 1 + slow
    assert source.read == [0, 10, 20]
    assert any(name.startswith("secondguess-ahead") for name in source.threads) == slow


def test_a_large_array_lies_in_a_file_without_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not isinstance(scratch.scratch((10, 10), np.uint8, tmp_path), np.memmap)
    monkeypatch.setattr(scratch, "IN_MEMORY", 99)
    large = scratch.scratch((10, 10), np.uint8, tmp_path / "new")
    assert isinstance(large, np.memmap) and large.shape == (10, 10)
    large[:] = 7
    assert (large == 7).all() and list((tmp_path / "new").iterdir()) == []


class Waves(Source):
    """As many images as wanted that nobody holds; each depends on its position alone."""

    def __init__(self, count: int, side: int) -> None:
        self.shape, self._count = (3, side, side), count

    def __len__(self) -> int:
        return self._count

    def _read(self, rows: Any) -> Any:
        places = np.arange(self._count)[rows].astype(np.float32)
        grid = np.linspace(0, 6, self.shape[1], dtype=np.float32)
        one = np.sin(
            grid[None, :, None] * (1 + places[:, None, None] % 7) + grid[None, None, :] + places[:, None, None]
        )
        return np.repeat((0.5 + 0.5 * one)[:, None], 3, axis=1).astype(np.float32)


def waves(count: int, side: int, name: str = "waves") -> ImageSet:
    return ImageSet(Waves(count, side), np.arange(count) % 4, ("a", "b", "c", "d"), name=name)


def simple(batch: np.ndarray) -> np.ndarray:
    return 5 * batch[:, 0, :4, :8].mean(axis=2)


WORK: dict[str, Callable[[ImageSet, Path], Any]] = {
    "observe": lambda images, _: Classifier(simple, batch_size=32, output_kind="logits").observe(images),
    "corrupted": lambda images, folder: Corrupted(["contrast"]).make(images, folder=folder),
    "blend": lambda images, _: PixelBlend(pairs=[(0, 1)]).generate(images, len(images)),
    "textures": lambda images, _: Invalid("textures").make(images),
    "pixel features": lambda images, _: feature_matrix(Observation(np.full((len(images), 4), 0.25), images=images), 32),
    "fingerprint": lambda images, _: images.fingerprint,
}


@pytest.mark.parametrize("work", list(WORK))
def test_nothing_holds_all_pixels(work: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More images take hardly more memory."""
    monkeypatch.setattr(scratch, "IN_MEMORY", 1 << 20)
    peaks = []
    side = 128
    for count in (8, 200, 500):  # the first time imports are counted, too
        images = waves(count, side)
        tracemalloc.start()
        try:
            _ = WORK[work](images, tmp_path)
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    more = 300 * 4 * 3 * side * side
    assert peaks[2] - peaks[1] < 0.1 * more, f"{peaks[2] - peaks[1]:,} bytes more for {more:,} bytes of pixels"


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_an_audit_of_5000_images_of_224_pixels(tmp_path: Path) -> None:
    """The bound of docs/evidence/scaling.md: 1 GiB, where the pixels would take 3 GB as floats and 750 MB as bytes."""
    tracemalloc.start()
    try:
        result = sg.audit(
            Classifier(simple, version="1", batch_size=32, output_kind="logits"),
            waves(5000, 224),
            train=waves(2000, 224, "train"),
            folder=tmp_path,
            supervisors=["max_softmax", "entropy", "max_logit"],
            stress=["ambiguous_blend", "corrupted:contrast", "invalid:textures"],
            minutes=None,
        )
        held = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert not result.failed and held < 1 << 30
