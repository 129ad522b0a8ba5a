"""Operators rewritten in operators that ONNX has, most of them of the backward pass.

Tracing a backward pass leaves operators such as `convolution_backward` in the graph, for which there is no ONNX
equivalent. PyTorch's own decompositions are taken where it has one; the others are written here and in
`demur.offline.export.resampling`. The input gradient of a convolution is the transposed convolution with the output
padding that restores the input's size exactly.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._decomp import decomposition_table

from . import resampling

aten = torch.ops.aten
Decompositions = dict[Any, Callable[..., Any]]


def decompositions() -> Decompositions:
    """For what the exporter has no operator, or a decomposition that it does not use or that ONNX does not take."""
    ours: Decompositions = {
        aten.convolution_backward.default: convolution_backward,
        aten.empty_permuted.default: empty_permuted,
    }
    return {**_backward_of_torch(), **ours, **resampling.decompositions()}


def _backward_of_torch() -> Decompositions:
    """PyTorch's decompositions of backward operators.

    The exporter leaves out those of operators that are composite in C++ too (silu_backward), and fails on them.
    """
    return {op: rule for op, rule in decomposition_table.items() if str(op).endswith("_backward.default")}


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
    """Gradients with respect to input, weight and bias, those that are asked for.

    A stride, padding or dilation of one number is that of every axis, as for `padding="valid"`.
    """
    axes = x.dim() - 2
    stride, padding, dilation = (list(given) * (axes // len(given)) for given in (stride, padding, dilation))
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


def empty_permuted(size: Sequence[int], physical_layout: Sequence[int], **options: Any) -> Tensor:  # noqa: ARG001
    """Memory order does not exist in ONNX."""
    zeros: Tensor = aten.full.default(
        size, 0, **{name: options[name] for name in ("dtype", "device") if name in options}
    )
    return zeros
