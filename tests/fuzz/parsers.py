"""Everything that reads files or bytes from outside: what is read, how, and what a good value is."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

CORPUS = Path(__file__).parent / "corpus"


@dataclass(frozen=True)
class Parser:
    """A way into the program.

    Attributes:
        files: sound examples in the corpus, by the ends of their names; what is read is one of them, altered.
        read: reads the file at a path, and asserts that the value is a good one.
    """

    files: tuple[str, ...]
    read: Callable[[Path], None]


def unit(pixels: np.ndarray) -> None:
    assert pixels.dtype == np.float32 and np.isfinite(pixels).all()
    assert pixels.size == 0 or (pixels.min() >= 0 and pixels.max() <= 1)


def picture(path: Path) -> None:
    from secondguess.images.decode import decode, read_header

    header = read_header(path.read_bytes(), "it")
    pixels = decode(path.read_bytes(), "it")
    assert pixels.shape[1:] == (header.height, header.width)
    unit(pixels)


def upload(path: Path) -> None:
    """The same bytes as the body of a request."""
    from secondguess.service.limits import Limits, Refused
    from secondguess.service.reading import from_pictures

    try:
        unit(from_pictures([path.read_bytes()], (1, 8, 8), "pad", Limits()))
    except Refused as refused:
        assert 400 <= refused.status < 500 and refused.sentence.endswith(".")


def request(path: Path) -> None:
    from secondguess.service.limits import Limits, Refused
    from secondguess.service.reading import from_json

    try:
        unit(from_json(path.read_bytes(), (1, 2, 3), Limits()))
    except Refused as refused:
        assert 400 <= refused.status < 500 and refused.sentence.endswith(".")


def data(path: Path) -> None:
    from secondguess.images import load

    loaded = load(path)
    for part in (loaded.test, loaded.train, loaded.validation):
        if part is not None:
            unit(part.materialise())
            assert len(part.labels) == len(part)


def idx(path: Path) -> None:
    """A folder of IDX files, one of which is the altered one."""
    folder = path.parent / "idx"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for part in CORPUS.glob("t10k-*"):
        shutil.copy(part, folder)
    name = path.name.partition("__")[2]
    (folder / name.removesuffix(".gz")).unlink(missing_ok=True)
    shutil.copy(path, folder / name)
    data(folder)


def table(path: Path) -> None:
    from secondguess.hubris.files import read_predictions

    assert read_predictions(path).dtype == np.float64


def rules(path: Path) -> None:
    from secondguess.accuracy.oracles.icos import InputRules

    InputRules.load(path, ("cat", "dog"))


def description(path: Path) -> None:
    from secondguess.model.description import Description

    Description.read(path)


def guard(path: Path) -> None:
    from secondguess.guard.artefact import read_card

    folder = path.parent / "guard"
    folder.mkdir(exist_ok=True)
    shutil.copy(path, folder / "guard.json")
    assert isinstance(read_card(folder), dict)


def audit(path: Path) -> None:
    """What `compare` reads: the altered `audit.json` beside the answers that it seals."""
    from secondguess.comparison.sides import open_audit

    shutil.copy(CORPUS / "answers.npz", path.parent)
    shutil.copy(path, path.parent / "audit.json")
    assert open_audit(path.parent / "audit.json").name


def answers(path: Path) -> None:
    """The altered answers, with a digest that fits."""
    from secondguess.audits.predictions import Predictions
    from secondguess.contracts.sealed import file_digest

    assert Predictions.read(path, file_digest(path)).class_names


def sealed(path: Path) -> None:
    from secondguess.contracts.sealed import Damaged, read_json

    with suppress(Damaged):  # its readers make a sentence of it, or compute anew
        assert isinstance(read_json(path, sealed=False), dict)


def model(path: Path) -> None:
    from secondguess import Classifier

    seen = Classifier(path, device="cpu").observe(np.zeros((2, 1, 8, 8), dtype=np.float32)).probabilities
    np.testing.assert_allclose(seen.sum(axis=1), 1, atol=1e-5)


def weights(path: Path) -> None:
    from torch import nn

    from secondguess import Classifier

    Classifier(nn.Sequential(nn.Flatten(), nn.Linear(64, 3)), weights=path, device="cpu")


def learner(path: Path) -> None:
    from secondguess import Supervisor

    Supervisor.load(path)


PICTURES = (".png", ".jpg", ".gif", ".webp", ".bmp", ".tiff")
PARSERS = {
    "picture": Parser(PICTURES, picture),
    "upload": Parser(PICTURES, upload),
    "request": Parser(("request.json",), request),
    "npz": Parser(("images.npz",), data),
    "idx": Parser(("-ubyte", "-ubyte.gz"), idx),
    "parquet": Parser((".parquet",), data),
    "csv": Parser((".csv", "predictions.npz"), table),
    "rules": Parser(("rules.toml", "rules.json"), rules),
    "description": Parser(("model.toml",), description),
    "guard": Parser(("guard.json",), guard),
    "json": Parser(("guard.json", "request.json"), sealed),
    "audit": Parser(("audit.json",), audit),
    "answers": Parser(("answers.npz",), answers),
    "onnx": Parser((".onnx",), model),
    "pt2": Parser((".pt2",), model),
    "weights": Parser(("weights.safetensors",), weights),
    "learner": Parser(("learner.safetensors",), learner),
}
