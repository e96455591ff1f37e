from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from joblib.externals.loky import get_reusable_executor
from PIL import Image

from command_line import run

__all__ = ["run"]


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)


@pytest.fixture
def write_image(rng: np.random.Generator) -> Callable[..., np.ndarray]:
    """Write a random image file and give its uint8 pixels (H, W) or (H, W, 3)."""

    def write(path: Path, shape: tuple[int, ...] = (6, 8, 3)) -> np.ndarray:
        pixels = rng.integers(0, 256, shape, dtype=np.uint8)
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path)
        return pixels

    return write


@pytest.fixture(scope="session")  # s3fs keeps to the first server that it has met
def s3() -> Iterator[object]:
    """The file system of a server on this machine, with an empty bucket."""
    s3fs = pytest.importorskip("s3fs", reason="NO S3: pip install secondguess[remote]")
    server = pytest.importorskip("moto.server", reason="NO MOTO: pip install moto[s3] flask flask-cors")
    started = server.ThreadedMotoServer(port=0)
    with pytest.MonkeyPatch.context() as patch:
        started.start()
        host, port = started.get_host_and_port()
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.setenv(name, "test")
        patch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        get_reusable_executor().shutdown(wait=True)  # processes of earlier tests do not know these variables
        system = s3fs.S3FileSystem(skip_instance_cache=True)
        system.mkdir("bucket")
        try:
            yield system
        finally:
            started.stop()
