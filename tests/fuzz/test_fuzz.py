"""Sound files of every kind, altered at random: a parser gives a good value or a `UserError`, whatever it reads.

Every example is read by a child process with limits, so that neither a crash of a library, nor a hang, nor an archive
that unpacks to gigabytes goes unnoticed. A few examples belong to the suite; `make fuzz` tries
`SECONDGUESS_FUZZ_EXAMPLES` of each kind (2,000), with another seed each time, and writes a record to the file
`SECONDGUESS_FUZZ_RECORD`.
"""

from __future__ import annotations

import faulthandler
import os
import shutil
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
from child import Reader
from hypothesis import HealthCheck, example, given, seed, settings
from hypothesis import strategies as st
from parsers import CORPUS, PARSERS

from secondguess_lab.record import provenance, write

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="children are limited by what Linux offers")

EXAMPLES = int(os.environ.get("SECONDGUESS_FUZZ_EXAMPLES", "10"))
SEED = int(os.environ.get("SECONDGUESS_FUZZ_SEED", "0"))
RECORD = os.environ.get("SECONDGUESS_FUZZ_RECORD", "")
NUMBERS = [b"\0", b"\xff", b"\x7f", b"\x80", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\0\0\0\x80", b"\xff" * 8]
WORDS = [
    b"[" * 3000,
    b"{" * 3000,
    b'{"a":' * 3000,
    b"nan",
    b"-1",
    b"1e999",
    b"9" * 5000,
    b"\xef\xbb\xbf",
    b"\xd8\0",
    b"'",
]

IMPORTED = (
    "onnxruntime",
    "pyarrow.parquet",
    "torch.export",
    "secondguess.accuracy.oracles.icos",
    "secondguess.comparison.sides",
    "secondguess.guard.artefact",
    "secondguess.hubris.files",
    "secondguess.model.backends.exported",
    "secondguess.service.reading",
    "secondguess.supervisors",
)

Change = tuple[str, float, float, bytes]  # what, where, how much of it, with what; places as shares of the length
shares = st.floats(0, 1, allow_nan=False)
changes = st.lists(
    st.tuples(
        st.sampled_from(["put", "insert", "delete", "repeat", "cut", "flip", "swap"]),
        shares,
        shares,
        st.one_of(st.sampled_from(NUMBERS), st.sampled_from(WORDS), st.binary(max_size=9)),
    ),
    max_size=5,
)


def changed(content: bytes, todo: list[Change]) -> bytes:
    for what, where, much, data in todo:
        at = int(where * len(content))
        end = min(len(content), at + 1 + int(much**4 * len(content)))  # mostly little
        before, within, after = content[:at], content[at:end], content[end:]
        match what:
            case "put":
                content = before + data + content[at + len(data) :]
            case "insert":
                content = before + data + within + after
            case "delete":
                content = before + after
            case "repeat":
                content = before + within + within + after
            case "cut":
                content = before
            case "flip":
                content = before + bytes(byte ^ 1 << int(7 * much) for byte in within) + after
            case "swap":
                content = after + within + before
    return content


def seeds(name: str) -> list[Path]:
    """The files of the corpus that a parser reads."""
    return [path for path in sorted(CORPUS.iterdir()) if path.name.endswith(PARSERS[name].files)]


def place(name: str, file: Path, folder: Path) -> Path:
    """Where an altered file of the corpus is put, so that it is read as the sound one is."""
    return folder / (f"it__{file.name}" if name == "idx" else f"it{file.suffix}")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A place for altered files; what parsers import is imported before the first child is forked."""
    for module in IMPORTED:
        import_module(module)
    return tmp_path_factory.mktemp("fuzz")


@pytest.fixture(scope="module")
def tallies() -> Iterator[dict[str, dict[str, int]]]:
    """How many altered files each parser has read and refused; the record, in the end."""
    found: dict[str, dict[str, int]] = {}
    yield found
    if RECORD:
        words = f"SECONDGUESS_FUZZ_EXAMPLES={EXAMPLES} SECONDGUESS_FUZZ_SEED={SEED} python -m pytest tests/fuzz"
        head = provenance({"examples": EXAMPLES, "seed": SEED}) | {"command": words}
        write(Path(RECORD), head | {"parsers": found})


@pytest.fixture
def reader(name: str, folder: Path) -> Iterator[Reader]:
    """Reads with that parser."""
    made = Reader(PARSERS[name].read)
    yield made
    made.close()


@pytest.mark.parametrize("name", PARSERS)
def test_sound_files_are_read(name: str, folder: Path, reader: Reader) -> None:
    assert seeds(name)
    for file in seeds(name):
        shutil.copy(file, path := place(name, file, folder))
        assert reader.outcome(path) == "", file.name


@pytest.mark.parametrize("name", PARSERS)
@pytest.mark.timeout(0 if EXAMPLES > 10 else 300)
def test_whatever_is_read_ends_well(
    name: str, folder: Path, reader: Reader, tallies: dict[str, dict[str, int]]
) -> None:
    tally = {"read": 0, "refused": 0}

    @seed(SEED)
    @settings(max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(st.sampled_from(seeds(name)), changes)
    @example(seeds(name)[0], [("cut", 0.0, 0.0, b"")])
    @example(seeds(name)[0], [("cut", 0.5, 0.0, b"")])
    @example(seeds(name)[0], [("put", 0.0, 0.0, b"[" * 3000)])
    def tried(file: Path, todo: list[Change]) -> None:
        path = place(name, file, folder)
        path.write_bytes(changed(file.read_bytes(), todo))
        told = reader.outcome(path)
        assert told == "" or told.startswith("UserError: "), f"{file.name}: {told}"
        tally["refused" if told else "read"] += 1

    tried()
    tallies[name] = tally


def test_whatever_a_parser_does_is_heard(tmp_path: Path) -> None:
    """What crashes, takes memory without end or raises is told from what is read."""

    def read(path: Path) -> None:
        match path.name:
            case "abort":
                faulthandler.disable()  # pytest's would print a page about this one
                os.abort()
            case "leave":
                os._exit(3)
            case "memory":
                bytearray(1 << 36)
            case "error":
                raise ValueError("of the parser")

    reader = Reader(read)
    heard = {name: reader.outcome(tmp_path / name) for name in ("sound", "abort", "leave", "memory", "error", "good")}
    reader.close()
    assert heard["sound"] == heard["good"] == ""
    assert "(SIGABRT)" in heard["abort"] and "(768)" in heard["leave"]
    assert "MemoryError" in heard["memory"] and "of the parser" in heard["error"]
