"""Backward operators rewritten in operators that ONNX has.

Tracing a backward pass leaves operators such as `convolution_backward` in the graph, for which there is no ONNX
equivalent. The formulas are those of the operators' definitions: the input gradient of a convolution is the
transposed convolution with the output padding that restores the input's size exactly.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten
Decompositions = dict[Any, Callable[..., Any]]


def decompositions() -> Decompositions:
    """For what the exporter has no operator and no decomposition of its own."""
    return {
        aten.convolution_backward.default: convolution_backward,
        aten.avg_pool2d_backward.default: avg_pool2d_backward,
        aten._adaptive_avg_pool2d_backward.default: adaptive_avg_pool2d_backward,
        aten.empty_permuted.default: empty_permuted,
    }


def convolution_backward(
    grad_output: Tensor,
    x: Tensor,
    weight: Tensor,
    bias_sizes: Sequence[int] | None,  # noqa: ARG001
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],  # noqa: ARG001
    groups: int,
    output_mask: Sequence[bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Gradients with respect to input, weight and bias, those that are asked for."""
    want_input, want_weight, want_bias = output_mask
    grad_input = grad_weight = None
    if want_input:
        extra = [] if transposed else _output_padding(grad_output, x, weight, stride, padding, dilation)
        shape = (stride, padding, dilation, not transposed, extra or [0] * len(stride), groups)
        grad_input = aten.convolution.default(grad_output, weight, None, *shape)
    if want_weight:
        grad_weight = _weight_gradient(grad_output, x, weight, stride, padding, dilation, transposed, groups)
    grad_bias = grad_output.flatten(2).sum((0, 2)) if want_bias else None
    return grad_input, grad_weight, grad_bias


def _output_padding(
    grad_output: Tensor,
    x: Tensor,
    weight: Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> list[int]:
    """What the transposed convolution must add at the end of each axis to give back the input's size."""
    return [
        int(x.shape[2 + i])
        - (
            (int(grad_output.shape[2 + i]) - 1) * stride[i]
            - 2 * padding[i]
            + dilation[i] * (int(weight.shape[2 + i]) - 1)
            + 1
        )
        for i in range(x.dim() - 2)
    ]


def _weight_gradient(
    grad_output: Tensor,
    x: Tensor,
    weight: Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    groups: int,
) -> Tensor:
    """Correlate the (padded) input with the output gradient: stride and dilation change places.

    Batch and channels change places too, so that the sum over the batch becomes the convolution's sum over
    channels; each group is one such convolution. For a transposed convolution, input and gradient swap roles.
    """
    small, large = (x, grad_output) if transposed else (grad_output, x)
    parts = [
        aten.convolution.default(
            big.transpose(0, 1), little.transpose(0, 1), None, dilation, padding, stride, False, [0] * len(stride), 1
        ).transpose(0, 1)
        for big, little in zip(large.chunk(groups, 1), small.chunk(groups, 1), strict=True)
    ]
    joined = torch.cat(parts, 0) if groups > 1 else parts[0]
    window = tuple(slice(0, int(size)) for size in weight.shape[2:])
    return joined[(slice(None), slice(None), *window)]


def avg_pool2d_backward(
    grad_output: Tensor,
    x: Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,  # noqa: ARG001
    count_include_pad: bool,
    divisor_override: int | None,
) -> Tensor:
    """Spread each output's gradient over its window: a transposed convolution with ones, one group a channel."""
    kernel, pad = _pair(kernel_size), _pair(padding)
    step = _pair(stride) if stride else kernel
    height, width = int(x.shape[2]), int(x.shape[3])
    area: Tensor | int
    if divisor_override:
        area = divisor_override
    else:
        rows = _window_lengths(grad_output, 2, height, kernel[0], step[0], pad[0], count_include_pad)
        columns = _window_lengths(grad_output, 3, width, kernel[1], step[1], pad[1], count_include_pad)
        area = (rows.unsqueeze(1) * columns).to(x.dtype)
    channels = int(x.shape[1])
    weight = x.new_ones((channels, 1, *kernel))
    spread = aten.convolution.default(grad_output / area, weight, None, step, [0, 0], [1, 1], True, [0, 0], channels)
    # Where windows reach beyond the input (ceil_mode) or stop short of it, cut or fill.
    missing = [pad[0] + height - int(spread.shape[2]), pad[1] + width - int(spread.shape[3])]
    spread = torch.nn.functional.pad(spread, [0, max(0, missing[1]), 0, max(0, missing[0])])
    return spread[:, :, pad[0] : pad[0] + height, pad[1] : pad[1] + width]


def _window_lengths(
    grad_output: Tensor, axis: int, size: int, kernel: int, step: int, pad: int, count_include_pad: bool
) -> Tensor:
    """How many entries along one axis each window was divided by; windows are cut at the padded input's end."""
    start = torch.arange(int(grad_output.shape[axis]), device=grad_output.device) * step - pad
    end = torch.clamp(start + kernel, max=size + pad)
    if count_include_pad:
        return end - start
    return torch.clamp(end, max=size) - torch.clamp(start, min=0)


def adaptive_avg_pool2d_backward(grad_output: Tensor, x: Tensor) -> Tensor:
    """As a product with the two averaging matrices: out = R x C^T, so grad_x = R^T grad C."""
    rows = _averaging_matrix(x, int(x.shape[2]), int(grad_output.shape[2]))
    columns = _averaging_matrix(x, int(x.shape[3]), int(grad_output.shape[3]))
    return torch.matmul(rows.transpose(0, 1), torch.matmul(grad_output, columns))


def _averaging_matrix(x: Tensor, size: int, bins: int) -> Tensor:
    """(bins, size): bin i is the mean over floor(i size / bins) ... ceil((i + 1) size / bins) - 1."""
    i = torch.arange(bins, device=x.device).unsqueeze(1)
    j = torch.arange(size, device=x.device).unsqueeze(0)
    low = torch.div(i * size, bins, rounding_mode="floor")
    high = torch.div((i + 1) * size + bins - 1, bins, rounding_mode="floor")
    return torch.logical_and(j >= low, j < high).to(x.dtype) / (high - low)


def _pair(value: Sequence[int]) -> list[int]:
    return [int(value[0]), int(value[0])] if len(value) == 1 else [int(v) for v in value]


def empty_permuted(size: Sequence[int], physical_layout: Sequence[int], **options: Any) -> Tensor:  # noqa: ARG001
    """Memory order does not exist in ONNX."""
    zeros: Tensor = aten.full.default(
        size, 0, **{name: options[name] for name in ("dtype", "device") if name in options}
    )
    return zeros
