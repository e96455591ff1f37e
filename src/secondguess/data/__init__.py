"""Images with labels from anywhere, read a few at a time.

`load("mnist5k")` or `load("photos/")` gives a `Dataset` of one or two `ImageSet`s. Images are float32 (n, C,
H, W) in [0, 1]; labels are int64 (n,), -1 where unknown, with float64 (n, K) beside them where the truth is
soft.
"""

from secondguess.data.dataset import Dataset
from secondguess.data.fitting import conform
from secondguess.data.image_set import ImageSet
from secondguess.data.loading import load, load_images, names
from secondguess.data.save import save_npz, save_parquet
from secondguess.data.sources import ImageSource

__all__ = [
    "Dataset",
    "ImageSet",
    "ImageSource",
    "conform",
    "load",
    "load_images",
    "names",
    "save_npz",
    "save_parquet",
]
