from __future__ import annotations

import subprocess
import sys

from secondguess import metrics


def test_public_names_exist_and_are_documented():
    for name in metrics.__all__:
        assert getattr(metrics, name).__doc__, name


def test_import_brings_numpy_only():
    heavy = {"torch", "sklearn", "scipy", "pandas", "matplotlib"}
    code = f"import sys, secondguess.metrics; print(sorted({heavy!r} & set(sys.modules)))"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"
