"""A guard without torch: the model, the scores and everything else a judgement takes, for ONNX Runtime and NumPy.

    model-DIGEST.onnx           images (n, C, H, W), normalised -> probabilities (n, K) and scores (n, m)
    scores-DIGEST.onnx          only for a model that was an ONNX file already: the first is then that file with the
                                traced layers as further outputs, and this graph makes scores of its raw output and
                                them, and of the pixels where a supervisor looks at these
    panel-DIGEST.safetensors    the arrays of panel, cascade and calibration
    onnx.json                   names these, and holds how they fit together, settings, actions, panel

`runtime.Runtime` reads the folder and judges as the guard does. Scores are in double precision. With a cascade all of
them are computed all the same, and the answers are those of the cascade. An export that is interrupted leaves an older
one in the folder as it was.
"""

from __future__ import annotations

import logging
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from secondguess.contracts.content_named import content_digest, sweep_parts
from secondguess.contracts.sealed import digest_of, read_json, write_json_sealed
from secondguess.errors import UserError, require
from secondguess.files import make_folder, write_bytes
from secondguess.guard.artefact import decision_arrays, store_arrays
from secondguess.guard.runtime import FORMAT

if TYPE_CHECKING:
    from secondguess.guard.guard import Guard

__all__ = ["export_onnx"]

OUTPUTS = ["probabilities", "scores"]
CARD = "onnx.json"
DIGEST = 16 * "[0-9a-f]"
PARTS = (f"model-{DIGEST}.onnx", f"scores-{DIGEST}.onnx", f"panel-{DIGEST}.safetensors")


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
        graphs = {"model": _exported(whole, [probe], ["images"], OUTPUTS)}
    elif isinstance(backend, OnnxBackend):
        graphs = {"model": _with_layers(backend, layers)}
        noise = np.random.default_rng(0).random((2, *guard.shape), dtype=np.float32)
        raw, activations = backend.forward(classifier.normalised(noise), layers)
        seen = (raw, *([noise] if pixels else []), *(activations[layer] for layer in layers))
        tensors = [torch.from_numpy(np.ascontiguousarray(one)) for one in seen]
        places = {trace: layers.index(layer) for trace, layer in located.items()}
        logits = "logits" in classifier.gives
        scores = ScoreHead(pipeline.supervisors, logits=logits, places=places, kept=classifier.kept)
        given = ["raw", *(["pixels"] if pixels else []), *(f"layer{number}" for number in range(len(layers)))]
        graphs["scores"] = _exported(scores, tensors, given, OUTPUTS)
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
        "graphs": {part: f"{part}-{content_digest(content)}.onnx" for part, content in graphs.items()},
        "layers": layers,
        "pixels": pixels,
        "panel": pipeline.panel.card(),
        "cascade": None if pipeline.cascade is None else pipeline.cascade.card(),
        "naming": None if pipeline.naming is None else pipeline.naming.card(),
        "arrays": store_arrays(folder, decision_arrays(pipeline)),
    }
    card["files"] = {card["graphs"][part]: digest_of(content) for part, content in graphs.items()}
    older = _older_graphs(folder)
    for part, content in graphs.items():
        write_bytes(folder / card["graphs"][part], content)
    write_json_sealed(folder / CARD, card)
    sweep_parts(folder, [*PARTS, *older], {*card["files"], card["arrays"]})
    return folder


def _older_graphs(folder: Path) -> list[str]:
    """The graphs of an earlier version's export in a folder, which had fixed names; foreign files are left alone."""
    try:
        named = read_json(folder / CARD, sealed=False)["files"]
        return [name for name in ("model.onnx", "scores.onnx") if name in named]
    except (OSError, ValueError, KeyError, TypeError):  # there is no export, or it cannot be read
        return []


def _with_layers(backend: Any, layers: Sequence[str]) -> bytes:
    """An ONNX file again, with the layers as further outputs."""
    if backend.fixed_batch is not None:
        raise UserError(
            f"{backend.path} takes batches of {backend.fixed_batch} images only; export the model with a dynamic "
            "batch axis first."
        )
    content: bytes = backend.with_outputs(tuple(layer for layer in layers if layer != backend.output))
    return content


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


def _exported(module: Any, inputs: list[Any], given: list[str], returned: list[str]) -> bytes:
    """A torch module as the content of an ONNX file, with a dynamic first axis."""
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
    with tempfile.TemporaryDirectory() as place:  # the exporter writes to paths alone
        path = Path(place, "graph.onnx")
        program.save(str(path), external_data=False)
        return path.read_bytes()
