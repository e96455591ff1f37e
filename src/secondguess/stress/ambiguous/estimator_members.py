"""Many small convolutional networks of different depth and width as one network.

A member is a chain of blocks, convolution 3 x 3 "same", batch normalisation, ReLU, maximum over 2 x 2, and a linear
layer on the result (`zoo.make("ambiguity_member")`). Fifty of them one after another leave a GPU idle. Here

* every width is padded to the largest one. A padded channel has zero weights, so it is zero before the ReLU; the
  derivative of a ReLU is zero there, so no gradient ever reaches it and it stays zero, without any mask;
* members are sorted by depth, deepest first: a block is computed for the members that have it, a prefix of all
  channels, and those that end with it leave at the back;
* batch normalisation works channel by channel, hence member by member, even when every member sees other images.

A block of all members is a grouped convolution, one group per member. Groups of five channels are slow on a GPU: there
the groups are written as one ordinary convolution whose weight is block-diagonal, some forty times the arithmetic and
still nothing for the device.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from secondguess import zoo

__all__ = ["FoldedMembers", "MemberNetworks", "fitting_depth"]

EPSILON = 1e-5  # of batch normalisation, PyTorch's default
Shape = tuple[int, int, int]
Channels = tuple[int, ...]


def fitting_depth(channels: Channels, shape: Shape) -> Channels:
    """As many blocks as images (C, H, W) can be halved; a small image gets a shallower member."""
    depth = min(shape[1:]).bit_length() - 1
    return channels[: max(1, depth)]


class MemberNetworks(nn.Module):
    """M members that are trained together, each on images of its own.

    Args:
        channels: for each member the widths of its blocks.
        shape: (C, H, W) of the images.
        outputs: logits of each member.
        seeds: for each member the seed of its initial weights, which are those of `zoo.make("ambiguity_member")`; none
            where they will be loaded.
    """

    def __init__(self, channels: Sequence[Channels], shape: Shape, outputs: int, seeds: Sequence[int]) -> None:
        super().__init__()
        self.channels, self.shape, self.outputs = [tuple(widths) for widths in channels], shape, outputs
        self.order = sorted(range(len(channels)), key=lambda member: -len(channels[member]))
        self.width = max(max(widths) for widths in channels)
        self.register_buffer("sorted", torch.tensor(self.order), persistent=False)
        self.register_buffer("places", torch.tensor(self.order).argsort(), persistent=False)
        depths = [len(channels[member]) for member in self.order]
        self.alive = [sum(depth > level for depth in depths) for level in range(depths[0] + 1)]
        for level, alive in enumerate(self.alive[:-1]):
            inputs = shape[0] if level == 0 else self.width
            flat = alive * self.width
            self.register_parameter(f"weight{level}", nn.Parameter(torch.zeros(flat, inputs, 3, 3)))
            self.register_parameter(f"bias{level}", nn.Parameter(torch.zeros(flat)))
            self.register_parameter(f"gain{level}", nn.Parameter(torch.ones(flat)))
            self.register_parameter(f"shift{level}", nn.Parameter(torch.zeros(flat)))
            self.register_buffer(f"mean{level}", torch.zeros(flat))
            self.register_buffer(f"variance{level}", torch.ones(flat))
            if leaving := alive - self.alive[level + 1]:
                features = self.width * (shape[1] >> level + 1) * (shape[2] >> level + 1)
                self.register_parameter(f"head{level}", nn.Parameter(torch.zeros(leaving, features, outputs)))
                self.register_parameter(f"offset{level}", nn.Parameter(torch.zeros(leaving, 1, outputs)))
        for member, seed in enumerate(seeds):
            self._put(
                member,
                zoo.make(
                    "ambiguity_member",
                    num_classes=outputs,
                    input_shape=shape,
                    channels=self.channels[member],
                    seed=seed,
                ),
            )

    def forward(self, images: Tensor) -> Tensor:
        """Logits (M, n, outputs) of images (M, n, C, H, W): each member its own, as in training."""
        members, count = images.shape[:2]
        x = (
            images.index_select(0, _tensor(self, "sorted"))
            .transpose(0, 1)
            .reshape(count, members * self.shape[0], *self.shape[1:])
        )
        left = []
        for level, (alive, staying) in enumerate(pairwise(self.alive)):
            x = x[:, : alive * self.width] if level else x
            x = _grouped(x, self._get("weight", level), self._get("bias", level), alive)
            x = functional.batch_norm(
                x,
                self._get("mean", level),
                self._get("variance", level),
                self._get("gain", level),
                self._get("shift", level),
                training=self.training,
                eps=EPSILON,
            )
            x = functional.max_pool2d(functional.relu(x), 2)
            if staying < alive:
                left.append(_heads(x, alive, staying, self._get("head", level), self._get("offset", level)))
        return torch.cat(left[::-1]).index_select(0, _tensor(self, "places"))  # those that left last come first

    def member(self, index: int) -> nn.Module:
        """One of the members as an ordinary module, in evaluation mode on the processor."""
        module = zoo.make(
            "ambiguity_member", num_classes=self.outputs, input_shape=self.shape, channels=self.channels[index], seed=0
        )
        self._exchange(index, module, into_module=True)
        return module.eval()

    @torch.no_grad()
    def cool(self, temperatures: Sequence[float]) -> None:
        """Divide each member's logits by its temperature, for good."""
        for place, member in enumerate(self.order):
            last = len(self.channels[member]) - 1
            row = place - self.alive[last + 1]
            for name in ("head", "offset"):
                self._get(name, last)[row] /= temperatures[member]

    def _put(self, index: int, module: nn.Module) -> None:
        """Take over the weights of an ordinary module."""
        self._exchange(index, module, into_module=False)

    @torch.no_grad()
    def _exchange(self, index: int, module: nn.Module, *, into_module: bool) -> None:
        place, widths = self.order.index(index), self.channels[index]
        inputs = self.shape[0]
        pieces: list[tuple[Tensor, Tensor]] = []
        for level, width in enumerate(widths):
            rows = slice(place * self.width, place * self.width + width)
            conv, norm = module.get_submodule(f"conv{level + 1}"), module.get_submodule(f"norm{level + 1}")
            pieces += [
                (self._get("weight", level)[rows, :inputs], _tensor(conv, "weight")),
                (self._get("bias", level)[rows], _tensor(conv, "bias")),
                (self._get("gain", level)[rows], _tensor(norm, "weight")),
                (self._get("shift", level)[rows], _tensor(norm, "bias")),
                (self._get("mean", level)[rows], _tensor(norm, "running_mean")),
                (self._get("variance", level)[rows], _tensor(norm, "running_var")),
            ]
            inputs = width
        last = len(widths) - 1
        linear, row = module.get_submodule("logits"), place - self.alive[last + 1]
        weight = _tensor(linear, "weight")
        pieces += [
            (self._get("head", last)[row, : weight.shape[1]], weight.T),
            (self._get("offset", last)[row, 0], _tensor(linear, "bias")),
        ]
        for ours, theirs in pieces:
            if into_module:
                theirs.copy_(ours)
            else:
                ours.copy_(theirs)

    def _get(self, name: str, level: int) -> Tensor:
        return _tensor(self, f"{name}{level}")


class FoldedMembers(nn.Module):
    """Trained members, frozen, that all see the same images: batch normalisation is folded into the weights.

    Gradients flow to the images only.

    Args:
        trained: the members.
        dense: write each block as one ordinary convolution with a block-diagonal weight rather than in groups.
    """

    @torch.no_grad()
    def __init__(self, trained: MemberNetworks, *, dense: bool) -> None:
        super().__init__()
        self.alive, self.width, self.dense = trained.alive, trained.width, dense
        self.register_buffer("places", _tensor(trained, "places").clone(), persistent=False)
        for level, alive in enumerate(self.alive[:-1]):
            weight, bias, gain, shift, mean, variance = (
                trained._get(name, level).detach() for name in ("weight", "bias", "gain", "shift", "mean", "variance")
            )
            scale = gain / torch.sqrt(variance + EPSILON)
            folded = weight * scale[:, None, None, None]
            self.register_buffer(f"bias{level}", (bias - mean) * scale + shift)
            self.register_buffer(f"weight{level}", _block_diagonal(folded, alive) if dense and level else folded)
            if alive > self.alive[level + 1]:
                self.register_buffer(f"head{level}", trained._get("head", level).detach().clone())
                self.register_buffer(f"offset{level}", trained._get("offset", level).detach().clone())

    def forward(self, images: Tensor) -> Tensor:
        """Probabilities (M, n, K) of images (n, C, H, W) in [0, 1]; one logit gives K = 2, the first class first."""
        return probabilities(self.logits(images))

    def logits(self, images: Tensor) -> Tensor:
        """Logits (M, n, outputs) of images (n, C, H, W) in [0, 1]."""
        x = images * 2 - 1
        left = []
        for level, (alive, staying) in enumerate(pairwise(self.alive)):
            x = x[:, : alive * self.width] if level else x
            groups = 1 if self.dense or level == 0 else alive
            x = functional.conv2d(
                x, _tensor(self, f"weight{level}"), _tensor(self, f"bias{level}"), padding=1, groups=groups
            )
            x = functional.max_pool2d(functional.relu(x), 2)
            if staying < alive:
                left.append(_heads(x, alive, staying, _tensor(self, f"head{level}"), _tensor(self, f"offset{level}")))
        return torch.cat(left[::-1]).index_select(0, _tensor(self, "places"))


def probabilities(logits: Tensor) -> Tensor:
    """(..., K) of logits (..., K) by softmax, or (..., 2) of one logit (..., 1) by the logistic function."""
    if logits.shape[-1] > 1:
        return torch.softmax(logits, dim=-1)
    return torch.cat([torch.sigmoid(logits), torch.sigmoid(-logits)], dim=-1)


def _grouped(x: Tensor, weight: Tensor, bias: Tensor, groups: int) -> Tensor:
    if x.device.type == "cuda":
        return functional.conv2d(x, _block_diagonal(weight, groups), bias, padding=1)
    return functional.conv2d(x, weight, bias, padding=1, groups=groups)


def _block_diagonal(weight: Tensor, groups: int) -> Tensor:
    """The weight (g o, g i, 3, 3) of an ordinary convolution equal to one in g groups, (g o, i, 3, 3)."""
    outputs, inputs = weight.shape[0] // groups, weight.shape[1]
    eye = torch.eye(groups, dtype=weight.dtype, device=weight.device)[:, None, :, None, None, None]
    dense = weight.reshape(groups, outputs, 1, inputs, 3, 3) * eye
    return dense.reshape(groups * outputs, groups * inputs, 3, 3)


def _heads(x: Tensor, alive: int, staying: int, weight: Tensor, offset: Tensor) -> Tensor:
    """Logits (members that leave, n, outputs) of the features (n, alive x width, h, w)."""
    features = x.reshape(len(x), alive, -1)[:, staying:].transpose(0, 1)
    return torch.baddbmm(offset, features, weight)


def _tensor(module: nn.Module, name: str) -> Tensor:
    value = getattr(module, name)
    assert isinstance(value, Tensor)
    return value
