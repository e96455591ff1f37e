from __future__ import annotations

import json

import numpy as np
import pytest

from secondguess.errors import UserError
from secondguess.images import load
from secondguess_lab.cli.study import app


class Outcome:
    """What a command did."""

    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err

    def json(self):
        """Standard output, which must be exactly one JSON object."""
        return json.loads(self.out)


@pytest.fixture
def study(capsys, monkeypatch):
    """Run `secondguess study ...` in this process; a mistake of the user becomes code 2."""
    monkeypatch.setenv("COLUMNS", "200")

    def call(*words):
        capsys.readouterr()
        try:
            app(args=[str(word) for word in words], prog_name="study", standalone_mode=False)
            code, message = 0, ""
        except UserError as error:
            code, message = 2, str(error)
        printed = capsys.readouterr()
        return Outcome(code, printed.out, printed.err + message)

    return call


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """600 digits to train on and 150 to test, as an .npz file."""
    data = load("mnist5k")
    path = tmp_path_factory.mktemp("data") / "tiny.npz"
    train, test = data.train.head(600), data.test.head(150)
    arrays = {
        f"{what}_{name}": values
        for name, part in (("train", train), ("test", test))
        for what, values in (("x", np.round(part.materialise()[:, 0] * 255).astype(np.uint8)), ("y", part.labels))
    }
    np.savez(path, **arrays)
    return path
