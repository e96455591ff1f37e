"""A folder that is watched: what counts as an image in it."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from secondguess import Classifier
from secondguess.accuracy.watched_folder import WatchedFolder, check_images, holds_images
from secondguess.images import ImageSet
from secondguess.images.decode import BadImage
from secondguess.progress import Silent


def test_a_link_within_the_folder_is_not_another_image(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    (folder / "sub").mkdir(parents=True)
    for name in ("b.png", "sub/c.png"):
        Image.fromarray(np.full((4, 4), 100, dtype=np.uint8)).save(folder / name)
    (folder / "a.png").symlink_to("b.png")
    (folder / "z.png").symlink_to("sub/c.png")
    (folder / "sub" / "y.png").symlink_to("c.png")
    like = ImageSet.from_arrays(np.zeros((2, 4, 4), dtype=np.uint8), np.array([0, 1]))
    classifier = Classifier(lambda images: images.reshape(len(images), -1)[:, :2], output_kind="logits")
    watched = WatchedFolder(folder, classifier, like)
    assert watched.scan(Silent())
    assert watched.observation().images.ids == ("b.png", "sub/c.png")
    (folder / "b.png").rename(folder / "d.png")  # now the first link leads nowhere
    (folder / "a.png").unlink()
    assert watched.scan(Silent())
    assert watched.observation().images.ids == ("d.png", "sub/c.png")


def test_an_image_that_was_replaced_since_the_scan_is_not_taken_for_the_observed_one(tmp_path: Path) -> None:
    for name, grey in (("a.png", 100), ("b.png", 200)):
        Image.fromarray(np.full((4, 4), grey, dtype=np.uint8)).save(tmp_path / name)
    like = ImageSet.from_arrays(np.zeros((2, 4, 4), dtype=np.uint8), np.array([0, 1]))
    classifier = Classifier(lambda images: images.reshape(len(images), -1)[:, :2], output_kind="logits")
    watched = WatchedFolder(tmp_path, classifier, like)
    watched.scan(Silent())
    Image.fromarray(np.zeros((4, 4), dtype=np.uint8)).save(tmp_path / "b.png")
    os.utime(tmp_path / "b.png", (1, 1))
    assert watched.observation().images.ids == ("a.png",)
    os.utime(tmp_path / "a.png", (1, 1))
    with pytest.raises(BadImage, match="have changed since they were observed"):
        watched.observation()
    assert watched.scan(Silent())
    assert float(watched.observation().pixels[1].max()) == 0


def test_what_is_named_like_an_image_counts_as_one_even_where_nothing_can_be_read(tmp_path: Path) -> None:
    """So that it is named, where a folder of nothing would only be said to be empty."""
    folder = tmp_path / "in"
    assert not holds_images(folder)
    folder.mkdir()
    (folder / "notes.txt").write_text("none")
    assert not holds_images(folder)
    check_images(folder)
    (folder / "gone.png").symlink_to(tmp_path / "nowhere.png")
    assert holds_images(folder)
    with pytest.raises(BadImage, match=r"gone\.png is not a file within the folder .*; put a copy there"):
        check_images(folder)


def test_headers_are_looked_at_and_nothing_is_decoded(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    noise = np.random.default_rng(0).integers(0, 256, (64, 64), dtype=np.uint8)
    for name in ("a.png", "sub/b.jpg"):
        Image.fromarray(noise).save(tmp_path / name)
    whole = (tmp_path / "sub/b.jpg").read_bytes()
    (tmp_path / "sub/b.jpg").write_bytes(whole[: len(whole) // 2])  # cut off; only decoding it would show that
    check_images(tmp_path)
    for content in (b"", whole[:10], b"GIF, says somebody"):
        (tmp_path / "sub/b.jpg").write_bytes(content)
        with pytest.raises(BadImage, match=r"sub/b\.jpg could not be read"):
            check_images(tmp_path)
