from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

import tiny_models

EXAMPLE = torch.rand(4, 1, 8, 8, generator=torch.Generator().manual_seed(1))


def export_onnx(model: nn.Module, path: Path, *, fixed: bool = False, external: bool = False) -> Path:
    shapes = None if fixed else ({0: torch.export.Dim("n")},)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            model,
            (EXAMPLE,),
            path,
            dynamo=True,
            dynamic_shapes=shapes,
            external_data=external,
            input_names=["image"],
            output_names=["scores"],
            verbose=False,
        )
    return path


def export_pt2(model: nn.Module, path: Path, *, fixed: bool = False) -> Path:
    shapes = None if fixed else ({0: torch.export.Dim("n")},)
    torch.export.save(torch.export.export(model, (EXAMPLE,), dynamic_shapes=shapes), path)
    return path


@pytest.fixture(scope="session")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., tuple[nn.Module, Path]]:
    """`exported(kind, "onnx" or "pt2", fixed=False)` gives a module and its exported file, made once a session."""
    folder = tmp_path_factory.mktemp("exported")

    def make(kind: type[nn.Module], suffix: str, **options: bool) -> tuple[nn.Module, Path]:
        model = tiny_models.seeded(kind)
        path = folder / f"{kind.__name__}{'-'.join(options)}.{suffix}"
        if not path.exists():
            (export_onnx if suffix == "onnx" else export_pt2)(model, path, **options)
        return model, path

    return make


@pytest.fixture(scope="session")
def onnx_file(exported: Callable[..., tuple[nn.Module, Path]]) -> Path:
    """A small network as an ONNX file."""
    return exported(tiny_models.TinyCNN, "onnx")[1]


@pytest.fixture(scope="session")
def pt2_file(exported: Callable[..., tuple[nn.Module, Path]]) -> Path:
    """A small network as a program of `torch.export`."""
    return exported(tiny_models.TinyCNN, "pt2")[1]
