"""Checkpoints become safetensors, and no code in them runs."""

from __future__ import annotations

import argparse
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from torch.optim.swa_utils import AveragedModel

from secondguess import Classifier, UserError
from secondguess.model.convert import convert_checkpoint
from tiny_models import TinyCNN, seeded


@pytest.fixture
def model() -> nn.Module:
    return seeded(TinyCNN, seed=3)


def same(path: str | Path, model: nn.Module) -> bool:
    found, state = load_file(path), model.state_dict()
    return found.keys() == state.keys() and all(torch.equal(found[name], state[name]) for name in state)


@pytest.mark.parametrize("wrapper", ["state_dict", "model", "model_state_dict", "ema", None])
def test_weights_are_found(tmp_path: Path, model: nn.Module, wrapper: str | None) -> None:
    state: Any = model.state_dict()
    torch.save({wrapper: state, "epoch": 3} if wrapper else state, tmp_path / "c.pth")
    made = convert_checkpoint(tmp_path / "c.pth")
    assert made.weights == str(tmp_path / "c.safetensors") and same(made.weights, model)
    assert made.unwrapped == ((wrapper,) if wrapper else ())
    assert made.dropped == ({"epoch": "3"} if wrapper else {})
    images = np.random.default_rng(0).random((3, 1, 8, 8), dtype=np.float32)
    ours = Classifier(seeded(TinyCNN, seed=9), weights=made.weights).predict(images)
    np.testing.assert_array_equal(ours, Classifier(model).predict(images))


def test_other_weights_are_not_overwritten(tmp_path: Path, model: nn.Module) -> None:
    torch.save(model.state_dict(), tmp_path / "c.pth")
    first = convert_checkpoint(tmp_path / "c.pth").weights
    assert convert_checkpoint(tmp_path / "c.pth").weights == first, "the same again does no harm"
    torch.save(seeded(TinyCNN, seed=4).state_dict(), tmp_path / "c.pth")
    with pytest.raises(UserError, match=r"c\.safetensors is there already and holds other weights; name another"):
        convert_checkpoint(tmp_path / "c.pth")
    assert same(first, model)


def test_a_checkpoint_as_training_leaves_it(tmp_path: Path, model: nn.Module) -> None:
    other = seeded(TinyCNN, seed=4)
    parallel = nn.DataParallel(torch.compile(model))
    checkpoint = {
        "epoch": 12,
        "model": parallel.state_dict(),
        "ema": other.state_dict(),
        "optimizer": torch.optim.Adam(model.parameters()).state_dict(),
        "args": argparse.Namespace(lr=0.1),
        "best": np.float64(0.5),
    }
    torch.save(checkpoint, tmp_path / "c.ckpt")
    made = convert_checkpoint(tmp_path / "c.ckpt", tmp_path / "w")
    assert same(tmp_path / "w/c.safetensors", model)
    assert made.stripped == ("module.", "_orig_mod.") and made.unwrapped == ("model",)
    assert made.dropped.keys() == {"epoch", "ema", "optimizer", "args", "best"}
    assert "left out     epoch (12), ema" in made.summary() and len(made.summary().splitlines()) <= 10
    assert json.loads(json.dumps(made.to_dict()))["parameters"] == sum(
        one.numel() for one in model.state_dict().values()
    )
    convert_checkpoint(tmp_path / "c.ckpt", key="ema")
    assert same(tmp_path / "c-ema.safetensors", other)
    with pytest.raises(UserError, match="has no weights under 'teacher'; it has model, ema"):
        convert_checkpoint(tmp_path / "c.ckpt", key="teacher")


def test_averaged_weights_lose_their_counter(tmp_path: Path, model: nn.Module) -> None:
    torch.save(AveragedModel(model).state_dict(), tmp_path / "c.pth")
    made = convert_checkpoint(tmp_path / "c.pth")
    assert same(made.weights, model) and made.dropped == {"n_averaged": "tensor ()"}


def test_a_part_that_is_called_module_keeps_its_name(tmp_path: Path) -> None:
    torch.save({"module.weight": torch.ones(2), "head.weight": torch.zeros(2)}, tmp_path / "c.pth")
    assert load_file(convert_checkpoint(tmp_path / "c.pth").weights).keys() == {"module.weight", "head.weight"}


def test_shared_and_odd_tensors(tmp_path: Path) -> None:
    weight = torch.arange(6.0).reshape(2, 3)
    state = {
        "a": weight,
        "b": weight,
        "turned": weight.t(),
        "row": weight[0],
        "empty": torch.empty(0),
        "half": torch.ones(2, dtype=torch.bfloat16),
        "sparse": torch.eye(2).to_sparse(),
        "_extra_state": None,
    }
    torch.save(state, tmp_path / "c.pth")
    made = convert_checkpoint(tmp_path / "c.pth")
    found = load_file(made.weights)
    assert made.shared == (("a", "b"),)
    assert made.dropped == {"sparse": "sparse tensor (2, 2)", "_extra_state": "None"}
    for name in ("a", "b", "turned", "row", "empty", "half"):
        torch.testing.assert_close(found[name], state[name], rtol=0, atol=0)


class Trap:
    """Writes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.write_text, (self.path, "boom")


def test_nothing_in_it_runs(tmp_path: Path, model: nn.Module) -> None:
    trace = tmp_path / "ran"
    for number, content in enumerate([Trap(trace), {"state_dict": model.state_dict(), "hook": Trap(trace)}]):
        torch.save(content, tmp_path / f"{number}.pth")
        with pytest.raises(UserError, match="opening the rest could run any code, so it is refused"):
            convert_checkpoint(tmp_path / f"{number}.pth")
    (tmp_path / "raw.pkl").write_bytes(pickle.dumps(Trap(trace)))
    with pytest.raises(UserError):
        convert_checkpoint(tmp_path / "raw.pkl")
    assert not trace.exists()


def test_refusals_say_what_to_do(tmp_path: Path, model: nn.Module) -> None:
    torch.save(model, tmp_path / "whole.pt")
    with pytest.raises(UserError, match=r"it holds a tiny_models.TinyCNN.*torch.save\(model.state_dict\(\)"):
        convert_checkpoint(tmp_path / "whole.pt")
    torch.jit.trace(model, torch.rand(1, 1, 8, 8)).save(str(tmp_path / "script.pt"))
    with pytest.raises(UserError, match="is a TorchScript archive, not a checkpoint; export the original"):
        convert_checkpoint(tmp_path / "script.pt")
    (tmp_path / "junk.pth").write_bytes(b"junk" * 100)
    with pytest.raises(UserError, match="is not a"):
        convert_checkpoint(tmp_path / "junk.pth")
    torch.save(model.state_dict(), tmp_path / "c.pth")
    (tmp_path / "cut.pth").write_bytes((tmp_path / "c.pth").read_bytes()[:1000])
    with pytest.raises(UserError, match="is not a torch checkpoint that can be read"):
        convert_checkpoint(tmp_path / "cut.pth")
    for content, sentence in [(torch.ones(2), "not a dictionary of weights"), ({"epoch": 1}, "holds no tensors")]:
        torch.save(content, tmp_path / "odd.pth")
        with pytest.raises(UserError, match=sentence):
            convert_checkpoint(tmp_path / "odd.pth")
    with pytest.raises(UserError, match="There is no checkpoint at"):
        convert_checkpoint(tmp_path / "nowhere.pth")
    with pytest.raises(UserError, match="where a folder for the weights is expected"):
        convert_checkpoint(tmp_path / "c.pth", tmp_path / "w.safetensors")
    with pytest.raises(UserError, match="need not be converted"):
        convert_checkpoint(convert_checkpoint(tmp_path / "c.pth").weights)
