r"""The ambiguous images that several studies need, made once and kept.

    python ambiguous_sets.py mnist.npz --out kept/mnist
    secondguess study run ambiguity-table1 --data mnist=mnist.npz --set 'data=["mnist"]' \
        --set 'generators=["ambiguess"]' --set 'kept={"mnist": "kept/mnist"}'

Folders for each generator, with images to train on and to test on, and `about.json`: AmbiGuess as published, with our
check of realism (from the same autoencoders), and, where asked for, mixtures in the latent space of an autoencoder.
`--describe` writes `about.json` for sets that are there already.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

from secondguess import load
from secondguess.engine import TaskData
from secondguess.images import save_npz
from secondguess.metrics.ambiguity import mean_entropy
from secondguess_lab.record import provenance, say, write
from secondguess_lab.rivals.latent_mixture import DRAWS
from secondguess_lab.studies import get
from secondguess_lab.studies.papers.ambiguity import GENERATORS, KEPT, keeping_folder
from secondguess_lab.studies.tasks.ambiguity import ambiguous_sets

GENERATION = get("ambiguity-table1").scale["generation"]


def description(kept):
    """How ambiguous the labels are: as they are, and as ten draws from each, which is what AmbiguousMNIST has."""
    images = kept.test
    labels = images.soft_labels / images.soft_labels.sum(axis=1, keepdims=True)
    drawn = np.random.default_rng(0).multinomial(DRAWS, labels) / DRAWS
    return {
        "images": len(images),
        "fingerprint": kept.fingerprint,
        "label_entropy_bits": mean_entropy(labels),
        "entropy_bits_of_ten_draws": mean_entropy(drawn),
        "share_of_ten_equal_draws": float((drawn.max(axis=1) == 1).mean()),
    }


def main(words=None, smaller=None):
    """Make and write the sets of each generator; `smaller` changes the scale of generation."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--generators", nargs="+", choices=GENERATORS, default=["ambiguess"])
    parser.add_argument("--describe", action="store_true", help="make nothing; describe the sets that are there")
    arguments = parser.parse_args(words)
    generation = GENERATION | (smaller or {})
    data = load(arguments.data)
    source = TaskData(str(Path(arguments.data).resolve()), data.fingerprint)
    for generator in arguments.generators:
        folder, about = keeping_folder(arguments.out, generator), {}
        if not arguments.describe:
            began = time.perf_counter()
            folder.mkdir(parents=True, exist_ok=True)
            for file, images in zip(KEPT, ambiguous_sets(source, generator, generation, 0), strict=True):
                save_npz(images, folder / file)
            about = {"seconds_to_make": time.perf_counter() - began}
        for file in KEPT:
            about[Path(file).stem] = description(load(folder / file))
        about |= provenance({"generation": generation, "generator": generator}, data)
        write(folder / "about.json", about)
        say(f"{folder}: {about}")


if __name__ == "__main__":
    main()
