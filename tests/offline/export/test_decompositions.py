"""Rewritten backward operators against torch's own kernels."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from demur.offline.export.decompositions import convolution_backward
from demur.offline.export.resampling import adaptive_avg_pool_backward, avg_pool_backward

aten = torch.ops.aten


@pytest.mark.parametrize(
    ("shape", "arguments"),
    [
        ((2, 3, 8, 8), ([2, 2], [2, 2], [0, 0], False, True, None)),
        ((2, 3, 8, 7), ([3, 2], [2, 1], [1, 1], True, False, None)),
        ((2, 3, 9, 7), ([2, 3], [2, 2], [1, 0], True, True, None)),
        ((2, 3, 9, 7), ([2, 3], [], [0, 0], False, True, 5)),
        ((2, 3, 9, 9), ([4], [3], [0], False, True, None)),
        ((2, 3, 2, 2), ([1280, 1280], [1280, 1280], [0, 0], True, True, None)),
        ((2, 3, 4, 3), ([6, 6], [2, 3], [3, 3], True, False, None)),
        ((2, 3, 4, 3), ([6, 6], [1, 5], [3, 3], True, True, None)),
        ((1, 2, 10, 10), ([2, 2], [4, 4], [0, 0], False, True, None)),
    ],
)
def test_average_pooling(shape: tuple[int, ...], arguments: tuple[Any, ...]) -> None:
    x = torch.randn(shape, dtype=torch.float64)
    gradient = torch.randn_like(aten.avg_pool2d(x, *arguments))
    expected = aten.avg_pool2d_backward(gradient, x, *arguments)
    torch.testing.assert_close(avg_pool_backward(gradient, x, *arguments, dimensions=2), expected)


@pytest.mark.parametrize(("shape", "bins"), [((2, 3, 8, 7), (3, 4)), ((2, 3, 5, 5), (1, 1)), ((2, 3, 3, 3), (5, 4))])
def test_adaptive_average_pooling(shape: tuple[int, ...], bins: tuple[int, int]) -> None:
    x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    pooled = F.adaptive_avg_pool2d(x, bins)
    gradient = torch.randn_like(pooled)
    (expected,) = torch.autograd.grad(pooled, x, gradient)
    torch.testing.assert_close(adaptive_avg_pool_backward(gradient, x.detach()), expected)


@pytest.mark.parametrize(
    ("x", "weight", "stride", "padding", "dilation", "transposed", "output_padding", "groups"),
    [
        ((2, 4, 9, 8), (6, 2, 3, 2), [2, 1], [1, 1], [1, 2], False, [0, 0], 2),
        ((2, 4, 9, 8), (4, 3, 3, 2), [2, 1], [1, 0], [1, 1], True, [1, 0], 2),
        ((2, 4, 9), (6, 4, 3), [2], [0], [1], False, [0], 1),
        ((1, 3, 10, 10), (2, 3, 3, 3), [3, 3], [0, 0], [1, 1], False, [0, 0], 1),
        ((1, 3, 10, 8), (2, 3, 3, 3), [2, 1], [0], [1, 1], False, [0, 0], 1),
        ((2, 3, 5, 6, 7), (2, 3, 2, 2, 2), [2], [1], [1], False, [0, 0, 0], 1),
        ((2, 3, 5, 6, 7), (2, 3, 2, 2, 2), [1, 2, 1], [0, 1, 0], [1, 1, 2], False, [0, 0, 0], 1),
    ],
)
def test_convolution(
    x: Any, weight: Any, stride: Any, padding: Any, dilation: Any, transposed: bool, output_padding: Any, groups: int
) -> None:
    inputs, kernel = torch.randn(x, dtype=torch.float64), torch.randn(weight, dtype=torch.float64)
    rest = (stride, padding, dilation, transposed, output_padding, groups)
    output = aten.convolution(inputs, kernel, None, *rest)
    gradient = torch.randn_like(output)
    arguments = (gradient, inputs, kernel, [output.shape[1]], *rest)
    expected = aten.convolution_backward(*arguments, [True] * 3)
    for found, truth in zip(convolution_backward(*arguments, [True] * 3), expected, strict=True):
        torch.testing.assert_close(found, truth)
    assert convolution_backward(*arguments, [False] * 3) == (None, None, None)
