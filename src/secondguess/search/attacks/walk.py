"""Many images on their way to the decision boundary, and the geometry that all attacks share.

`x` is an image, `y` a changed image that is decided otherwise, r = ||y - x|| and u = (y - x) / r.

* A *chord* leads from y straight to x. Somewhere on it the decision changes; bisection finds where.
* An *arc* leads from y to x along the half circle over the diameter [x, y], in the plane of u and a direction v at
  right angles to it:  p(θ) = x + r cos θ (cos θ u + sin θ v),  0 <= θ <= π/2. If y lies on the boundary, the boundary
  is flat and v shows its normal's part across u, then p(θ) is decided otherwise up to exactly the angle at which it is
  the point of the boundary nearest to x (Thales): bisection of the angle needs no step size. No point of the arc is
  farther from x than y is; an arc in a useless direction costs queries, never distance. (The path is that of CGBA: Reza
  et al., ICCV 2023.)

Every point that is asked about is cut to [0, 1] first, which never takes it farther from x.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from secondguess.search.attacks.decisions import UNUSABLE, Decisions

__all__ = ["Walk", "bisect_arc", "bisect_chord", "differ", "lengths", "pixelwise"]


@dataclass
class Walk:
    """The state of m images under attack; every tensor has m rows, so that images can leave one by one.

    Attributes:
        rows: (m,) int64 places in the whole set.
        images: (m, C, H, W) the images as they are, float32.
        classes: (m,) int64 the model's predictions for them.
        counterexamples: (m, C, H, W) the nearest images found that are decided otherwise; the images where none is.
        found: (m,) bool, whether there is such a counterexample.
        counters: (m,) int64 how much of its stream of noise an image has used.
        more: what an attack remembers besides, by name.
    """

    rows: Tensor
    images: Tensor
    classes: Tensor
    counterexamples: Tensor
    found: Tensor
    counters: Tensor
    more: dict[str, Tensor] = field(default_factory=dict)

    @classmethod
    def begin(cls, rows: Tensor, images: Tensor, classes: Tensor) -> Walk:
        """Images of which no counterexample is known yet."""
        found = torch.zeros(len(rows), dtype=torch.bool, device=rows.device)
        return cls(rows, images, classes, images.clone(), found, torch.zeros_like(rows))

    def __len__(self) -> int:
        """The number of images m."""
        return len(self.rows)

    def take(self, chosen: Tensor | slice) -> Walk:
        """The images at a mask (m,) or at positions; a slice gives a view."""
        return Walk.from_tensors({name: tensor[chosen] for name, tensor in self.tensors().items()})

    def put(self, chosen: Tensor, part: Walk) -> None:
        """Write the images of `part` back to where `take(chosen)` took them."""
        for name, tensor in self.tensors().items():
            tensor[chosen] = part.tensors()[name]

    def parts(self, size: int) -> Iterator[Walk]:
        """A few images at a time, `size` or at least one; what happens to a part happens to the walk."""
        for first in range(0, len(self), max(1, size)):
            rows = slice(first, first + max(1, size))
            part = self.take(rows)
            before = part.tensors()
            yield part
            for name, tensor in part.tensors().items():
                if tensor is not before[name]:
                    self.tensors()[name][rows] = tensor

    def tensors(self) -> dict[str, Tensor]:
        """All of it by name, for a file."""
        own = ("rows", "images", "classes", "counterexamples", "found", "counters")
        return {name: getattr(self, name) for name in own} | {f"more.{key}": value for key, value in self.more.items()}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> Walk:
        """The opposite of `tensors`."""
        own = {name: tensor for name, tensor in tensors.items() if not name.startswith("more.")}
        more = {name.removeprefix("more."): tensor for name, tensor in tensors.items() if name not in own}
        return cls(**own, more=more)

    def changed(self, images: Tensor, decide: Decisions) -> Tensor:
        """(m,) whether candidates (m, C, H, W), or (m, k) whether candidates (m, k, C, H, W), are decided otherwise."""
        if images.ndim == self.images.ndim:
            return differ(decide.classes(images, self.rows), self.classes)
        k = images.shape[1]
        answers = decide.classes(images.flatten(0, 1), self.rows.repeat_interleave(k))
        return differ(answers.reshape(-1, k), self.classes[:, None])

    def draw(self, sample: Callable[[Tensor, Tensor, tuple[int, ...]], Tensor], shape: tuple[int, ...]) -> Tensor:
        """Numbers (m, *shape) from each image's stream, by a method of `Noise`; the streams move on."""
        values = sample(self.rows, self.counters, shape)
        self.counters += math.prod(shape)
        return values


def differ(answers: Tensor, classes: Tensor) -> Tensor:
    """Where answers say another class; one that cannot be used says none."""
    return (answers != classes) & (answers != UNUSABLE)


def lengths(vectors: Tensor) -> Tensor:
    """Euclidean lengths (m,) of vectors (m, ...)."""
    return torch.linalg.vector_norm(vectors.flatten(1), dim=1)


def pixelwise(values: Tensor, like: Tensor) -> Tensor:
    """Values (m,) in a shape that multiplies vectors (m, ...)."""
    return values.reshape(-1, *[1] * (like.ndim - 1))


def bisect_chord(walk: Walk, decide: Decisions, steps: int) -> None:
    """Move every counterexample along the chord to within 2^-steps of the boundary; `steps` queries per image."""
    low = torch.zeros(len(walk), device=walk.images.device)
    high = torch.ones_like(low)
    across = walk.counterexamples - walk.images
    for _ in range(steps):
        middle = (low + high) / 2
        candidates = torch.lerp(walk.images, walk.images + across, pixelwise(middle, across)).clamp_(0, 1)
        changed = walk.changed(candidates, decide)
        high, low = torch.where(changed, middle, high), torch.where(changed, low, middle)
        walk.counterexamples = torch.where(pixelwise(changed, across), candidates, walk.counterexamples)


def bisect_arc(walk: Walk, normals: Tensor, decide: Decisions, steps: int) -> None:
    """Move every counterexample along the arc towards `normals` (m, C, H, W); `steps` queries per image.

    Args:
        walk: counterexamples on the boundary.
        normals: where the other decision lies, of any length.
        decide: the model.
        steps: how often the angle is halved.
    """
    across = walk.counterexamples - walk.images
    radius = lengths(across)
    u = across / pixelwise(radius.clamp_min(1e-12), across)
    v = normals - pixelwise((normals * u).flatten(1).sum(dim=1), u) * u
    v = v / pixelwise(lengths(v).clamp_min(1e-12), v)
    low = torch.zeros_like(radius)
    high = torch.full_like(radius, math.pi / 2)
    for _ in range(steps):
        middle = (low + high) / 2
        along, aside = radius * middle.cos() ** 2, radius * middle.cos() * middle.sin()
        candidates = (walk.images + pixelwise(along, u) * u + pixelwise(aside, v) * v).clamp_(0, 1)
        changed = walk.changed(candidates, decide)
        high, low = torch.where(changed, high, middle), torch.where(changed, middle, low)
        walk.counterexamples = torch.where(pixelwise(changed, u), candidates, walk.counterexamples)
