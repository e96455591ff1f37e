"""A guard without torch: the model, the scores and everything else a judgement takes, for ONNX Runtime and NumPy.

    model.onnx                  images (n, C, H, W), normalised -> probabilities (n, K) and scores (n, m)
    scores.onnx                 only for a model that was an ONNX file already: `model.onnx` is then that file with the
                                traced layers as further outputs, and this graph makes scores of its raw output and
                                them, and of the pixels where a supervisor looks at these
    onnx.json                   how the two fit together, settings, actions, panel
    panel-DIGEST.safetensors    the arrays of panel, cascade and calibration

`runtime.Runtime` reads the folder and judges as the guard does. Scores are in double precision. With a cascade all of
them are computed all the same, and the answers are those of the cascade.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from secondguess.contracts.sealed import file_digest, write_json_sealed
from secondguess.errors import UserError, require
from secondguess.files import atomic_path, make_folder, write_bytes
from secondguess.guard.artefact import decision_arrays, store_arrays
from secondguess.guard.runtime import FORMAT

if TYPE_CHECKING:
    from secondguess.guard.guard import Guard

__all__ = ["export_onnx"]

OUTPUTS = ["probabilities", "scores"]


def export_onnx(guard: Guard, folder: str | Path) -> Path:
    """Write a guard, with its model, for ONNX Runtime.

    Args:
        guard: fitted; its supervisors must have graphs (`Supervisor.has_graph`), and its classifier must be a torch
            module or an ONNX file.
        folder: is made if need be.
    """
    require("onnx", "onnx")
    require("onnxscript", "onnx")
    import torch

    from secondguess.model.backends.onnx_graph import OnnxBackend
    from secondguess.model.backends.torch_module import TorchBackend
    from secondguess.supervisors.scored_module import ScoredModule, ScoreHead

    pipeline, classifier = guard.pipeline, guard.classifier
    located = classifier.locate(guard.needs.traces, guard.shape)
    layers = list(dict.fromkeys(located.values()))
    pixels = pipeline.supervisors.needs.images
    folder = make_folder(folder)
    backend = classifier.backend
    if isinstance(backend, TorchBackend):
        probe = torch.rand(2, *guard.shape, device=backend.device)
        whole = ScoredModule(classifier, pipeline.supervisors, guard.shape)
        _export(whole, [probe], folder / "model.onnx", ["images"], OUTPUTS)
    elif isinstance(backend, OnnxBackend):
        _with_layers(backend, layers, folder / "model.onnx")
        noise = np.random.default_rng(0).random((2, *guard.shape), dtype=np.float32)
        raw, activations = backend.forward(classifier.normalised(noise), layers)
        seen = (raw, *([noise] if pixels else []), *(activations[layer] for layer in layers))
        tensors = [torch.from_numpy(np.ascontiguousarray(one)) for one in seen]
        places = {trace: layers.index(layer) for trace, layer in located.items()}
        logits = "logits" in classifier.gives
        scores = ScoreHead(pipeline.supervisors, logits=logits, places=places, kept=classifier.kept)
        given = ["raw", *(["pixels"] if pixels else []), *(f"layer{number}" for number in range(len(layers)))]
        _export(scores, tensors, folder / "scores.onnx", given, OUTPUTS)
    else:
        raise UserError(f"{backend.kind} cannot be exported to ONNX; wrap the torch module itself, or an ONNX file.")
    card = {
        "format": FORMAT,
        "shape": list(guard.shape),
        "resize": classifier.description.resize,
        "class_names": list(pipeline.class_names),
        "false_alarms": pipeline.false_alarms,
        "min_probability": pipeline.min_probability,
        "actions": dict(pipeline.actions.chosen),
        "labels": list(pipeline.labels),
        "mean": classifier.mean.tolist(),
        "std": classifier.std.tolist(),
        "channels_last": isinstance(backend, OnnxBackend) and backend.channels_last,
        "two_graphs": isinstance(backend, OnnxBackend),
        "layers": layers,
        "pixels": pixels,
        "panel": pipeline.panel.card(),
        "cascade": None if pipeline.cascade is None else pipeline.cascade.card(),
        "naming": None if pipeline.naming is None else pipeline.naming.card(),
        "arrays": store_arrays(folder, decision_arrays(pipeline)),
    }
    files = ["model.onnx", *(["scores.onnx"] if card["two_graphs"] else [])]
    card["files"] = {name: file_digest(folder / name) for name in files}
    write_json_sealed(folder / "onnx.json", card)
    return folder


def _with_layers(backend: Any, layers: Sequence[str], path: Path) -> None:
    """Write an ONNX file again, with the layers as further outputs."""
    if backend.fixed_batch is not None:
        raise UserError(
            f"{backend.path} takes batches of {backend.fixed_batch} images only; export the model with a dynamic "
            "batch axis first."
        )
    write_bytes(path, backend.with_outputs(tuple(layer for layer in layers if layer != backend.output)))


@contextmanager
def _without_remarks() -> Iterator[None]:
    """Without the exporter's log lines about libraries that are not installed and that nothing here uses."""
    log = logging.getLogger("torch.onnx")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)


def _export(module: Any, inputs: list[Any], path: Path, given: list[str], returned: list[str]) -> None:
    """Export a torch module with a dynamic first axis, to one file."""
    import torch

    batch = torch.export.Dim("n", min=1)
    shapes: Any = tuple({0: batch} for _ in inputs)
    with warnings.catch_warnings(), _without_remarks(), torch.no_grad():
        warnings.simplefilter("ignore")  # the exporter's remarks about itself
        program = torch.onnx.export(
            module,
            tuple(inputs),
            dynamo=True,
            dynamic_shapes=shapes if len(given) == 1 else (shapes[0], shapes[1:]) if len(inputs) > 1 else shapes,
            input_names=given,
            output_names=returned,
            verbose=False,
        )
    assert program is not None
    with atomic_path(path) as temporary:
        program.save(str(temporary), external_data=False)
