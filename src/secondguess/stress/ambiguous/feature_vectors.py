"""Feature vectors of images, for the distances between real and generated images in `secondguess.metrics`.

By default they are what the last layer of a small classifier sees that was trained on the data set in question: that
works offline, on small images, and represents what distinguishes these classes. Inception features, which the
literature reports, are made for photographs of 299 pixels per side; they are used where torchmetrics, torch-fidelity
and the weights are on this machine, and nothing is ever downloaded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from secondguess.errors import UserError, require
from secondguess.images import ImageSet
from secondguess.model.classifier import Classifier
from secondguess.model.needs import PENULTIMATE, Needs, Trace
from secondguess.progress import Progress, Silent, Titled

__all__ = ["features", "train_extractor"]

Floats = NDArray[np.float64]
Extractor = Literal["classifier", "inception"] | str | Classifier | Callable[[NDArray[np.float32]], Any]

SMALLEST = 16  # pixels per side; LeNet's two unpadded convolutions need as many
EPOCHS = 5
BLOCK = 256
INCEPTION = "weights-inception-2015-12-05-6726825d.pth"  # what torch-fidelity calls the file


def features(
    images: ImageSet,
    extractor: Extractor = "classifier",
    *,
    train: ImageSet | None = None,
    seed: int = 0,
    device: str = "auto",
    progress: Progress | None = None,
) -> Floats:
    """Return one feature vector for each image, (n, d).

    Args:
        images: real or generated ones.
        extractor: `"classifier"` trains a small one on `train` (to use it again for other images, train it with
            `train_extractor` and pass it); a `Classifier`, of which the input of the last layer counts; a function of
            images (m, C, H, W) in [0, 1] that returns (m, d); `"inception"`, or `"inception:FILE"` with its weights.
        train: labelled images of the data set, for `"classifier"`.
        seed: of the training.
        device: where to compute.
        progress: where to report.
    """
    if isinstance(extractor, str):
        if extractor == "classifier":
            if train is None:
                raise UserError("Features of a classifier need labelled images to train it on; give them with train.")
            extractor = train_extractor(train, seed=seed, device=device, progress=progress)
        elif extractor.partition(":")[0] == "inception":
            extractor = _inception(extractor.partition(":")[2], device)
        else:
            raise UserError(f"There is no extractor {extractor!r}; there is 'classifier' and 'inception'.")
    if isinstance(extractor, Classifier):
        trace = Trace(PENULTIMATE, "flatten")
        titled = Titled(progress or Silent(), "Extracting features")
        seen = extractor.observe(images, Needs(traces=frozenset({trace})), progress=titled)
        return np.asarray(seen.traces[trace], dtype=np.float64)
    rows = [np.asarray(extractor(part), dtype=np.float64) for part, _ in images.batches(BLOCK)]
    if any(part.ndim != 2 for part in rows) or sum(map(len, rows)) != len(images):
        raise UserError(f"The extractor returned {rows[0].shape}; it must return one row for each image, (m, d).")
    return np.concatenate(rows)


def train_extractor(
    train: ImageSet,
    *,
    leave_out: Sequence[int] = (),
    epochs: int = EPOCHS,
    seed: int = 0,
    device: str = "auto",
    progress: Progress | None = None,
) -> Classifier:
    """Train a small classifier whose last hidden layer gives features: LeNet (84), dense layers for tiny images.

    Args:
        train: labelled images of at least two classes.
        leave_out: classes that it must not learn. The last layer of a classifier keeps its own classes apart, and an
            image between two of them is far from all real ones there, however realistic it is. To judge how real
            ambiguous images are, leave out the classes they lie between, if at least two others remain.
        epochs: passes over them.
        seed: of initialisation and shuffling.
        device: where to train.
        progress: where to report.
    """
    from secondguess import zoo
    from secondguess.training import train as fit

    rows = np.flatnonzero((train.labels >= 0) & ~np.isin(train.labels, list(leave_out)))
    if len(np.unique(train.labels[rows])) < 2:
        raise UserError(f"{train.name} has labels of fewer than two classes; features need a classifier of some.")
    known = train if len(rows) == len(train) else train.take(rows)
    name = "lenet" if min(train.shape[1:]) >= SMALLEST else "fully_connected"
    model = zoo.make(name, num_classes=train.num_classes, input_shape=train.shape, seed=seed)
    fit(
        model,
        known.images,
        known.labels,
        epochs=epochs,
        seed=seed,
        device=device,
        progress=Titled(progress or Silent(), "Training an extractor of features"),
    )
    return Classifier(
        model, class_names=train.class_names, name="feature extractor", device=device, output_kind="logits"
    )


def _inception(weights: str, device: str) -> Callable[[NDArray[np.float32]], Floats]:
    """The pooled features (m, 2048) of Inception v3, as torch-fidelity has it."""
    import torch

    from secondguess.devices import pick_device

    file = Path(weights) if weights else Path(torch.hub.get_dir()) / "checkpoints" / INCEPTION
    if not file.is_file():
        raise UserError(
            f"Inception's weights are not at {file}; give torch-fidelity's file {INCEPTION} as 'inception:FILE', "
            "or use the features of a classifier."
        )
    require("torch_fidelity", "inception")
    module = require("torchmetrics.image.fid", "inception")
    where = pick_device(device)
    network = module.NoTrainInceptionV3("inception-v3-compat", ["2048"], str(file)).to(where)

    def extract(images: NDArray[np.float32]) -> Floats:
        levels = torch.from_numpy(np.rint(images * 255).astype(np.uint8)).to(where)
        colour = levels if levels.shape[1] == 3 else levels[:, :1].expand(-1, 3, -1, -1)
        with torch.no_grad():
            return np.asarray(network(colour).cpu(), dtype=np.float64)

    return extract
