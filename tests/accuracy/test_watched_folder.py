"""A folder that is watched: what counts as an image in it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from secondguess import Classifier
from secondguess.accuracy.watched_folder import WatchedFolder
from secondguess.images import ImageSet
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
