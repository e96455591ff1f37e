"""How real are companion images in features that know nothing of their classes?

    python companion_sets.py mnist.npz --classes 9,8 --keep kept/mnist --out mnist.json
    python companion_spaces.py mnist.npz --classes 9,8 --kept kept/mnist --photos cifar10.npz --out spaces.json

The folder may be that of companion_runs.py, too: sets of run 2 are then compared with stage 1 of run 2.

The literature reports Fréchet distances in features of Inception, a network trained on photographs. Its weights
are not at hand; a small classifier of photographs, in grey and at the size of the images, stands in for it. Beside it,
pixels on their first 32 principal components. Both see strokes and textures, and no boundary between two digits.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import numpy as np
from sklearn.decomposition import PCA

from secondguess import ImageSet, load
from secondguess.images import load_images
from secondguess.images.fitting import conform
from secondguess.metrics.realism import frechet_distance
from secondguess.stress.ambiguous import features, train_extractor
from secondguess_lab.record import provenance, write

COMPONENTS = 32


def main():
    """Measure every kept set against the real images of both classes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--classes", required=True)
    parser.add_argument(
        "--kept", type=Path, required=True, help="the folder of companion_sets.py --keep or companion_runs.py"
    )
    parser.add_argument("--photos", required=True, help="labelled photographs")
    parser.add_argument("--epochs", type=int, default=20, help="of the classifier of photographs")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    data, photos = load(arguments.data), load(arguments.photos)
    classes = [int(label) for label in arguments.classes.split(",")]
    real, test = (part.take(np.isin(part.labels, classes)) for part in (data.train, data.test))
    extractor = train_extractor(conform(photos.train, data.train.shape), epochs=arguments.epochs)
    components = PCA(COMPONENTS, random_state=0).fit(flat(real))
    spaces = {
        "photographs": lambda one: features(one, extractor),
        "pixels": lambda one: components.transform(flat(one)),
    }
    sets = {path.stem: load_images(path) for path in sorted(arguments.kept.glob("*.npz"))}
    rows = {}
    for name, space in spaces.items():
        known = space(real)
        distances = {key: frechet_distance(known, space(one)) for key, one in sets.items()}
        rows[name] = {
            "frechet": distances | {"real test images": frechet_distance(known, space(test))},
            "over_stage1": {key: value / distances[stage1_of(key)] for key, value in distances.items()},
        }
    record = {
        **provenance(vars(arguments) | {"components": COMPONENTS}, data),
        "photographs": {"name": Path(arguments.photos).stem, "accuracy": accuracy(extractor, photos, data)},
        "spaces": rows,
    }
    write(arguments.out, record)


def stage1_of(name: str):
    """What a set began as: stage1, or that of the same run, as stage1_2 for ambigan_2."""
    run = re.search(r"_\d+$", name)
    return "stage1" + (run[0] if run else "")


def flat(images: ImageSet):
    """Pixels as rows."""
    return images.materialise().reshape(len(images), -1)


def accuracy(extractor, photos, data):
    """Of the classifier of photographs on the photographs' test images."""
    seen = extractor.observe(conform(photos.test, data.test.shape))
    return float((seen.predictions == photos.test.labels).mean())


if __name__ == "__main__":
    main()
