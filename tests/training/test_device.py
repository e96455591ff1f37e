from __future__ import annotations

import importlib.util
import shutil

import pytest
import torch

from secondguess.devices import compile_network
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


def test_networks_are_compiled_where_that_is_possible(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(shutil, "which", lambda name: "/usr/bin/clang" if name == "clang" else None)
    monkeypatch.delenv("CC", raising=False)
    asked = []
    monkeypatch.setattr(torch, "compile", lambda network, **how: asked.append(how) or "compiled")
    assert compile_network(torch.nn.Identity()) == "compiled"
    assert asked == [{"dynamic": False}]


@pytest.mark.parametrize(("triton", "compiler", "lacking"), [(None, "/bin/gcc", "Triton"), (1, None, "C compiler")])
def test_networks_stay_as_they_are_where_something_is_missing(monkeypatch, triton, compiler, lacking):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: triton)
    monkeypatch.setattr(shutil, "which", lambda name: compiler)
    monkeypatch.delenv("CC", raising=False)
    network = torch.nn.Identity()
    with pytest.warns(UserWarning, match=f"run uncompiled.*PyTorch finds no {lacking}"):
        assert compile_network(network) is network
