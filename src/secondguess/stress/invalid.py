"""Invalid images: pictures of something else altogether. No class is right, so every label is -1.

They come from another data set, from a formula, or from the nominal images, changed beyond recognition:

    textures   noise, gratings, checkerboards and blobs: no object, and artificial statistics
    shuffled   nominal images whose patches have changed places: the same pixels, but no object
    inverted   1 - v, for classes that an inversion destroys

The default, `mixed`, takes equal shares of `photos`, `textures` and `shuffled`, so that no shallow rule, such as a
threshold on the mean grey level, separates them all from nominal images (see `docs/adversarial.md`). Inverted images
are not in the mix, because an inverted shirt is still a shirt.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from secondguess.stress.base import Given, StressSet
from secondguess.stress.patches import count_patches, shuffle_patches
from secondguess.stress.registry import register
from secondguess.stress.textures import TEXTURES, texture

if TYPE_CHECKING:
    from secondguess.images import ImageSet, ImageSource

__all__ = ["GENERATED", "MIX", "MIXED", "Invalid"]

MIXED = "mixed"
MIX = ("photos", "textures", "shuffled")


@register
class Invalid(StressSet):
    """Images that show nothing the classifier knows: in the shape of the nominal ones, and at most as many.

    The column `source` says what an image is; among `textures`, which texture.

    Args:
        source: `mixed`, `textures`, `shuffled`, `inverted`, or what `secondguess.images.load_images` takes: `photos`,
            `digits`, `mnist5k`, or best a folder of your own (`./textures` if it is called like one of these). Whether
            the images are invalid depends on the classifier: patches of photographs are invalid for a classifier of
            digits, less so for one of holiday pictures.
    """

    kind = "invalid"
    name = "invalid"
    groups = "source"

    def __init__(self, source: str = MIXED) -> None:
        self.source = source
        self.name = f"invalid_{source}" if source in GENERATED else "invalid"

    @classmethod
    def by_name(cls, detail: str) -> dict[str, Any]:
        """What follows the name is the source."""
        return {"source": detail} if detail else {}

    def _make(self, given: Given) -> ImageSet:
        nominal, seed = given.nominal, given.seed
        made = _mixed(nominal, seed) if self.source == MIXED else _part(self.source, nominal, seed)
        return replace(made, name=f"{self.source}, as invalid {nominal.name}")


def _mixed(nominal: ImageSet, seed: int) -> ImageSet:
    """The parts of the mix, taking turns; the smallest limits them all, so that their shares stay equal."""
    from secondguess.stress.generated import alternate

    # By their full name: somebody's own folder may be called photos, too.
    parts = [_part(name if name in GENERATED else f"embedded:{name}", nominal, seed) for name in MIX]
    count = min(len(nominal), len(MIX) * min(map(len, parts)))
    share = -(-count // len(MIX))
    sources = [part.head(share, seed=seed).images for part in parts]
    return _unlabelled(alternate(sources, count), np.resize(MIX, count), nominal)


def _part(name: str, nominal: ImageSet, seed: int) -> ImageSet:
    if name in GENERATED:
        return GENERATED[name](nominal, seed)
    from secondguess.images import conform, load_images

    other = conform(load_images(name), nominal.shape)
    other = other.head(len(nominal), seed=seed)
    return _unlabelled(other.images, np.full(len(other), name), nominal, ids=other.ids)


def _textures(nominal: ImageSet, seed: int) -> ImageSet:
    """The textures in turns; each image has its own seed."""
    from secondguess.stress.generated import GeneratedSource

    kinds = np.resize(list(TEXTURES), len(nominal))

    def make(positions: NDArray[np.int64]) -> NDArray[np.float32]:
        return np.stack(
            [texture(kinds[row], nominal.shape, np.random.default_rng([seed, int(row)])) for row in positions]
        )

    return _unlabelled(GeneratedSource(len(nominal), nominal.shape, make), kinds, nominal)


def _shuffled(nominal: ImageSet, seed: int) -> ImageSet:
    from secondguess.stress.generated import GeneratedSource

    keys = np.random.default_rng(seed).random((len(nominal), count_patches(nominal.shape[1:])))

    def make(positions: NDArray[np.int64]) -> NDArray[np.float32]:
        return shuffle_patches(nominal.images[positions], keys[positions])

    source = GeneratedSource(len(nominal), nominal.shape, make)
    return _unlabelled(source, np.full(len(nominal), "shuffled"), nominal, ids=nominal.ids)


def _inverted(nominal: ImageSet, seed: int) -> ImageSet:
    from secondguess.stress.generated import GeneratedSource

    source = GeneratedSource(len(nominal), nominal.shape, lambda positions: 1 - nominal.images[positions])
    return _unlabelled(source, np.full(len(nominal), "inverted"), nominal, ids=nominal.ids)


GENERATED: dict[str, Callable[[ImageSet, int], ImageSet]] = {
    "textures": _textures,
    "shuffled": _shuffled,
    "inverted": _inverted,
}


def _unlabelled(
    images: ImageSource, kinds: NDArray[Any], nominal: ImageSet, *, ids: Sequence[str] | None = None
) -> ImageSet:
    """A set of images to which none of the nominal classes applies."""
    from secondguess.images import ImageSet

    return ImageSet.from_source(
        images,
        np.full(len(images), -1, dtype=np.int64),
        class_names=nominal.class_names,
        ids=ids,
        columns={"source": kinds},
    )
