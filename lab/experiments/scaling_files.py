"""What it takes to find the images of a folder: seconds and memory, by the number of files.

    python scaling_files.py --out ../../results/scaling/files.json

Class folders are filled with hard links to one tiny PNG file each, and removed at the end. Each size is loaded in a
process of its own, several times; the quickest counts. The operating system has just made the names and remembers them,
so no disk is waited for. Loading reads the headers of at most 2,000 images; afterwards 256 far apart are decoded.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from secondguess import load
from secondguess_lab.record import provenance, say, write

SIDE, SOME = 32, 256  # pixels; images that are decoded


def main() -> None:
    """Make the files, measure each size, remove them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--classes", type=int, default=1_000)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--load", type=Path, help="measure this folder, and print what was found")
    given = parser.parse_args()
    if given.load:
        say(json.dumps(loaded(given.load)))
        return
    rows = []
    with tempfile.TemporaryDirectory(prefix="secondguess-files-") as folder:
        for count in sorted(given.files):
            fill(Path(folder), count, given.classes)
            turns = [measured(Path(folder)) for _ in range(given.turns)]
            rows.append({"files": count} | min(turns, key=lambda turn: turn["seconds"]))
            say(rows[-1])
    settings = {"classes": given.classes, "turns": given.turns, "side": SIDE, "decoded": SOME}
    if given.out:
        write(given.out, provenance(settings) | {"load": os.getloadavg()[0], "rows": rows})


def fill(folder: Path, count: int, classes: int) -> None:
    """Bring each class folder to its share of that many files."""
    for number in range(classes):
        inside = folder / f"class-{number:04}"
        inside.mkdir(exist_ok=True)
        first = inside / "image-0000000.png"
        if not first.exists():
            pixels = np.random.default_rng(number).integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(first)
        have = sum(1 for _ in inside.iterdir())
        for row in range(have, count // classes + (number < count % classes)):
            os.link(first, inside / f"image-{row:07}.png")


def measured(folder: Path) -> dict[str, Any]:
    """Load the folder in another process."""
    words = [sys.executable, __file__, "--load", str(folder)]
    found: dict[str, Any] = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
    return found


def loaded(folder: Path) -> dict[str, Any]:
    """Load the folder here: seconds, and by how many MiB memory grew at most and for good."""
    before = _resident()
    began, cpu = time.perf_counter(), time.process_time()
    images = load(folder).test
    took = {"seconds": time.perf_counter() - began, "core_seconds": time.process_time() - cpu}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 - before
    kept = _resident() - before
    began = time.perf_counter()
    images.images[np.linspace(0, len(images) - 1, SOME).astype(np.int64)]
    decoded = time.perf_counter() - began
    return took | {"images": len(images), "peak_mebibytes": peak, "kept_mebibytes": kept, "decode_seconds": decoded}


def _resident() -> float:
    """MiB of this process."""
    return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * resource.getpagesize() / 2**20


if __name__ == "__main__":
    main()
