"""torchvision beside a build of torch that is not its own, where its compiled operators cannot be loaded.

Its models, weights and transforms are Python and need none of them. What only stops its import is that two operators
have no declaration, so they get one.
"""

from __future__ import annotations

import importlib.util
from functools import cache

import torch

OPERATORS = ("nms", "qnms")


@cache
def prepare() -> bool:
    """Make torchvision importable where it is installed; False where it is not."""
    if importlib.util.find_spec("torchvision") is None:
        return False
    try:
        importlib.import_module("torchvision")
    except RuntimeError:
        library = torch.library.Library("torchvision", "FRAGMENT")
        for name in OPERATORS:
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _kept.append(library)
    return True


_kept: list[torch.library.Library] = []  # a library that is forgotten takes its operators with it
