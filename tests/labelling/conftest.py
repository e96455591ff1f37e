from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from label_house import MODEL, NAMES, Server, make_pool

from secondguess.images import load, save_npz
from secondguess.labelling.session import LabellingSession
from secondguess.labelling.store import Store
from secondguess.search.base import Search
from secondguess.search.chance import RandomSearch
from secondguess.search.pool import Pool


@pytest.fixture
def pool() -> Pool:
    return make_pool()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store(tmp_path / "labels")
    opened.begin({"classes": list(NAMES)})
    yield opened
    opened.close()


@pytest.fixture
def open_session(pool: Pool, store: Store) -> Callable[..., LabellingSession]:
    """`open_session(search, overlap=...)` opens a session on what is in the store now."""

    def opened(search: Search | None = None, **options: Any) -> LabellingSession:
        return LabellingSession(search or RandomSearch().fit(pool), store, **options)

    return opened


@pytest.fixture(scope="session")
def house(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of ten digits as a module, and sixty images to label, as `incoming.npz`."""
    folder = tmp_path_factory.mktemp("house")
    digits = load("digits")
    assert digits.train is not None
    flat = digits.train.materialise().reshape(len(digits.train), -1)
    centres = np.stack([flat[digits.train.labels == k][:12].mean(axis=0) for k in range(10)])
    np.save(folder / "centres.npy", centres)
    (folder / "label_models.py").write_text(MODEL)
    save_npz(digits.test.take(np.arange(60)), folder / "incoming.npz")
    return folder


@pytest.fixture
def serve_in_process(house: Path, tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """`serve_in_process("--search", "random")` starts the command on the folder `labels`; all are killed at the end."""
    started: list[Server] = []

    def start(*words: str) -> Server:
        started.append(Server(house, tmp_path / "labels", *words))
        return started[-1]

    yield start
    for server in started:
        if server.process.poll() is None:
            server.end(signal.SIGKILL)
