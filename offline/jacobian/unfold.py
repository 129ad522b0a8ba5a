"""The inputs that a convolution's weights multiply, for any number of spatial dimensions."""

import itertools
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Convolution = nn.Conv1d | nn.Conv2d | nn.Conv3d
CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


@dataclass(frozen=True)
class PatchRows:
    """Rows of the unfolded input: for each kernel offset that occurs, the input channels that are needed at it.

    Row r holds x[channel, t * stride + offset * dilation] over output positions t; rows are ordered by offset, then
    channel, which is the order of `patch_row`. Unfolding everything would copy kernel-size times the input for a
    handful of weights.
    """

    offsets: tuple[tuple[int, ...], ...]
    channels: tuple[Tensor, ...]

    @classmethod
    def of(cls, layer: Convolution, used_rows: Tensor) -> "PatchRows":
        """`used_rows` ascending, as `patch_row` numbers them."""
        every = list(itertools.product(*(range(size) for size in layer.kernel_size)))
        offset, channel = used_rows // layer.in_channels, used_rows % layer.in_channels
        present = torch.unique(offset).tolist()
        return cls(tuple(every[o] for o in present), tuple(channel[offset == o] for o in present))

    def __call__(self, layer: Convolution, x: Tensor, positions: tuple[int, ...]) -> Tensor:
        """x (B, C, *space), output positions along each axis -> (B, R', T)."""
        x = padded(layer, x)
        parts = []
        for offset, channels in zip(self.offsets, self.channels, strict=True):
            part = x if len(channels) == x.shape[1] else x.index_select(1, channels)
            for axis, (count, at) in enumerate(zip(positions, offset, strict=True)):
                start, step = at * layer.dilation[axis], layer.stride[axis]
                part = part.narrow(2 + axis, start, (count - 1) * step + 1)
                part = part[(slice(None),) * (2 + axis) + (slice(None, None, step),)] if step > 1 else part
            parts.append(part.flatten(2))
        return torch.cat(parts, 1) if len(parts) > 1 else parts[0]


def patch_row(layer: Convolution, offset: Tensor, channel: Tensor) -> Tensor:
    """The number of a row of the unfolded input; `offset` counts the kernel's positions row-major."""
    return offset * layer.in_channels + channel


def padded(layer: Convolution, x: Tensor) -> Tensor:
    """The input with the layer's padding applied, in its mode."""
    sizes = list(layer._reversed_padding_repeated_twice)  # noqa: SLF001  also for padding="same"
    if not any(sizes):
        return x
    return F.pad(x, sizes, mode="constant" if layer.padding_mode == "zeros" else layer.padding_mode)
