"""The fixture `postgres`: a PostgreSQL server for the tests, of this machine's binaries, or one that is named."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

NAMED = os.environ.get("SECONDGUESS_POSTGRES")  # the URL of an empty database
DEBIAN = Path("/usr/lib/postgresql")  # version/bin, which is on nobody's PATH
TABLES = ("stream", "records", "guards", "format")


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The URL of a database: the one named in the environment, or that of a server started for the tests."""
    pytest.importorskip("psycopg", reason="NO POSTGRESQL TEST: psycopg is not installed (secondguess[postgres])")
    if NAMED:
        yield NAMED
        return
    binaries = _binaries()
    if binaries is None:
        pytest.skip(
            "NO POSTGRESQL TEST: no server at hand; install postgresql, or name an empty database in "
            "SECONDGUESS_POSTGRES"
        )
    with _started(binaries) as url:
        yield url


@pytest.fixture
def postgres(postgres_server: str) -> Iterator[str]:
    """The same, without any table of ours before and after a test."""
    _emptied(postgres_server)
    yield postgres_server
    _emptied(postgres_server)


def _binaries() -> Path | None:
    """The folder of `initdb` and `pg_ctl`: that on the path, else the newest of Debian's."""
    if found := shutil.which("initdb"):
        return Path(found).parent
    versions = [folder for folder in DEBIAN.glob("*/bin") if (folder / "initdb").exists()]
    return max(versions, key=lambda folder: float(folder.parent.name), default=None)


@contextmanager
def _started(binaries: Path) -> Iterator[str]:
    """A private server: its data in a folder that is removed, reached by a socket in that folder alone."""
    with tempfile.TemporaryDirectory(prefix="secondguess-postgres-") as folder:
        as_owner: list[str] = []
        if os.getuid() == 0:  # PostgreSQL refuses to be root
            shutil.chown(folder, "postgres")
            as_owner = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
        data = f"{folder}/data"
        options = f"-k {folder} -c listen_addresses='' -c fsync=off"

        def run(program: str, *words: str) -> None:
            command = [*as_owner, str(binaries / program), "-D", data, *words]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT, cwd=folder)

        run("initdb", "-U", "postgres", "-A", "trust", "--no-sync")
        run("pg_ctl", "-o", options, "-w", "-l", f"{folder}/log", "start")
        try:
            yield f"postgresql://postgres@/postgres?host={folder}"
        finally:
            run("pg_ctl", "-m", "immediate", "stop")


def _emptied(url: str) -> None:
    import psycopg

    with psycopg.connect(url, autocommit=True) as base:
        for name in TABLES:
            base.execute(f"DROP TABLE IF EXISTS secondguess_{name}")
