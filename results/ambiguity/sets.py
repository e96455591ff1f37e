r"""The ambiguous images that several studies need, made once and kept.

    python results/ambiguity/sets.py mnist.npz --out kept/mnist
    secondguess study run ambiguity-table1 --data mnist=mnist.npz --set 'data=["mnist"]' \
        --set 'generators=["ambiguess"]' --set 'kept={"mnist": "kept/mnist"}'

Folders for each generator, with images to train on and to test on: AmbiGuess as published, with our check of realism
(from the same autoencoders), and, where asked for, mixtures in the latent space of an autoencoder.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from secondguess import load
from secondguess.data import save_npz
from secondguess.engine import Source
from secondguess.studies import get
from secondguess.studies.papers.ambiguity import KEPT, keeping_folder
from secondguess.studies.tasks.ambiguity import ambiguous_sets

STUDY = get("ambiguity-table1")


def main():
    """Make and write the sets of each generator."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--generators", nargs="+", choices=STUDY.scale["generators"], default=["ambiguess"])
    arguments = parser.parse_args()
    source = Source(str(Path(arguments.data).resolve()), load(arguments.data).fingerprint)
    for generator in arguments.generators:
        began = time.perf_counter()
        folder = keeping_folder(arguments.out, generator)
        folder.mkdir(parents=True, exist_ok=True)
        for file, images in zip(KEPT, ambiguous_sets(source, generator, STUDY.scale["generation"], 0), strict=True):
            save_npz(images, folder / file)
        sys.stdout.write(f"{generator}: {time.perf_counter() - began:.0f} s\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
