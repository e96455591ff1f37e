"""A torch checkpoint as a safetensors file, without running any code that is in it.

A `.pth` file is a pickle, and a pickle may name any function to be called when it is opened. `torch.load` with
`weights_only=True` builds nothing but tensors and plain containers. What lies around the weights (optimisers, epochs,
settings) is left out and listed, and what training wrappers put before the names of the weights is taken off.
"""

from __future__ import annotations

import re
import warnings
import zipfile
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from secondguess.contracts.archives import check_archive
from secondguess.errors import UserError
from secondguess.files import atomic_path, make_folder, write_json
from secondguess.results import Result

if TYPE_CHECKING:
    import torch

__all__ = ["Conversion", "convert_checkpoint"]

PLAIN = ("state_dict", "model_state_dict", "model", "net", "network", "weights", "params")
AVERAGES = ("ema", "state_dict_ema", "model_ema", "ema_state_dict")
WRAPPERS = PLAIN + AVERAGES  # the first that exists is taken
MODULE, COMPILED = "module.", "_orig_mod."  # of data parallel and averaged models, and of torch.compile
AVERAGED = "n_averaged"  # beside the weights of torch.optim.swa_utils.AveragedModel


@dataclass(frozen=True)
class Conversion(Result):
    """The outcome of a conversion.

    Attributes:
        checkpoint: the file that was read.
        weights: the safetensors file that was written.
        tensors: how many tensors are in it.
        parameters: how many numbers.
        unwrapped: the keys that led to the weights, outermost first.
        stripped: what was taken off the names.
        dropped: what was left out, and what it was.
        shared: names of one and the same tensor, which is stored once for each.
    """

    checkpoint: str
    weights: str
    tensors: int
    parameters: int
    unwrapped: tuple[str, ...]
    stripped: tuple[str, ...]
    dropped: dict[str, str]
    shared: tuple[tuple[str, ...], ...]

    def summary(self) -> str:
        """Where the weights are, and what was changed and left out on the way."""
        lines = [f"{self.weights}: {self.tensors:,} tensors, {self.parameters:,} numbers"]
        if self.unwrapped:
            lines.append(f"  unwrapped    {' > '.join(self.unwrapped)}")
        if self.stripped:
            lines.append(f"  taken off    {', '.join(self.stripped)} (in the names)")
        if self.shared:
            groups = "; ".join(" = ".join(group) for group in self.shared[:3])
            lines.append(f"  shared       {groups}{' ...' if len(self.shared) > 3 else ''} (stored under each name)")
        if self.dropped:
            first = [f"{name} ({what})" for name, what in list(self.dropped.items())[:8]]
            more = f" and {len(self.dropped) - 8} more" if len(self.dropped) > 8 else ""
            lines.append(f"  left out     {', '.join(first)}{more}")
        lines.append(f"Use it: --model package.module:make_model --weights {self.weights}")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """The attributes."""
        return (
            asdict(self)
            | {name: list(getattr(self, name)) for name in ("unwrapped", "stripped")}
            | {"shared": [list(group) for group in self.shared]}
        )

    def save(self, folder: str | Path) -> Path:
        """Write `conversion.json`."""
        write_json(make_folder(folder) / "conversion.json", self.to_dict())
        return Path(folder)


def convert_checkpoint(
    checkpoint: str | Path, folder: str | Path | None = None, *, key: str | None = None
) -> Conversion:
    """Write the weights of a torch checkpoint as safetensors.

    Args:
        checkpoint: a `.pth`, `.pt`, `.ckpt` or `.bin` file that `torch.save` has written.
        folder: for the weights, under the checkpoint's name with `.safetensors`; by default beside the checkpoint.
        key: which part of the checkpoint holds the weights, such as `ema`; by default `state_dict`, `model` and the
            like are tried. It becomes part of the file's name, `checkpoint-ema.safetensors`.
    """
    path = Path(checkpoint)
    if folder is not None and Path(folder).suffix == ".safetensors":
        raise UserError(f"The file {folder} was given where a folder for the weights is expected.")
    name = path.stem if key is None else f"{path.stem}-{key}"
    target = (path.parent if folder is None else make_folder(folder)) / f"{name}.safetensors"
    found, unwrapped, dropped = _unwrapped(_loaded(path), path, key)
    tensors = {name: value for name, value in found.items() if _is_dense(value)}
    dropped |= {name: _what(value) for name, value in found.items() if name not in tensors}
    tensors, stripped, more = _renamed(tensors, path)
    dropped |= more
    if not tensors:
        raise UserError(f"{path} holds no tensors; it is not a checkpoint of weights.")
    _write({name: value.detach().clone().contiguous() for name, value in tensors.items()}, target)
    return Conversion(
        checkpoint=str(path),
        weights=str(target),
        tensors=len(tensors),
        parameters=sum(value.numel() for value in tensors.values()),
        unwrapped=unwrapped,
        stripped=stripped,
        dropped=dropped,
        shared=_shared(tensors),
    )


def _loaded(path: Path) -> Any:
    """What is in a checkpoint: tensors and plain containers, or a refusal."""
    import pickle

    import torch

    if not path.is_file():
        raise UserError(f"There is no checkpoint at {path}.")
    if path.suffix.lower() in (".onnx", ".pt2", ".safetensors"):
        raise UserError(f"{path} is no pickled checkpoint and need not be converted; give it as it is.")
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                check_archive(path, archive)
        with torch.serialization.safe_globals(_harmless()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return torch.load(path, map_location="cpu", weights_only=True)
    except UserError:
        raise
    except pickle.UnpicklingError as error:
        named = re.search(r"GLOBAL ([\w.]+)", str(error))
        inside = f" (it holds a {named[1]})" if named else ""
        raise UserError(
            f"{path} is not a checkpoint of weights alone{inside}, and opening the rest could run any code, so it is "
            "refused; where the model was made, save its weights, torch.save(model.state_dict(), 'weights.pth'), or "
            "the whole of it with torch.export.save or torch.onnx.export."
        ) from error
    except Exception as error:  # the reader has no common exception type
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        if "TorchScript" in reason:
            raise UserError(
                f"{path} is a TorchScript archive, not a checkpoint; export the original model with torch.export.save."
            ) from error
        raise UserError(
            f"{path} is not a torch checkpoint that can be read ({type(error).__name__}: {reason[:200]})."
        ) from error


def _harmless() -> list[Any]:
    """What checkpoints often hold beside tensors and what does nothing when it is built: settings, NumPy's numbers."""
    import numpy as np
    import torch

    scalar: Any = np.float64(0).__reduce__()[0]
    scalars = [scalar]
    if tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 7):  # older ones know no other names
        scalars = [(scalar, f"numpy.{core}.multiarray.scalar") for core in ("core", "_core")]
    return [Namespace, np.dtype, *scalars, *(type(np.dtype(kind)) for kind in ("f4", "f8", "i4", "i8", "b1"))]


def _unwrapped(found: Any, path: Path, key: str | None) -> tuple[dict[str, Any], tuple[str, ...], dict[str, str]]:
    """The weights, the keys that led to them, and what lay beside them."""
    import torch

    keys: list[str] = []
    beside: dict[str, str] = {}
    while True:
        if isinstance(found, torch.Tensor) or not isinstance(found, Mapping):
            raise UserError(f"{path} holds {_what(found)}, not a dictionary of weights.")
        nested = [name for name, value in found.items() if isinstance(value, Mapping) and _holds_tensors(value)]
        if not keys and key is not None and key not in nested:
            raise UserError(f"{path} has no weights under {key!r}; it has {', '.join(map(str, nested)) or 'none'}.")
        known = [name for name in WRAPPERS if name in nested]
        chosen = key if key in nested and not keys else next(iter(known), None)
        if chosen is None:
            if len(nested) == 1 and not any(isinstance(value, torch.Tensor) for value in found.values()):
                chosen = nested[0]
            else:
                return {str(name): value for name, value in found.items()}, tuple(keys), beside
        where = ".".join([*keys, ""])
        beside |= {f"{where}{name}": _what(value) for name, value in found.items() if name != chosen}
        keys.append(str(chosen))
        found = found[chosen]


def _holds_tensors(value: Mapping[Any, Any]) -> bool:
    """Whether the values are tensors, or lead to such."""
    import torch

    return any(
        isinstance(one, torch.Tensor) or (isinstance(one, Mapping) and _holds_tensors(one)) for one in value.values()
    )


def _renamed(
    tensors: Mapping[str, torch.Tensor], path: Path
) -> tuple[dict[str, torch.Tensor], tuple[str, ...], dict[str, str]]:
    """The tensors by the names that the model itself gives them."""
    stripped: list[str] = []
    dropped: dict[str, str] = {}
    named = dict(tensors)
    while True:
        others = [name for name in named if name != AVERAGED]
        if others and all(name.startswith(MODULE) for name in others):
            if AVERAGED in named:
                dropped[AVERAGED] = _what(named.pop(AVERAGED))
            named, taken = {name.removeprefix(MODULE): value for name, value in named.items()}, MODULE
        elif any(COMPILED in name for name in named):
            renamed = {name.replace(COMPILED, ""): value for name, value in named.items()}
            if len(renamed) < len(named):
                raise UserError(f"{path} has weights that differ only by {COMPILED!r} in their names; save it again.")
            named, taken = renamed, COMPILED
        else:
            return named, tuple(dict.fromkeys(stripped)), dropped
        stripped.append(taken)


def _is_dense(value: Any) -> bool:
    import torch

    return isinstance(value, torch.Tensor) and value.layout == torch.strided and not value.is_quantized


def _what(value: Any) -> str:
    """What was left out, in a word or two."""
    import torch

    if isinstance(value, torch.Tensor):
        kind = "quantised " if value.is_quantized else "" if value.layout == torch.strided else "sparse "
        return f"{kind}tensor {tuple(value.shape)}"
    if isinstance(value, Mapping):
        return f"{len(value)} entries"
    if value is None or isinstance(value, (bool, int, float)) or (isinstance(value, str) and len(value) <= 20):
        return str(value)
    return type(value).__name__


def _shared(tensors: Mapping[str, torch.Tensor]) -> tuple[tuple[str, ...], ...]:
    """Groups of names whose tensors lie in the same memory."""
    groups: dict[Any, list[str]] = {}
    for name, value in tensors.items():
        if value.numel():
            groups.setdefault((value.data_ptr(), tuple(value.shape), value.stride()), []).append(name)
    return tuple(tuple(names) for names in groups.values() if len(names) > 1)


def _write(tensors: dict[str, torch.Tensor], target: Path) -> None:
    from safetensors.torch import save_file

    with atomic_path(target) as temporary:
        save_file(tensors, temporary)
        if target.exists() and target.read_bytes() != temporary.read_bytes():
            raise UserError(f"{target} is there already and holds other weights; name another folder with --out.")
