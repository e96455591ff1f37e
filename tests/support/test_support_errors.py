from __future__ import annotations

import subprocess
import sys

import pytest

import secondguess
from secondguess.environment import _versions, versions
from secondguess.errors import MissingExtra, UserError, require


def test_require_gives_the_module_or_names_the_extra() -> None:
    assert require("json.decoder", "hub").JSONDecoder
    message = r"needs the package 'no_such_package', which is not installed: pip install \"secondguess\[hub\]\"\."
    with pytest.raises(MissingExtra, match=message):
        require("no_such_package.part", "hub")
    assert issubclass(MissingExtra, UserError)


def test_versions_name_what_takes_part() -> None:
    import numpy
    import torch

    found = versions()
    assert found["python"] == ".".join(map(str, sys.version_info[:3]))
    assert found["numpy"] == numpy.__version__
    assert found["torch"].split("+")[0] == torch.__version__.split("+")[0]
    assert {"secondguess", "platform", "pillow"} <= set(found)


def test_versions_leave_out_what_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("secondguess.environment.PACKAGES", ("numpy", "no-such-package"))
    monkeypatch.setattr("secondguess.environment._versions", _versions.__wrapped__)  # not what was read before
    assert set(versions()) == {"python", "platform", "numpy"}


def test_versions_may_be_changed_by_who_asked() -> None:
    versions()["numpy"] = "none"
    assert versions()["numpy"] != "none"


def test_public_names_are_found_and_others_are_not() -> None:
    assert set(dir(secondguess)) == {*secondguess.__all__, *secondguess._OPEN_ROOMS}
    for name in secondguess.__all__:
        assert getattr(secondguess, name) is not None
    with pytest.raises(AttributeError, match="module 'secondguess' has no attribute 'nonsense'"):
        secondguess.nonsense  # noqa: B018


def test_importing_the_classifier_does_not_import_torch() -> None:
    code = "import sys, secondguess, secondguess.model.classifier; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, timeout=60, capture_output=True, text=True)
    assert done.stdout.strip() == "False"
