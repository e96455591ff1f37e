"""Judging without torch: ONNX Runtime for the model and the scores, NumPy for the rest.

    from secondguess.guard.runtime import Runtime

    runtime = Runtime("exported/")
    runtime.judge(images)[0].action

The folder is what `onnx_export.export_onnx` has written. Any number of threads may judge at the same time.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secondguess.contracts.sealed import Damaged, file_digest, read_json
from secondguess.errors import UserError, require
from secondguess.guard.artefact import decision_fields, load_arrays, with_anomalies
from secondguess.guard.judgements import Judgements
from secondguess.guard.pipeline import Decisions
from secondguess.images.batches import as_batch
from secondguess.images.fitting import check_resize
from secondguess.images.sources import Floats

__all__ = ["FORMAT", "Runtime"]

FORMAT = 5  # 4 had files of fixed names; 3 did not say how images are resized: stretched


class Runtime:
    """An exported guard, together with its model.

    Args:
        folder: written by `export_onnx`.
        threads: of ONNX Runtime; 0 lets it choose.

    Attributes:
        shape: (C, H, W) of the images.
        decisions: from scores to judgements.
    """

    def __init__(self, folder: str | Path, *, threads: int = 0) -> None:
        folder = Path(folder)
        try:
            card = read_json(folder / "onnx.json", sealed=False)  # earlier versions wrote no digests
            for name, digest in card.get("files", {}).items():
                if file_digest(folder / name) != digest:
                    raise Damaged(f"{name} does not hold what was written")
        except (OSError, ValueError) as error:
            raise UserError(f"There is no exported guard in {folder} ({error}); write one with export_onnx.") from error
        if card.get("format") not in (1, 2, 3, 4, FORMAT):
            raise UserError(f"{folder} is written in format {card.get('format')!r}; install a newer secondguess.")
        if card["format"] == 1:
            card = _from_1(card)
        graphs = card.get("graphs") or {part: f"{part}.onnx" for part in ("model", "scores")[: 1 + card["two_graphs"]]}
        self.shape = tuple(card["shape"])
        self._resize = check_resize(card.get("resize", "stretch"))
        self.decisions = Decisions(
            labels=tuple(card["labels"]),
            false_alarms=float(card["false_alarms"]),
            min_probability=float(card["min_probability"]),
            **decision_fields(card, load_arrays(folder, card)),
        )
        self._mean = np.array(card["mean"], dtype=np.float32).reshape(-1, 1, 1)
        self._std = np.array(card["std"], dtype=np.float32).reshape(-1, 1, 1)
        self._channels_last = bool(card["channels_last"])
        self._model = _session(folder / graphs["model"], threads)
        self._image_name = self._model.get_inputs()[0].name
        self._scores = _session(folder / graphs["scores"], threads) if "scores" in graphs else None
        self._layers = [self._model.get_outputs()[0].name, *card["layers"]] if "scores" in graphs else None
        self._pixels = bool(card.get("pixels"))

    def judge(self, images: Any) -> Judgements:
        """Judge one image or several, in any form that `secondguess.images.as_batch` takes."""
        batch = as_batch(images, self.shape, self._resize)
        return self.decisions.judge_scores(*self.scores(batch), batch, self.probabilities)

    def probabilities(self, images: Floats) -> NDArray[np.float64]:
        """The probabilities (n, K) of images (n, C, H, W) in [0, 1]."""
        return self.scores(images)[0]

    def scores(self, images: Floats) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The probabilities (n, K) and the supervisors' scores (n, m) of images (n, C, H, W) in [0, 1]."""
        fed = (images - self._mean) / self._std
        fed = np.moveaxis(fed, 1, -1) if self._channels_last else fed
        seen = self._model.run(self._layers, {self._image_name: np.ascontiguousarray(fed, dtype=np.float32)})
        if self._scores is not None:
            given = {f"layer{n - 1}" if n else "raw": value for n, value in enumerate(seen)}
            seen = self._scores.run(None, given | ({"pixels": images} if self._pixels else {}))
        return seen[0], seen[1]


def _from_1(card: dict[str, Any]) -> dict[str, Any]:
    """Format 1, which called `min_probability` `sure` and `anomalies` `troubles`, as format 2.

    Format 2 named kinds without asking the model about changed images, and is read as it is.
    """
    cascade = card["cascade"] and card["cascade"] | {"first": with_anomalies(card["cascade"]["first"])}
    return card | {"min_probability": card["sure"], "panel": with_anomalies(card["panel"]), "cascade": cascade}


def _session(path: Path, threads: int) -> Any:
    runtime = require("onnxruntime", "onnx")
    options = runtime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = threads
    try:
        return runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # ONNX Runtime has no public exception type of its own
        raise UserError(f"{path} cannot be run by ONNX Runtime: {str(error).splitlines()[-1]}") from error
