"""Opening a model in any accepted form as a backend. Nothing is ever unpickled."""

from __future__ import annotations

import importlib
import importlib.machinery
import sys
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from secondguess.errors import UserError
from secondguess.model.backends.base import Backend, foreign_code
from secondguess.model.backends.function import FunctionBackend

if TYPE_CHECKING:
    from torch import nn

__all__ = ["load_weights", "open_backend"]

PICKLES = (".pt", ".pth", ".pkl", ".pickle", ".ckpt", ".bin")
OTHERS = {
    ".h5": "export it to ONNX with tf2onnx",
    ".keras": "export it to ONNX with tf2onnx or keras' model.export(format='onnx')",
    ".tflite": "export the original model to ONNX",
    ".safetensors": "these are weights alone: give --model package.module:make_model and this file as --weights",
}

_imported_from: dict[str, str] = {}  # the folder from which the package of a model came


def open_backend(
    model: Any,
    *,
    weights: str | Path | None = None,
    device: str = "auto",
    identity: str | None = None,
    output: int | str | None = None,
    folder: Path | None = None,
    network: Mapping[str, Any] | None = None,
) -> Backend:
    """Wrap a model.

    Args:
        model: a `torch.nn.Module`, a callable `images -> (n, K)`, a path to an `.onnx` or `.pt2` file, `zoo:NAME`, or
            `package.module:name` of a module or of a function without arguments that makes one.
        weights: a `.safetensors` file for a torch module.
        device: `auto`, `cpu`, `cuda`, `cuda:N` or `mps`.
        identity: the version of a callable, which allows its answers to be cached.
        output: name or number of the output with the class scores, where there are several.
        folder: where a Python module is searched for first; by default the working directory.
        network: arguments of a network of the zoo, `num_classes` and `input_shape`, as far as they are known.
    """
    if isinstance(model, (str, Path)):
        model = _from_text(str(model), device, output, folder or Path.cwd(), network or {})
    if isinstance(model, Backend):
        backend = model
    elif _is_module(model):
        from secondguess.model.backends.torch_module import TorchBackend

        if weights is not None:
            load_weights(model, weights)
        return TorchBackend(model, device=device, output=output)
    elif callable(model):
        backend = FunctionBackend(model, identity=identity, output=output)
    else:
        raise UserError(
            f"A model was expected (a torch module, a callable, or the path of an .onnx or .pt2 file), "
            f"but {type(model).__name__} was given."
        )
    if weights is not None:
        raise UserError(f"Weights were given, but {backend.kind.lower()} brings its own; leave --weights out.")
    return backend


def load_weights(module: nn.Module, path: str | Path) -> None:
    """Fill `module` from a `.safetensors` file; every name and shape must match."""
    path = Path(path)
    if path.suffix in PICKLES:
        raise _pickle_refusal(path)
    if not path.is_file():
        raise UserError(f"There is no weights file at {path}.")
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        state = load_file(path)
    except SafetensorError as error:
        raise UserError(f"{path} is not a readable safetensors file ({error}).") from error
    try:
        missing, unexpected = module.load_state_dict(state, strict=False)
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[-1].strip()
        raise UserError(f"The weights in {path} do not fit the model: {reason}") from error
    if missing or unexpected:
        problems = [f"it lacks {', '.join(missing[:3])}"] if missing else []
        problems += [f"it has {', '.join(unexpected[:3])}, which the model has not"] if unexpected else []
        raise UserError(f"The weights in {path} do not fit the model: {' and '.join(problems)}.")


def _from_text(text: str, device: str, output: int | str | None, folder: Path, network: Mapping[str, Any]) -> Any:
    path = Path(text)
    suffix = path.suffix.lower()
    if suffix in PICKLES:
        raise _pickle_refusal(path)
    if suffix in OTHERS:
        raise UserError(f"{path} cannot be run directly; {OTHERS[suffix]}.")
    if suffix in (".onnx", ".pt2"):
        if not path.is_file():
            raise UserError(f"There is no model file at {path}.")
        if suffix == ".onnx":
            from secondguess.model.backends.onnx_graph import OnnxBackend

            return OnnxBackend(path, device=device, output=output)
        from secondguess.model.backends.exported import ExportedBackend

        return ExportedBackend(path, device=device, output=output)
    if path.is_dir():
        inside = path / "model.toml"
        hint = f"give {inside}" if inside.is_file() else "give a model.toml, an .onnx or .pt2 file"
        raise UserError(f"{text!r} is a folder, not a model; {hint}.")
    where, colon, name = text.partition(":")
    if not colon or not where or not name:
        raise UserError(
            f"{text!r} is not a model: give a model.toml, an .onnx or .pt2 file, zoo:NAME, or "
            "package.module:make_model."
        )
    if where == "zoo":
        from secondguess import zoo

        return zoo.make(name, **({} if ":" in name else network))
    return _imported(where, name, folder)


def _imported(where: str, name: str, folder: Path) -> Any:
    """`package.module:name`: the thing itself if it is a torch module, else what it makes when called."""
    here = str(folder.resolve())
    _look_first_in(here, where.partition(".")[0])
    try:
        with foreign_code(f"The module {where!r} failed while it was imported", passing=(ImportError, TypeError)):
            found = importlib.import_module(where)
    except (ImportError, TypeError) as error:  # TypeError: a relative name such as `.models`
        raise UserError(f"No Python module {where!r} was found from the folder {here} ({error}).") from error
    if not hasattr(found, name):
        public = [known for known in vars(found) if not known.startswith("_")][:8]
        raise UserError(f"The module {where!r} has no {name!r}; it has: {', '.join(public)}.")
    thing = getattr(found, name)
    return thing if _is_module(thing) else _made(f"{where}:{name}", thing)


def _look_first_in(here: str, package: str) -> None:
    """Let a package be imported from a folder, even if a model's package of that name came from another one before.

    Two models often lie in two folders with a `network.py` each. What a model was not imported from is left alone.
    """
    if here in sys.path:
        sys.path.remove(here)
    sys.path.insert(0, here)
    before = _imported_from.setdefault(package, here)
    if before == here or importlib.machinery.PathFinder.find_spec(package, [here]) is None:
        return
    _imported_from[package] = here
    for name in [name for name in sys.modules if name == package or name.startswith(f"{package}.")]:
        del sys.modules[name]


def _made(spec: str, factory: Callable[..., Any]) -> Any:
    try:
        with foreign_code(f"{spec} failed to make the model", passing=(TypeError,)):
            made = factory()
    except TypeError as error:
        raise UserError(
            f"{spec} must be a torch module or a function without arguments that returns the model ({error})."
        ) from error
    if not callable(made):
        raise UserError(f"{spec} returned {type(made).__name__}; a torch module or a callable was expected.")
    return made


def _is_module(thing: Any) -> bool:
    """Whether it is a torch module, without importing torch where it is not installed."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(thing, torch.nn.Module)


def _pickle_refusal(path: Path) -> UserError:
    if _is_torchscript(path):
        return UserError(
            f"{path} is a TorchScript archive, and opening one can run any code, so it is refused; where the model was "
            "made, export the original with torch.export.save or torch.onnx.export."
        )
    return UserError(
        f"{path} is a pickle, and opening one can run any code, so it is refused; take the weights out of it with "
        f"`secondguess model convert {path}`, then give --model package.module:make_model --weights "
        f"{path.with_suffix('.safetensors')}."
    )


def _is_torchscript(path: Path) -> bool:
    """Whether it is an archive with constants beside its code, as TorchScript writes and nothing else of torch does."""
    try:
        with zipfile.ZipFile(path) as archive:
            return any(name.endswith("/constants.pkl") for name in archive.namelist())
    except (OSError, zipfile.BadZipFile):
        return False
