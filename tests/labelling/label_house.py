"""What the tests of the labelling page stand on: a pool of noise, a model, and the command in a process of its own."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np

from secondguess.images import ImageSet
from secondguess.model.observation import Observation
from secondguess.search.distance import Distances
from secondguess.search.pool import Pool

NAMES = ("cat", "dog", "owl")
COMMAND = """
import sys, typer
from secondguess.cli.label import label
from secondguess.errors import UserError
app = typer.Typer(pretty_exceptions_enable=False)
app.command()(label)
try:
    app(sys.argv[1:], standalone_mode=False)
except UserError as error:
    sys.exit(f"Error: {error}")
"""
MODEL = """
import numpy as np

CENTRES = np.load(__file__.replace("label_models.py", "centres.npy"))


def make_model():
    def answer(images):
        distances = ((images.reshape(len(images), 1, -1) - CENTRES) ** 2).sum(axis=2)
        scores = np.exp(2 * (distances.min(axis=1, keepdims=True) - distances))
        return scores / scores.sum(axis=1, keepdims=True)

    return answer
"""


def make_pool(n: int = 30, names: tuple[str, ...] = NAMES, *, seed: int = 0) -> Pool:
    """Noise, made-up answers and made-up distances: all that any search needs."""
    rng = np.random.default_rng(seed)
    probabilities = rng.dirichlet(np.full(len(names), 0.3), n)
    pixels = rng.random((n, 1, 8, 8), dtype=np.float32)
    images = ImageSet.from_arrays(pixels, ids=[f"photo {i}.png" for i in range(n)], name="photos")
    features = rng.normal(size=(n, 5))
    seen = Observation(probabilities, images=images.images, class_names=names)
    mae, none = rng.lognormal(-4, 0.5, n), np.zeros(n, dtype=np.int64)
    distances = Distances(mae, 8 * mae, 2 * mae, none, np.zeros(n, dtype=bool), pixels, none)
    return Pool(seen, images, features, np.ones(n, dtype=bool), distances)


class Server:
    """`secondguess label` in a process of its own."""

    def __init__(self, house: Path, out: Path, *words: str) -> None:
        command = [sys.executable, "-c", COMMAND, "--model", "label_models:make_model", "--no-browser", "--json"]
        command += ["--images", str(house / "incoming.npz"), "--size", "8", "--out", str(out)]
        command += ["--min-confidence", "0", *words]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(house), *sys.path])}
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        )
        assert self.process.stdout is not None
        head = ""
        for line in self.process.stdout:
            head += line
            if line == "}\n":
                break
        else:  # it ended without a word of where it is
            raise RuntimeError(self.process.communicate()[1])
        self.link: str = json.loads(head)["link"]
        self.labelled: int = json.loads(head)["labelled"]
        self.port = int(re.findall(r":(\d+)/", self.link)[0])

    def end(self, how: int = signal.SIGTERM) -> str:
        """Send a signal and wait; what was said on standard error."""
        self.process.send_signal(how)
        return self.process.communicate(timeout=20)[1]
