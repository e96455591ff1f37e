"""Generator and discriminator of a deep convolutional GAN with spectral normalisation.

| 28 x 28 (latent 256, 512 filters, 2 blocks)          | 128 x 128 (latent 512, 128 filters, 4 blocks)     |
|------------------------------------------------------|---------------------------------------------------|
| G: z -> 1024 x 7 x 7 -> 512 x 14 x 14 -> C x 28 x 28 | G: z -> 1024 x 8 x 8 -> 512 -> 256 -> 128 -> C    |
| D: 512 x 14 x 14 -> 1024 x 7 x 7 -> one logit        | D: 128 -> 256 -> 512 -> 1024 x 8 x 8 -> one logit |

A step of G doubles the size with a transposed convolution 4 x 4, followed by batch normalisation and ReLU, the last one
by tanh; a step of D halves it with a convolution 4 x 4 whose weight is divided by its largest singular value (one power
iteration per training step; Miyato et al. 2018), followed by LeakyReLU 0.2; it has no batch normalisation. Sizes that
are odd are halved upwards. Weights begin N(0, 0.02), gains of batch normalisation N(1, 0.02), biases of convolutions as
in PyTorch (Teixeira et al., "Hubris benchmarking with AmbiGANs", 2025).

Equal but for rounding: G's projection, a transposed convolution of one pixel, and D's last convolution, whose kernel
covers the whole map, are written as the matrix products that they are; D gives the logit and leaves its sigmoid to the
loss.

The dial: with `dial=True` a target r in [0, 1] enters G as one more latent variable, 2 r - 1, in units of `DIAL`. Its
weights begin at zero, so that a generator that has learnt without it is the same generator with it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from secondguess.errors import UserError

__all__ = ["Discriminator", "Gan", "GanArchitecture", "Generator", "to_unit"]

Shape = tuple[int, int, int]
SMALLEST = 8  # pixels per side
LARGE = 48  # pixels per side from which the deeper architecture is used
DIAL = 4.0  # a latent variable has variance 1; the dial must stand out among hundreds of them
SLOPE, SPREAD, TINY = 0.2, 0.02, 1e-12


@dataclass(frozen=True)
class GanArchitecture:
    """Sizes of a GAN.

    Attributes:
        latent: length of z.
        filters: channels of G's last and D's first map.
        blocks: how often the size is halved.
        dial: whether G has an input for the target r.
        targets: how many numbers the target is, for generators with a dial: K for K > 2 classes, else 1.
    """

    latent: int = 256
    filters: int = 512
    blocks: int = 2
    dial: bool = False
    targets: int = 1

    @classmethod
    def for_shape(cls, shape: Shape, *, dial: bool = False, targets: int = 1) -> GanArchitecture:
        """The paper's sizes for images (C, H, W): those of 28 x 28, or those of 128 x 128 from 48 pixels on."""
        if max(shape[1:]) < LARGE:
            return cls(dial=dial, targets=targets)
        return cls(latent=512, filters=128, blocks=4, dial=dial, targets=targets)

    def sizes(self, shape: Shape) -> list[tuple[int, int]]:
        """Heights and widths from the images down to the smallest map."""
        smallest = max(SMALLEST, 2**self.blocks)
        if min(shape[1:]) < smallest:
            raise UserError(
                f"Images of {shape[1]} x {shape[2]} pixels are too small for this GAN; give {smallest} or more."
            )
        sizes = [(shape[1], shape[2])]
        for _ in range(self.blocks):
            sizes.append((math.ceil(sizes[-1][0] / 2), math.ceil(sizes[-1][1] / 2)))
        return sizes


class Generator(nn.Module):
    """z (n, latent) -> images (n, C, H, W) in [-1, 1].

    Args:
        shape: (C, H, W) of the images.
        architecture: its sizes.
    """

    def __init__(self, shape: Shape, architecture: GanArchitecture) -> None:
        super().__init__()
        self.latent = architecture.latent
        sizes = architecture.sizes(shape)[::-1]
        widths = [architecture.filters * 2**step for step in range(architecture.blocks)][::-1]
        self.map = (widths[0], *sizes[0])
        self.projection = nn.Parameter(torch.empty(architecture.latent, math.prod(self.map)))
        self.norm = nn.BatchNorm2d(widths[0])
        steps: list[nn.Module] = []
        for before, after, small, large in zip(widths, [*widths[1:], shape[0]], sizes, sizes[1:], strict=False):
            last = len(steps) // 3 == architecture.blocks - 1
            steps.append(_doubling(before, after, small, large, bias=last))
            steps += [nn.Tanh()] if last else [nn.BatchNorm2d(after), nn.ReLU()]
        self.steps = nn.Sequential(*steps)
        self.dial = nn.Parameter(torch.zeros(architecture.targets, math.prod(self.map))) if architecture.dial else None

    def forward(self, z: Tensor, target: Tensor | None = None) -> Tensor:
        """Images of latent points z (n, latent), with the dial at `target` (n, targets) if there is one."""
        x = z @ self.projection
        if self.dial is not None and target is not None:
            x = x + DIAL * (2 * target - 1) @ self.dial
        images: Tensor = self.steps(functional.relu(self.norm(x.reshape(-1, *self.map))))
        return images


class Discriminator(nn.Module):
    """Images (n, C, H, W) in [-1, 1] -> logits (n,) of being real.

    Args:
        shape: (C, H, W) of the images.
        architecture: its sizes.
    """

    def __init__(self, shape: Shape, architecture: GanArchitecture) -> None:
        super().__init__()
        widths = [shape[0]] + [architecture.filters * 2**step for step in range(architecture.blocks)]
        sizes = architecture.sizes(shape)
        layers: list[nn.Module] = []
        for before, after in pairwise(widths):
            layers += [SpectralConv2d(before, after, 4, stride=2), nn.LeakyReLU(SLOPE)]
        self.layers = nn.Sequential(*layers)
        # A size that was halved upwards gets one more row of zeros at the end.
        self.odd = [(before[1] % 2, before[0] % 2) for before in sizes[:-1]]
        self.last = SpectralConv2d(widths[-1], 1, sizes[-1])

    def forward(self, images: Tensor) -> Tensor:
        """Logits (n,)."""
        x = images
        for step, (right, bottom) in enumerate(self.odd):
            x = functional.pad(x, (0, right, 0, bottom)) if right or bottom else x
            x = self.layers[2 * step + 1](self.layers[2 * step](x))
        return self.last.whole(x).float()


class SpectralConv2d(nn.Module):
    """A convolution whose weight is divided by an estimate of its largest singular value.

    The estimate is u . W v for the weight as a matrix (outputs, rest), with u and v from one power iteration in every
    forward pass in training mode, as in `torch.nn.utils.spectral_norm`. What is divided is the input, the weight or the
    output, which gives the same: whichever has the fewest numbers.

    Args:
        inputs: channels in.
        outputs: channels out.
        kernel: size of the kernel.
        stride: 2 halves the size (with padding 1); 1 has no padding.
    """

    def __init__(self, inputs: int, outputs: int, kernel: int | tuple[int, int], stride: int = 1) -> None:
        super().__init__()
        plain = nn.Conv2d(inputs, outputs, kernel, stride)  # for its default bias
        self.weight, self.bias, self.stride = plain.weight, plain.bias, stride
        rows = self.weight.flatten(1)
        self.u: Tensor
        self.v: Tensor
        self.register_buffer("u", functional.normalize(torch.randn(rows.shape[0]), dim=0, eps=TINY))
        self.register_buffer("v", functional.normalize(torch.randn(rows.shape[1]), dim=0, eps=TINY))

    def forward(self, x: Tensor) -> Tensor:
        """The convolution."""
        weight, largest = self.weight, self.largest()
        if x.numel() < weight.numel():
            x = x / largest
        else:
            weight = weight / largest
        return functional.conv2d(x, weight, self.bias, self.stride, padding=int(self.stride > 1))

    def whole(self, x: Tensor) -> Tensor:
        """Logits (n,) where the kernel covers the whole map."""
        assert self.bias is not None
        logits = functional.linear(x.flatten(1), self.weight.flatten(1))
        return (logits / self.largest() + self.bias)[:, 0]

    def largest(self) -> Tensor:
        """The estimate; in full precision, whatever the rest computes in."""
        with torch.autocast(self.weight.device.type, enabled=False):
            rows, v = self._as_matrix()
            if self.training:
                with torch.no_grad():
                    v.copy_(functional.normalize(torch.mv(rows.T, self.u), dim=0, eps=TINY).view_as(v))
                    self.u.copy_(functional.normalize(torch.mv(rows, v.flatten()), dim=0, eps=TINY))
            # Copies, because the next forward pass changes u and v before this one has been differentiated.
            return torch.dot(self.u.clone(), torch.mv(rows, v.flatten().clone()))

    def _as_matrix(self) -> tuple[Tensor, Tensor]:
        """The weight as a matrix (outputs, rest) in the order in which it lies in memory, and a view of v in it."""
        weight, v = self.weight, self.v.view(self.weight.shape[1:])
        if weight.is_contiguous(memory_format=torch.channels_last):
            weight, v = weight.permute(0, 2, 3, 1), v.permute(1, 2, 0)
        return weight.flatten(1), v


class Gan(nn.Module):
    """A generator and its discriminator, with fresh weights.

    Args:
        shape: (C, H, W) of the images.
        architecture: the sizes; those of the paper if left out.
        seed: of the weights.
    """

    def __init__(self, shape: Shape, architecture: GanArchitecture | None = None, *, seed: int = 0) -> None:
        super().__init__()
        from secondguess.devices import isolated_rng, seed_rng

        self.shape, self.architecture = shape, architecture or GanArchitecture.for_shape(shape)
        with isolated_rng():
            seed_rng(seed)
            self.generator = Generator(shape, self.architecture)
            self.discriminator = Discriminator(shape, self.architecture)
            _initialise(self)


def to_unit(images: Tensor) -> Tensor:
    """Pixels of [-1, 1] in [0, 1]."""
    return (images + 1) / 2


def _doubling(inputs: int, outputs: int, small: tuple[int, int], large: tuple[int, int], *, bias: bool) -> nn.Module:
    """A transposed convolution 4 x 4 of stride 2 that gives exactly the larger size."""
    surplus = [(one - 1) * 2 - other + 4 for one, other in zip(small, large, strict=True)]
    output = [rest % 2 for rest in surplus]
    padding = [(rest + more) // 2 for rest, more in zip(surplus, output, strict=True)]
    return nn.ConvTranspose2d(
        inputs, outputs, 4, 2, (padding[0], padding[1]), output_padding=(output[0], output[1]), bias=bias
    )


def _initialise(gan: Gan) -> None:
    nn.init.normal_(gan.generator.projection, 0.0, SPREAD)
    for layer in gan.modules():
        if isinstance(layer, nn.ConvTranspose2d | SpectralConv2d):
            nn.init.normal_(layer.weight, 0.0, SPREAD)
        elif isinstance(layer, nn.BatchNorm2d):
            nn.init.normal_(layer.weight, 1.0, SPREAD)
            nn.init.zeros_(layer.bias)
