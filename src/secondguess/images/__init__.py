"""Images with labels from anywhere, read a few at a time.

`load("mnist5k")` or `load("photos/")` gives a `Dataset` of one or two `ImageSet`s. Images are float32 (n, C,
H, W) in [0, 1]; labels are int64 (n,), -1 where unknown, with float64 (n, K) beside them where the truth is
soft.
"""

from secondguess.images.batches import as_batch, as_source, read
from secondguess.images.dataset import Dataset
from secondguess.images.fitting import conform
from secondguess.images.image_set import ImageSet
from secondguess.images.loading import as_image_set, check_loading, load, load_images, names
from secondguess.images.save import save_npz, save_parquet
from secondguess.images.sources import ImageSource

__all__ = [
    "Dataset",
    "ImageSet",
    "ImageSource",
    "as_batch",
    "as_image_set",
    "as_source",
    "check_loading",
    "conform",
    "load",
    "load_images",
    "names",
    "read",
    "save_npz",
    "save_parquet",
]
