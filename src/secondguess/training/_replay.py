"""A training step that is recorded once and then replayed, for CUDA devices.

A step of a small network on small images takes hundreds of kernels of a few microseconds, and launching each costs the
processor more than running it costs the GPU. Recorded as a CUDA graph, all of them are launched at once.

What is recorded is repeated exactly: the layers must compute the same on every step, whatever the images, and
choose nothing in Python. Random numbers of the device (dropout) are drawn anew on every replay. The learning rate is
part of the recording, so a change of it needs a new one.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from secondguess.errors import UserError

__all__ = ["Replayed", "Step", "prepared"]

Step = Callable[..., tuple[Tensor, ...]]

WARM_UP = 3  # steps in which libraries and optimisers allocate what they keep


def prepared(step: Step, *, replay: bool) -> Step:
    """The step to repeat: recorded after its first calls, or unchanged."""
    return Replayed(step) if replay else step


class Replayed:
    """A step on tensors of one shape; on tensors of another (the last batch of an epoch) it is computed directly.

    The first steps are computed directly, too, and count as any other.

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

    def __call__(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Make one step; the tensors that it returns stay as they are in later steps.

        Raises:
            UserError: if the step cannot be recorded, because it reads numbers back from the device, for example.
        """
        shapes = [one.shape for one in inputs]
        if self._shapes is None:
            self._shapes = shapes
        if shapes != self._shapes:
            return self._step(*inputs)
        if self._steps < WARM_UP:
            self._steps += 1
            return self._beside(inputs)
        if self._graph is None:
            self._graph = self._recorded(inputs)
        for held, given in zip(self._inputs, inputs, strict=True):
            held.copy_(given)
        self._graph.replay()
        return tuple(one.clone() for one in self._outputs)

    def _beside(self, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """A step on the stream that the recording will be made on, as CUDA graphs require."""
        if self._stream is None:
            self._stream = torch.cuda.Stream(inputs[0].device)  # type: ignore[no-untyped-call]
        current = torch.cuda.current_stream(inputs[0].device)
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            outputs = self._step(*inputs)
        current.wait_stream(self._stream)
        return outputs

    def _recorded(self, inputs: tuple[Tensor, ...]) -> torch.cuda.CUDAGraph:
        """Record the step without making it."""
        self._inputs = tuple(one.clone() for one in inputs)
        graph = torch.cuda.CUDAGraph()
        # A recording that fails does not give the stream back; other threads may use the device meanwhile.
        with torch.cuda.stream(torch.cuda.current_stream(inputs[0].device)):
            try:
                with torch.cuda.graph(graph, stream=self._stream, capture_error_mode="thread_local"):
                    self._outputs = self._step(*self._inputs)
            except RuntimeError as error:
                reason = str(error).strip().partition("\n")[0]
                raise UserError(f"A training step cannot be recorded ({reason}); pass replay=False.") from error
        return graph
