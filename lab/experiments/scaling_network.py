"""How many bytes an image sends over a network: from an object store, to and from workers.

    python scaling_network.py --out ../../results/scaling/network.json

Photographs (JPEG, 500 x 375 pixels) lie in a bucket of moto's S3 server on this machine; what goes to and from it
passes through a counter. Workers: what is pickled of a shard of 256 images that go by name or as pixels, and of the
answer about them. Nothing is timed, so a busy machine does not matter. It needs `pip install "secondguess[remote]"
"moto[s3]" flask flask-cors`.
"""

from __future__ import annotations

import argparse
import os
import pickle
import socket
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
from scaling_cost import photograph

from secondguess import load
from secondguess.images.remote import Store
from secondguess.images.sources import ArraySource, Source, ViewSource
from secondguess_lab.record import provenance, say, write

WIDTH, HEIGHT, SIDE = 500, 375, 224
CLASSES, DIMENSIONS, SHARD = 1000, 2048, 256


def main() -> None:
    """Count, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=SHARD)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    store, images = bucket(given.images)
    found = {"store": store, "workers": workers(images)}
    say(found)
    settings = {"images": given.images, "width": WIDTH, "height": HEIGHT, "side": SIDE}
    settings |= {"classes": CLASSES, "dimensions": DIMENSIONS, "shard": SHARD}
    write(given.out, provenance(settings) | found)


def bucket(count: int) -> tuple[dict[str, float], Source]:
    """Bytes an image of listing, of finding the common size and of reading, and the images."""
    import s3fs
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(port=0)
    server.start()
    counter = Counter(server.get_host_and_port())
    os.environ |= {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_ENDPOINT_URL": counter.address}
    system = s3fs.S3FileSystem()
    system.mkdir("bucket")
    sizes = []
    for number in range(count):
        file = photograph(WIDTH, HEIGHT, seed=number)
        system.pipe_file(f"bucket/photos/class-{number % 4}/image-{number:07}.jpg", file)
        sizes.append(len(file))
    names = [f"class-{number}" for number in range(4)]
    listed = counter.during(lambda: list(Store("s3://bucket/photos").inside(names)))
    loaded: list[Source] = []
    opened = counter.during(lambda: loaded.append(load("s3://bucket/photos", size=SIDE).test.images))
    read = counter.during(lambda: loaded[0][0:count])
    server.stop()
    return {
        "file": float(np.mean(sizes)),
        "listed": sum(listed) / count,
        "headers": (sum(opened) - sum(listed)) / count,
        "read": read[0] / count,
        "asked": read[1] / count,
    }, loaded[0]


def workers(images: Source) -> dict[str, float]:
    """Bytes an image of a shard by name, of one of pixels, and of what comes back."""
    rows = np.arange(SHARD) % len(images)
    pixels = np.zeros((SHARD, SIDE, SIDE, 3), np.uint8)
    answers = {
        "probabilities": np.full((SHARD, CLASSES), 1 / CLASSES),
        "trace": np.zeros((SHARD, DIMENSIONS), np.float32),
    }
    sent = {"by name": ViewSource(images, rows), "as pixels": ArraySource(pixels)}
    return {name: len(pickle.dumps(what)) / SHARD for name, what in (sent | answers).items()}


class Counter:
    """Passes connections on to a server, and counts what comes back and what is sent.

    Args:
        server: its host and port.
    """

    def __init__(self, server: tuple[str, int]) -> None:
        self._server, self._lock = server, threading.Lock()
        self._counts = [0, 0]  # received, sent
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def during(self, work: Any) -> tuple[int, int]:
        """Bytes received and sent while some work is done."""
        before = list(self._counts)
        work()
        return self._counts[0] - before[0], self._counts[1] - before[1]

    def _accept(self) -> None:
        while True:
            near, _ = self._listening.accept()
            far = socket.create_connection(self._server)
            for place, (one, other) in enumerate(((far, near), (near, far))):
                threading.Thread(target=self._pass, args=(one, other, place), daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket, place: int) -> None:
        with closing(target):
            while data := source.recv(1 << 16):
                with self._lock:
                    self._counts[place] += len(data)
                target.sendall(data)


if __name__ == "__main__":
    main()
