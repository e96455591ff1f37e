"""A `torch.export` program (`.pt2`) as a model: the graph is run node by node where traces are wanted."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import fx

from secondguess.devices import pick_device
from secondguess.errors import UserError
from secondguess.model.backends.base import (
    TORCH_VALUES,
    Array,
    Backend,
    Layer,
    chosen_output,
    digest,
    first_line,
    without_padding,
)
from secondguess.model.backends.differentiable import frozen
from secondguess.model.backends.pt2_check import checked_archive, opening_safely
from secondguess.model.backends.torch_module import to_numpy

__all__ = ["ExportedBackend"]

WEIGHTED = ("conv1d", "conv2d", "conv3d", "convolution", "linear", "addmm", "mm", "matmul", "bmm", "einsum")


class ExportedBackend(Backend):
    """Runs an exported program; a layer is a call in its graph, named as in `program.graph`."""

    kind = "An exported program"

    def __init__(self, path: str | Path, *, device: str = "auto", output: int | str | None = None) -> None:
        self.path, self.output = Path(path), output
        self.device = pick_device(device)
        self.values = TORCH_VALUES if self.device.type == "cpu" else None
        archive = checked_archive(self.path)
        self._identity = digest(archive.getbuffer())
        try:
            with opening_safely():
                program = torch.export.load(archive)
            self.graph = _module(program).to(self.device)
        except Exception as error:  # the loader has no common exception type
            reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            raise UserError(f"{self.path} is not a torch.export program that can be run here: {reason}") from error
        example = next((node for node in self.graph.graph.nodes if node.op == "placeholder"), None)
        shape = [_static(size) for size in example.meta["val"].shape] if example is not None else []
        if len(shape) != 4:
            raise UserError(f"The input of {self.path} has {len(shape)} axes; images have four (n, C, H, W).")
        if all(size is not None for size in shape[1:]):
            self.input_shape = (shape[1], shape[2], shape[3])  # type: ignore[assignment]
        self._fixed_batch = shape[0]

    @property
    def gives(self) -> frozenset[str]:
        """Traces and gradients; dropout was frozen by the export."""
        return frozenset({"probabilities", "traces", "gradients"})

    def forward(self, images: Array, layers: Sequence[str] = ()) -> tuple[Array, dict[str, Array]]:
        """Run the program, through an interpreter that keeps the values of `layers` where any are asked for."""
        known = [node.name for node in self._calls()]
        if unknown := [name for name in layers if name not in known]:
            raise self.without_layers(unknown, known)
        runner = _Recorder(self.graph, frozenset(layers)) if layers else None
        parts: list[tuple[torch.Tensor, dict[str, torch.Tensor]]] = []
        with torch.inference_mode():
            for rows in self._chunks(torch.from_numpy(images)):
                scores = self._run(runner, rows.to(self.device))
                parts.append((scores, dict(runner.kept) if runner else {}))
        output = without_padding([to_numpy(output) for output, _ in parts], len(images), self._fixed_batch)
        traces = {
            name: without_padding([to_numpy(kept[name]) for _, kept in parts], len(images), self._fixed_batch)
            for name in layers
        }
        return output, traces

    def layers(self, probe: Array) -> list[Layer]:
        """The calls of the graph that give one row per image."""
        nodes = self._calls()
        two = np.repeat(probe, 2, axis=0)
        _, values = self.forward(two, [node.name for node in nodes])
        weighted = self._weighted()
        return [
            Layer(node.name, _operator(node), tuple(values[node.name].shape[1:]), node in weighted)
            for node in nodes
            if values[node.name].ndim > 1 and len(values[node.name]) == 2
        ]

    def penultimate(self, probe: Array) -> str:
        """The call that feeds the last one with weights."""
        weighted = list(self._weighted().values())
        if not weighted or weighted[-1].op != "call_function":
            raise self.without_penultimate()
        return weighted[-1].name

    def differentiable(self, images: torch.Tensor) -> torch.Tensor:
        """Run the program with gradients for the images alone."""
        with frozen(self.graph):
            parts = [self._run(None, rows) for rows in self._chunks(images)]
        return parts[0] if self._fixed_batch is None else torch.cat(parts)[: len(images)]

    def identity(self) -> str:
        """A digest of what is in the file."""
        return self._identity

    def _run(self, runner: _Recorder | None, rows: torch.Tensor) -> torch.Tensor:
        try:
            output = runner.run(rows) if runner else self.graph(rows)
        except (RuntimeError, ValueError, AssertionError) as error:
            shape = tuple(rows.shape[1:])
            raise UserError(f"{self.path} cannot take images of shape {shape}: {first_line(error)}") from error
        output = chosen_output(output, self.output, str(self.path))
        if not isinstance(output, torch.Tensor):
            raise UserError(f"{self.path} returns {type(output).__name__}; a classifier returns one tensor (n, K).")
        return output

    def _chunks(self, images: torch.Tensor) -> Sequence[torch.Tensor]:
        """All at once, or padded to the batch size that the export has frozen."""
        size = self._fixed_batch
        if size is None:
            return [images]
        missing = -len(images) % size
        if missing:
            images = torch.cat([images, images[-1:].expand(missing, *images.shape[1:])])
        return torch.split(images, size)

    def _calls(self) -> list[fx.Node]:
        return [
            node
            for node in self.graph.graph.nodes
            if node.op == "call_function" and isinstance(node.meta.get("val"), torch.Tensor)
        ]

    def _weighted(self) -> dict[fx.Node, fx.Node]:
        """The calls that weigh what comes from the image with what does not, and their input from the image."""
        reached: set[fx.Node] = set()
        weighted: dict[fx.Node, fx.Node] = {}
        for node in self.graph.graph.nodes:
            fed = [source for source in node.all_input_nodes if source in reached]
            if node.op == "placeholder" or fed:
                reached.add(node)
            if fed and len(fed) < len(node.all_input_nodes) and _operator(node).partition(".")[0] in WEIGHTED:
                weighted[node] = fed[0]
        return weighted


class _Recorder(fx.Interpreter):
    """Runs a graph and keeps the values of the nodes in `wanted`."""

    def __init__(self, graph: fx.GraphModule, wanted: frozenset[str]) -> None:
        super().__init__(graph)
        self.wanted = wanted
        self.kept: dict[str, torch.Tensor] = {}

    def run_node(self, n: fx.Node) -> Any:
        value = super().run_node(n)
        if n.name in self.wanted:
            self.kept[n.name] = value.clone()
        return value


def _module(program: Any) -> fx.GraphModule:
    """The program as a module, without the guard function: torch would `exec` source text found in the file for it."""
    if "check_guards" in inspect.signature(program.module).parameters:
        return program.module(check_guards=False)
    return program.module()


def _operator(node: fx.Node) -> str:
    return str(node.target).removeprefix("aten.")


def _static(size: Any) -> int | None:
    return size if isinstance(size, int) else None
