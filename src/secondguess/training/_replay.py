"""A training step that is recorded once and then replayed, for CUDA devices.

A step of a small network on small images takes hundreds of kernels of a few microseconds, and launching each costs the
processor more than running it costs the GPU. Recorded as a CUDA graph, all of them are launched at once.

What is recorded is repeated to the letter: the layers must compute the same on every step, whatever the images, and
choose nothing in Python. Random numbers of the device (dropout) are drawn anew on every replay. The learning rate is
part of the recording, so whoever changes it starts a new one.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

__all__ = ["Replayed", "Step"]

Step = Callable[..., tuple[Tensor, ...]]

WARM_UP = 3  # steps in which libraries and optimisers allocate what they keep


class Replayed:
    """A step on tensors of one shape; on tensors of another (the last batch of an epoch) it is computed as it stands.

    The first steps are computed as they stand, too: they count as any other. So are all of them where the step cannot
    be recorded, because it reads numbers back from the device, for example.

    Args:
        step: takes tensors on a CUDA device, changes the model, and returns tensors; its state stays where it lies in
            memory.
    """

    def __init__(self, step: Step) -> None:
        self._step = step
        self._shapes: list[torch.Size] | None = None
        self._steps = 0
        self._stream: torch.cuda.Stream | None = None
        self._graph: torch.cuda.CUDAGraph | None = None
        self._inputs: tuple[Tensor, ...] = ()
        self._outputs: tuple[Tensor, ...] = ()
        self.recordable = True

    def __call__(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Make one step; the tensors that it returns stay as they are in later steps."""
        shapes = [one.shape for one in inputs]
        if self._shapes is None:
            self._shapes = shapes
        if not self.recordable or shapes != self._shapes:
            return self._step(*inputs)
        if self._steps < WARM_UP:
            self._steps += 1
            return self._beside(inputs)
        if self._graph is None and not self._record(inputs):
            return self._step(*inputs)
        assert self._graph is not None
        for held, given in zip(self._inputs, inputs, strict=True):
            held.copy_(given)
        self._graph.replay()
        return tuple(one.clone() for one in self._outputs)

    def _beside(self, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """A step on the stream that the recording will be made on, as CUDA graphs want it."""
        if self._stream is None:
            self._stream = torch.cuda.Stream(inputs[0].device)  # type: ignore[no-untyped-call]
        current = torch.cuda.current_stream(inputs[0].device)
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            outputs = self._step(*inputs)
        current.wait_stream(self._stream)
        return outputs

    def _record(self, inputs: tuple[Tensor, ...]) -> bool:
        """Record the step without making it; whether that was possible."""
        self._inputs = tuple(one.clone() for one in inputs)
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, stream=self._stream):
                self._outputs = self._step(*self._inputs)
        except RuntimeError:  # if the step itself is at fault, it will say so when it is computed as it stands
            self.recordable = False
            self._inputs = self._outputs = ()
            return False
        self._graph = graph
        return True
