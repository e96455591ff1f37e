"""A quick look at a few images: what `Classifier.observe` sees, without files, caches and image sets.

At run time images come one by one, and a small network answers in a fifth of a millisecond. `Classifier.observe` finds
out for every set what it is, what was cached, and where the layers are; an `Eye` finds that out once. For a torch
module its hooks stay in place, and each thread keeps what it saw to itself, so that many may look at the same time.

The module is put into eval mode when the eye is made, and again whenever somebody has switched it to training.
"""

from __future__ import annotations

import threading
from typing import Any

from secondguess.guard.inputs import Floats, Shape
from secondguess.images.sources import ArraySource
from secondguess.model.classifier import Classifier
from secondguess.model.observation import Needs, Observation, Trace

__all__ = ["Eye"]

INPUT = "@input"  # after the name of a torch layer: what it is fed, rather than what it gives


class Eye:
    """Looks through a classifier at images of one shape.

    Args:
        classifier: the system under test.
        needs: what to see.
        shape: (C, H, W) of the images.
    """

    def __init__(self, classifier: Classifier, needs: Needs, shape: Shape) -> None:
        self.classifier, self.needs, self.shape = classifier, needs, shape
        self._items = classifier.items(shape, needs)
        self._layers = {item.layer for item in self._items if item.trace}
        self._traces = {item.trace: item.layer for item in self._items if item.trace}
        self._backend: Any = classifier.backend
        # Found out once: `normalised` looks at mean and std for every image.
        self._plain = not classifier.mean.any() and bool((classifier.std == 1).all())
        self._seen = threading.local()
        self._hooks: list[Any] = []
        self._module = self._hooked() if self._is_quick() else None

    def look(self, images: Floats) -> Observation:
        """What is seen of images (n, C, H, W) in [0, 1]."""
        batch = self.classifier.batch_size
        if self.needs.samples or len(images) > batch:
            return self.classifier.observe(ArraySource(images, "NCHW"), self.needs)
        probabilities, logits, traces = self._recorded(images) if self._module is not None else self._asked(images)
        return Observation(
            probabilities=probabilities,
            logits=logits if self.needs.logits else None,
            traces=traces,
            images=ArraySource(images, "NCHW") if self.needs.images else None,
            class_names=self.classifier.class_names,
        )

    def layer_of(self, trace: Trace) -> str:
        """The name under which the backend knows the layer of a trace."""
        return self._traces[trace]

    def close(self) -> None:
        """Take the hooks away from the module; the eye then looks as slowly as everybody else."""
        for hook in self._hooks:
            hook.remove()
        self._hooks, self._module = [], None

    def _asked(self, images: Floats) -> tuple[Any, Any, dict[Any, Any]]:
        """Probabilities, logits and traces, from the backend."""
        values = self.classifier.look(images, self._items)
        by_what = {item.what: value for item, value in values.items() if not item.trace}
        return by_what["probabilities"], by_what.get("logits"), {i.trace: v for i, v in values.items() if i.trace}

    def _recorded(self, images: Floats) -> tuple[Any, Any, dict[Any, Any]]:
        """The same from the module itself, whose hooks have written down the traces."""
        import torch

        from secondguess.model.backends.torch_module import to_numpy

        assert self._module is not None
        if self._module.training:
            self._module.eval()
        seen: dict[str, Any] = {}
        self._seen.layers = seen
        with torch.inference_mode():
            inputs = torch.from_numpy(images if self._plain else self.classifier.normalised(images))
            output = self._backend.run(inputs.to(self._backend.device))
            raw = to_numpy(output)
            found = {trace: trace.apply(to_numpy(seen[layer])) for trace, layer in self._traces.items()}
        probabilities, logits = self.classifier.read(raw, len(images))
        return probabilities, logits, found

    def _is_quick(self) -> bool:
        """Whether the model is a torch module whose wanted layers run once in a pass."""
        from secondguess.model.backends.torch_module import TorchBackend

        return isinstance(self._backend, TorchBackend) and not any("#" in layer for layer in self._layers)

    def _hooked(self) -> Any:
        """The module, in eval mode, with hooks that write down what the wanted layers are fed or give."""
        module = self._backend.module.eval()
        parts = dict(module.named_modules())
        parts["(model)"] = module

        def record(layer: str) -> Any:
            wants_input = layer.endswith(INPUT)

            def hook(_module: Any, fed: tuple[Any, ...], output: Any) -> None:
                seen = getattr(self._seen, "layers", None)
                if seen is not None and layer not in seen:
                    # An in-place layer after this one would overwrite what was seen.
                    seen[layer] = (fed[0] if wants_input else output).clone()

            return hook

        for layer in self._layers:
            self._hooks.append(parts[layer.removesuffix(INPUT)].register_forward_hook(record(layer)))
        return module
