"""`as_image_set`: whatever a user calls images, as one set."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from secondguess.errors import UserError
from secondguess.images import ImageSet, as_image_set, load, save_npz


def test_sets_and_data_sets_are_passed_through() -> None:
    digits = load("digits")
    assert as_image_set(digits.test) is digits.test
    assert as_image_set(digits) is digits.test


def test_a_path_is_loaded_as_the_options_say_and_keeps_its_name(tmp_path: Path) -> None:
    save_npz(load("digits").test.head(5), tmp_path / "few.npz")
    found = as_image_set(tmp_path / "few.npz", size=4)
    assert (len(found), found.shape, found.name) == (5, (1, 4, 4), str(tmp_path / "few.npz"))
    assert as_image_set("digits").name == "digits"
    with pytest.raises(UserError, match="nowhere"):
        as_image_set("nowhere.npz")


def test_arrays_and_pictures_become_unlabelled_images() -> None:
    levels = np.arange(3 * 8 * 8, dtype=np.uint8).reshape(3, 8, 8)
    from_array = as_image_set(levels, (1, 8, 8))
    from_pictures = as_image_set([Image.fromarray(one) for one in levels], (1, 8, 8))
    for found in (from_array, from_pictures):
        assert isinstance(found, ImageSet) and not found.is_labelled
        np.testing.assert_allclose(found.materialise()[:, 0], levels / 255, atol=1e-6)
