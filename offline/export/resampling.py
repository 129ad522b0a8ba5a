"""Pooling and padding, and their backward passes, in operators that ONNX has; for any number of spatial axes.

What is linear and acts on each axis alone (adaptive averages, replicated edges) is a product with one matrix an axis.
A maximum is a look-up: its backward pass adds each gradient where the maximum was found.
"""

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten


def decompositions() -> dict[Any, Callable[..., Any]]:
    """By operator, also those that only torch itself calls."""
    return {
        aten.avg_pool2d_backward.default: partial(avg_pool_backward, dimensions=2),
        aten.avg_pool3d_backward.default: partial(avg_pool_backward, dimensions=3),
        aten._adaptive_avg_pool2d_backward.default: adaptive_avg_pool_backward,  # noqa: SLF001
        aten._adaptive_avg_pool3d.default: adaptive_avg_pool,  # noqa: SLF001
        aten._adaptive_avg_pool3d_backward.default: adaptive_avg_pool_backward,  # noqa: SLF001
        aten.adaptive_max_pool2d.default: adaptive_max_pool,
        aten.adaptive_max_pool2d_backward.default: max_pool_backward,
        aten.adaptive_max_pool3d.default: adaptive_max_pool,
        aten.adaptive_max_pool3d_backward.default: max_pool_backward,
        aten.max_pool3d_with_indices_backward.default: max_pool3d_backward,
        aten.replication_pad1d_backward.default: replication_pad_backward,
        aten.replication_pad2d_backward.default: replication_pad_backward,
        aten.replication_pad3d_backward.default: replication_pad_backward,
    }


def avg_pool_backward(
    grad_output: Tensor,
    x: Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
    *,
    dimensions: int,
) -> Tensor:
    """Spread each output's gradient over its window: a transposed convolution with ones, one group a channel.

    x (B, C, *space), or (C, *space) as one example.
    """
    if x.dim() == dimensions + 1:
        arguments = (kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
        one = avg_pool_backward(grad_output.unsqueeze(0), x.unsqueeze(0), *arguments, dimensions=dimensions)
        return one.squeeze(0)
    kernel, pad = _each(kernel_size, dimensions), _each(padding, dimensions)
    step = _each(stride, dimensions) if stride else kernel
    sizes, channels = [int(size) for size in x.shape[2:]], int(x.shape[1])
    area: Tensor | int = divisor_override or 1
    if not divisor_override:
        for axis, size in enumerate(sizes):
            window = kernel[axis], step[axis], pad[axis]
            lengths = _window_lengths(grad_output, 2 + axis, size, *window, count_include_pad)
            area = area * lengths.reshape(-1, *(1,) * (dimensions - 1 - axis))
        assert isinstance(area, Tensor)
        area = area.to(x.dtype)
    # No window needs to reach beyond the input; one of 1,280 over two pixels would take gigabytes in onnxruntime.
    reach = [min(length, size + p) for length, size, p in zip(kernel, sizes, pad, strict=True)]
    weight, none = x.new_ones((channels, 1, *reach)), [0] * dimensions
    spread = aten.convolution.default(
        grad_output / area, weight, None, step, none, [1] * dimensions, True, none, channels
    )
    # Where windows reach beyond the input (ceil_mode) or stop short of it, cut or fill.
    missing = [p + size - int(found) for p, size, found in zip(pad, sizes, spread.shape[2:], strict=True)]
    spread = torch.nn.functional.pad(spread, [n for m in reversed(missing) for n in (0, max(0, m))])
    for axis, (p, size) in enumerate(zip(pad, sizes, strict=True)):
        spread = spread.narrow(2 + axis, p, size)
    return spread


def _window_lengths(
    grad_output: Tensor, axis: int, size: int, kernel: int, step: int, pad: int, count_include_pad: bool
) -> Tensor:
    """How many entries along one axis each window was divided by; windows are cut at the padded input's end."""
    start = torch.arange(int(grad_output.shape[axis]), device=grad_output.device) * step - pad
    end = torch.clamp(start + kernel, max=size + pad)
    if count_include_pad:
        return end - start
    return torch.clamp(end, max=size) - torch.clamp(start, min=0)


def adaptive_avg_pool(x: Tensor, output_size: Sequence[int]) -> Tensor:
    """A product with the averaging matrix of each of the last axes."""
    for axis, bins in zip(range(-len(output_size), 0), output_size, strict=True):
        x = _along(x, axis, _averaging_matrix(x, int(x.shape[axis]), int(bins)))
    return x


def adaptive_avg_pool_backward(grad_output: Tensor, x: Tensor) -> Tensor:
    """A product with the transposed averaging matrix of each axis after the channels."""
    for axis in range(-2 if x.dim() == 3 else 2 - x.dim(), 0):
        matrix = _averaging_matrix(x, int(x.shape[axis]), int(grad_output.shape[axis]))
        grad_output = _along(grad_output, axis, matrix.transpose(0, 1))
    return grad_output


def _along(x: Tensor, axis: int, matrix: Tensor) -> Tensor:
    """Each line of `x` along `axis` (of length n) multiplied by `matrix` (m, n)."""
    if axis == -2:
        return torch.matmul(matrix, x)
    if axis == -1:
        return torch.matmul(x, matrix.transpose(0, 1))
    return torch.matmul(x.transpose(axis, -1), matrix.transpose(0, 1)).transpose(axis, -1)


def _averaging_matrix(x: Tensor, size: int, bins: int) -> Tensor:
    """(bins, size): bin i is the mean over the entries from `_bounds`."""
    low, high = _bounds(x, size, bins)
    j = torch.arange(size, device=x.device).unsqueeze(0)
    return torch.logical_and(j >= low, j < high).to(x.dtype) / (high - low)


def _bounds(x: Tensor, size: int, bins: int) -> tuple[Tensor, Tensor]:
    """(bins, 1) each: bin i holds floor(i size / bins) ... ceil((i + 1) size / bins) - 1."""
    i = torch.arange(bins, device=x.device).unsqueeze(1)
    low = torch.div(i * size, bins, rounding_mode="floor")
    high = torch.div((i + 1) * size + bins - 1, bins, rounding_mode="floor")
    return low, high


def adaptive_max_pool(x: Tensor, output_size: Sequence[int]) -> tuple[Tensor, Tensor]:
    """The maxima (..., *output_size), and where in the flattened space each was found."""
    bins = [int(count) for count in output_size]
    sizes = [int(size) for size in x.shape[-len(bins) :]]
    places = _window_places(x, sizes, bins)  # (number of windows, entries of the largest)
    windows = x.flatten(-len(bins))[..., places]
    best = torch.argmax(windows, -1, keepdim=True)
    indices = places.expand(windows.shape).gather(-1, best).squeeze(-1)
    maxima = windows.gather(-1, best).squeeze(-1)
    shape = [*x.shape[: -len(bins)], *bins]
    return maxima.reshape(shape), indices.reshape(shape)


def _window_places(x: Tensor, sizes: list[int], bins: list[int]) -> Tensor:
    """Which entries of the flattened space each window holds, (windows, entries of the largest).

    A shorter window repeats its last entries, which changes no maximum.
    """
    places = torch.zeros(1, 1, dtype=torch.int64, device=x.device)
    for size, count in zip(sizes, bins, strict=True):
        low, high = _bounds(x, size, count)
        longest = max(-(-(i + 1) * size // count) - i * size // count for i in range(count))
        along = torch.minimum(low + torch.arange(longest, device=x.device), high - 1)
        joined = places[:, None, :, None] * size + along[None, :, None, :]
        places = joined.flatten(2).flatten(0, 1)
    return places


def max_pool_backward(grad_output: Tensor, x: Tensor, indices: Tensor) -> Tensor:
    """Add each gradient where the maximum was found; `indices` count within an example's channel."""
    axes = -2 if x.dim() == 3 else 2 - x.dim()
    flat = torch.zeros_like(x).flatten(axes)
    return flat.scatter_add(-1, indices.flatten(axes), grad_output.flatten(axes)).reshape(x.shape)


def max_pool3d_backward(grad_output: Tensor, x: Tensor, *arguments: Any) -> Tensor:
    """The last argument is where the maxima are."""
    return max_pool_backward(grad_output, x, arguments[-1])


def replication_pad_backward(grad_output: Tensor, x: Tensor, padding: Sequence[int]) -> Tensor:
    """Add the gradient of each entry's copies: a product with a matrix of zeros and ones for each padded axis."""
    for number, before in enumerate(itertools.islice(padding, 0, None, 2)):
        axis = -1 - number
        size, length = int(x.shape[axis]), int(grad_output.shape[axis])
        source = torch.clamp(torch.arange(length, device=x.device) - int(before), 0, size - 1)
        copies = source.unsqueeze(0) == torch.arange(size, device=x.device).unsqueeze(1)
        grad_output = _along(grad_output, axis, copies.to(x.dtype))
    return grad_output


def _each(value: Sequence[int], dimensions: int) -> list[int]:
    return [int(value[0])] * dimensions if len(value) == 1 else [int(v) for v in value]
