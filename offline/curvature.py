"""The generalised Gauss-Newton matrix over the chosen weights, streamed over the training data.

H = sum_n J_n^T Lambda_n J_n (Daxberger et al. 2021, section 3), Lambda_n the Hessian of the negative log-likelihood in
the outputs. With Lambda_n = C_n C_n^T it is one symmetric update with C_n^T J_n a batch, positive semi-definite by
construction, accumulated in float64.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from offline.data import in_chunks, rows_within
from offline.jacobians import SubnetworkJacobian
from offline.likelihood import Likelihood, check_targets, sqrt_hessian_product

MEMORY_BYTES = 512 * 2**20
Pairs = Iterable[tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Curvature:
    """ggn (S, S) float64 without prior and, for regression, without 1 / sigma^2; `examples` is N.

    squared_error: sum over examples and outputs of (y - f)^2 (regression); correct: examples whose most probable
    class is the target (classification).
    """

    ggn: Tensor
    examples: int
    outputs: int
    squared_error: float
    correct: int


def accumulate_ggn(jacobian: SubnetworkJacobian, pairs: Pairs, outputs: int, likelihood: Likelihood) -> Curvature:
    """One pass over the data."""
    size = jacobian.size
    ggn = torch.zeros(size, size, dtype=torch.float64)
    examples, squared_error, correct = 0, 0.0, 0
    rows = rows_within(MEMORY_BYTES, 24 * outputs * size)
    for batch_inputs, batch_targets in pairs:
        for inputs, raw_targets in in_chunks(batch_inputs, batch_targets, rows):
            targets = check_targets(raw_targets, outputs, len(inputs), likelihood)
            mean, j = jacobian(inputs)
            root = sqrt_hessian_product(j.double(), mean.double(), likelihood).flatten(0, 1)
            ggn += (root.T @ root).cpu()
            examples += len(inputs)
            if likelihood == "regression":
                squared_error += float((targets.double() - mean.double()).square().sum())
            else:
                correct += int((mean.argmax(1) == targets).sum())
    _check_finite(ggn)
    return Curvature((ggn + ggn.T) / 2, examples, outputs, squared_error, correct)


def diagonal_ggn(jacobian: SubnetworkJacobian, pairs: Pairs, outputs: int, likelihood: Likelihood) -> Tensor:
    """diag(sum_n J_n^T Lambda_n J_n) over the indices of `jacobian`, (S,) float64, one parameter at a time."""
    parts: dict[str, Tensor] = {}
    widest = max((len(positions) for _, positions in jacobian.layout.locate(jacobian.indices.cpu())), default=1)
    rows = rows_within(MEMORY_BYTES, 24 * outputs * widest)
    for batch_inputs, batch_targets in pairs:
        for inputs, _ in in_chunks(batch_inputs, batch_targets, rows):
            mean, blocks = jacobian.blocks(inputs)
            for parameter, block in blocks:
                root = sqrt_hessian_product(block.double(), mean.double(), likelihood)
                squares = root.square().sum((0, 1)).cpu()
                parts[parameter.name] = parts[parameter.name] + squares if parameter.name in parts else squares
    diagonal = torch.cat([parts[p.name] for p in jacobian.layout.parameters if p.name in parts])
    _check_finite(diagonal)
    return diagonal


def _check_finite(curvature: Tensor) -> None:
    if not bool(torch.isfinite(curvature).all()):
        raise ValueError(
            "the curvature is not finite: the model's outputs or derivatives overflow on the training data"
        )
