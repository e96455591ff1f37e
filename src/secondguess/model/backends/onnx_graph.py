"""An ONNX file as a model, run by ONNX Runtime; intermediate tensors become traces by declaring them outputs."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from secondguess.errors import UserError, require
from secondguess.model.backends.base import ONNX_VALUES, Array, Backend, Layer, digest, without_padding

__all__ = ["OnnxBackend"]

WEIGHTED = ("Conv", "Gemm", "MatMul", "Einsum")
CPU, CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"
FLOATS = {"tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(float16)": np.float16}


class _Node(NamedTuple):
    """What is known of a node: its operator and, if it has weights, the tensor from the image that it weighs."""

    kind: str
    weighs: str | None


class OnnxBackend(Backend):
    """Runs one ONNX graph with one image input and the class scores as its first output, unless another is named.

    A layer is a node; its name is the name of the tensor it writes. Inputs in (n, H, W, C) order, as TensorFlow exports
    them, are recognised by their last axis and fed accordingly.

    Attributes:
        device: where the graph really runs: `cpu` or `cuda:N`. ONNX Runtime has nothing for `mps`, which means `cpu`.
        output: the name of the class scores.
        channels_last: whether inputs are in (n, H, W, C) order.
        fixed_batch: the number of images per pass, if the graph fixes it.
        files: the file and those that hold its weights.
    """

    kind = "An ONNX model"

    def __init__(self, path: str | Path, *, device: str = "auto", output: int | str | None = None) -> None:
        self.path = Path(path)
        self._runtime = require("onnxruntime", "onnx")
        self._providers = _providers(self._runtime, device)
        self._sessions: dict[tuple[str, ...], Any] = {}
        session = self._session(())
        self.device = _device_of(session, device)
        self.values = ONNX_VALUES if self.device == "cpu" else None
        inputs = session.get_inputs()
        if len(inputs) != 1:
            names = ", ".join(one.name for one in inputs)
            raise UserError(f"{self.path} has {len(inputs)} inputs ({names}); a classifier of images has one.")
        self._input = inputs[0]
        if self._input.type not in FLOATS:
            raise UserError(f"The input of {self.path} is {self._input.type}; an image classifier takes floats.")
        self._dtype = FLOATS[self._input.type]
        self.outputs = tuple(one.name for one in session.get_outputs())
        self.output = self._chosen(0 if output is None else output)
        if output is None and len(self.outputs) > 1:
            warnings.warn(
                f"{self.path} has {len(self.outputs)} outputs ({', '.join(self.outputs)}); {self.output!r}, the first, "
                "is used. If another has the class scores, say so with `use` under [output] in a model.toml.",
                stacklevel=2,
            )
        self.channels_last, self.input_shape = _layout(self.path, self._input.shape)
        batch = self._input.shape[0]
        self.fixed_batch = batch if isinstance(batch, int) and batch > 0 else None
        self.files = (self.path, *sorted(self._external))
        self._identity = digest(self._runtime.__version__, *(file.read_bytes() for file in self.files))

    @property
    def gives(self) -> frozenset[str]:
        """Probabilities and traces; no gradients, and dropout has been removed by the export."""
        return frozenset({"probabilities", "traces"})

    def forward(self, images: Array, layers: Sequence[str] = ()) -> tuple[Array, dict[str, Array]]:
        """Run the graph, with `layers` as further outputs."""
        if unknown := [name for name in layers if name not in self._nodes]:
            raise self.without_layers(unknown, list(self._nodes))
        extra = tuple(name for name in layers if name != self.output)
        session = self._session(extra)
        inputs = np.moveaxis(images, 1, -1) if self.channels_last else images
        inputs = np.ascontiguousarray(inputs, dtype=self._dtype)
        chunks = [self._run(session, rows, [self.output, *extra]) for rows in self._chunks(inputs)]
        arrays = [without_padding(parts, len(images), self.fixed_batch) for parts in zip(*chunks, strict=True)]
        recorded = dict(zip([self.output, *extra], arrays, strict=True))
        return arrays[0], {name: recorded[name] for name in layers}

    def layers(self, probe: Array) -> list[Layer]:
        """The nodes whose output depends on the image, in graph order, with the shapes they really have."""
        # Only what has one row per image is a layer: shape arithmetic and constants of the graph are not.
        _, values = self.forward(np.repeat(probe, 2, axis=0), list(self._nodes))
        return [
            Layer(name, node.kind, tuple(values[name].shape[1:]), node.weighs is not None)
            for name, node in self._nodes.items()
            if values[name].ndim > 1 and len(values[name]) == 2
        ]

    def penultimate(self, probe: Array) -> str:
        """The tensor that the last node with weights reads."""
        weighed = [node.weighs for node in self._nodes.values() if node.weighs is not None]
        if not weighed or weighed[-1] not in self._nodes:
            raise self.without_penultimate()
        return weighed[-1]

    def identity(self) -> str:
        """A digest of the file, of the files with external weights beside it, and of the runtime's version."""
        return self._identity

    def _chosen(self, which: int | str) -> str:
        """The name of an output, given by name or number."""
        if isinstance(which, int) and which < len(self.outputs):
            return self.outputs[which]
        if which not in self.outputs:
            raise UserError(f"{self.path} has no output {which!r}; its outputs are {', '.join(self.outputs)}.")
        return str(which)

    def _run(self, session: Any, rows: np.ndarray[Any, Any], names: list[str]) -> list[Array]:
        try:
            values = session.run(names, {self._input.name: rows})
        except Exception as error:  # ONNX Runtime has no public exception type of its own
            reason = str(error).strip().splitlines()[-1]
            shape = tuple(rows.shape[1:])
            raise UserError(f"{self.path} cannot take images of shape {shape}: {reason}") from error
        return [np.asarray(value, dtype=np.float32) for value in values]

    def _chunks(self, inputs: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
        """Batches as large as the graph takes: all at once, or padded to its fixed batch size."""
        size = self.fixed_batch
        if size is None:
            return [inputs]
        missing = -len(inputs) % size
        if missing:
            inputs = np.concatenate([inputs, np.repeat(inputs[-1:], missing, axis=0)])
        return np.split(inputs, len(inputs) // size)

    def _session(self, extra: tuple[str, ...]) -> Any:
        """A session that also returns `extra` tensors; sessions are kept, making one costs more than a batch."""
        if extra not in self._sessions:
            options = self._runtime.SessionOptions()
            options.log_severity_level = 3
            options.intra_op_num_threads = _threads()
            source = str(self.path) if not extra else self.with_outputs(extra)
            try:
                self._sessions[extra] = self._runtime.InferenceSession(source, options, providers=self._providers)
            except Exception as error:
                reason = str(error).strip().splitlines()[-1]
                raise UserError(f"{self.path} is not an ONNX model that can be run: {reason}") from error
        return self._sessions[extra]

    def with_outputs(self, extra: tuple[str, ...]) -> bytes:
        """The graph, as ONNX, that gives the values `extra` too."""
        onnx = require("onnx", "onnx")
        model = onnx.ModelProto()
        model.CopyFrom(self._graph)
        for name in extra:
            model.graph.output.append(onnx.ValueInfoProto(name=name))
        data: bytes = model.SerializeToString()
        return data

    @cached_property
    def _graph(self) -> Any:
        onnx = require("onnx", "onnx")
        return onnx.load(str(self.path))  # external weights are pulled in, so the edited copy stands alone

    @cached_property
    def _external(self) -> list[Path]:
        onnx = require("onnx", "onnx")
        bare = onnx.load(str(self.path), load_external_data=False)
        names = {
            entry.value
            for tensor in bare.graph.initializer
            for entry in tensor.external_data
            if entry.key == "location"
        }
        return [self.path.parent / name for name in names]

    @cached_property
    def _nodes(self) -> dict[str, _Node]:
        """The nodes that the image flows through, by the name of the tensor they write."""
        reached = {self._input.name}
        nodes: dict[str, _Node] = {}
        for node in self._graph.graph.node:
            fed = [name for name in node.input if name in reached]
            if fed and node.output and node.op_type != "Shape":  # nor what is computed from shapes alone
                reached.update(node.output)
                weighted = node.op_type in WEIGHTED and len(fed) < len([name for name in node.input if name])
                nodes[node.output[0]] = _Node(node.op_type, fed[0] if weighted else None)
        return nodes


def _layout(path: Path, shape: list[Any]) -> tuple[bool, tuple[int, int, int] | None]:
    """Whether the input is (n, H, W, C), and its (C, H, W) where the file fixes it."""
    if len(shape) != 4:
        raise UserError(f"The input of {path} has {len(shape)} axes; images have four (n, C, H, W).")
    sizes = [size if isinstance(size, int) and size > 0 else None for size in shape[1:]]
    channels_last = sizes[2] in (1, 3) and sizes[0] not in (1, 3)
    if channels_last:
        sizes = [sizes[2], sizes[0], sizes[1]]
    if any(size is None for size in sizes):
        return channels_last, None
    return channels_last, (sizes[0], sizes[1], sizes[2])  # type: ignore[return-value]


def _providers(runtime: Any, device: str) -> list[Any]:
    """The execution providers to ask for, the preferred one first, with the number of the CUDA device."""
    named = re.fullmatch(r"auto|cpu|mps|cuda(?::(\d+))?", device)
    if named is None:
        raise UserError(f"{device!r} is not a device; use 'auto', 'cpu', 'cuda', 'cuda:<number>' or 'mps'.")
    available = runtime.get_available_providers()
    if device.startswith("cuda") and CUDA not in available:
        raise UserError(f"The device {device!r} was asked for, but this ONNX Runtime has {', '.join(available)} only.")
    if CUDA not in available or device in ("cpu", "mps"):
        return [CPU]
    return [(CUDA, {"device_id": int(named[1] or 0)}), CPU]


def _device_of(session: Any, asked: str) -> str:
    """Where a session runs; ONNX Runtime falls back to the processor when CUDA does not start."""
    if CUDA in session.get_providers():
        number = session.get_provider_options().get(CUDA, {}).get("device_id", "0")
        return f"cuda:{number}"
    if asked.startswith("cuda"):
        raise UserError(
            f"The device {asked!r} was asked for, but ONNX Runtime could not start CUDA there; use device='auto' or "
            "device='cpu'."
        )
    return "cpu"


def _threads() -> int:
    """What OMP_NUM_THREADS says, as torch understands it; 0 for a thread on every core."""
    said = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    return int(said) if said.isdecimal() else 0
