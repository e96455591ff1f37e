from __future__ import annotations

import pytest
import torch

from secondguess.errors import UserError
from secondguess.training import pick_device


def test_auto_takes_what_is_there():
    best = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    assert pick_device("auto").type == best
    assert pick_device("cpu") == pick_device(torch.device("cpu")) == torch.device("cpu")


def test_accelerators_are_preferred_when_present(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert pick_device("auto") == pick_device("mps") == torch.device("mps")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert pick_device("auto") == pick_device("cuda") == torch.device("cuda", 0)
    assert pick_device("cuda:1") == torch.device("cuda", 1)
    with pytest.raises(UserError, match=r"cuda:2 was asked for, but 2 CUDA device"):
        pick_device("cuda:2")


def test_missing_devices_are_reported(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    for device, message in [
        ("cuda", "but no CUDA device"),
        ("mps", "mps was asked for"),
        ("quantum", "'quantum' is not a device"),
        ("xpu", "xpu is not supported"),
    ]:
        with pytest.raises(UserError, match=message):
            pick_device(device)
