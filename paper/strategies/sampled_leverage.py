"""Leverage for networks whose covariance does not fit: the curvature of a sample of examples, exact in D.

With J (M K, C) the Jacobian of M examples, Lambda their output Hessians times N / M, W^T W = Lambda, and the kernel
G = J J^T (M K, M K), the identities of Woodbury give for H = J^T Lambda J

    (H + lambda I)^-1 J^T = J^T (lambda I + Lambda G)^-1
    diag((H + lambda I)^-1)_d = (1 - |L^T W J_d|^2) / lambda,   L L^T = (lambda I + W G W^T)^-1

so that two passes over groups of weights suffice, one that sums G and one that forms the scores, and nothing of size
(M K, C) exists. With M = N it is the exact leverage; with M < N the only approximation is the sample. Its cost grows as
C (M K)^2.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from paper.strategies.covariance import largest_that_fits
from probity.offline.data.loaders import rows_within
from probity.offline.jacobian.jacobian import SubnetworkJacobian
from probity.offline.laplace.posterior import factor, posterior_precision
from probity.offline.selection.context import SelectionContext
from probity.offline.selection.sample import Sample, count_examples
from probity.offline.selection.streaming import measured_rows, restricted

# At 512 rows (51 examples of 10 classes, or 512 of one output) the weights chosen have 95 % of the leverage that the
# exact ones have, on a digits CNN with D = 1,446 and S = D / 10; the cost of the products grows with its square.
KERNEL_ROWS = 512
LEAST_EXAMPLES = 8
HELD_BYTES = 2 * 4  # an entry of J in float32, before and after its chunks are joined
PRODUCT_BYTES = 4 * 8  # an entry in float64, in the two products and their squares
COLUMNS = 4096  # weights in one product


@dataclass(frozen=True)
class SampleCurvature:
    """What the scores need of the sample: W (M, K, K), (lambda I + Lambda G)^-1 and L^T W (M K, M K), and lambda."""

    root: Tensor
    solved: Tensor
    whitened: Tensor
    prior: float

    @classmethod
    def of(cls, kernel: Tensor, root: Tensor, prior: float, device: torch.device) -> "SampleCurvature":
        """From the kernel G (M K, M K) and W, on the CPU; kept on `device`."""
        precision = posterior_precision(_apply(root, _apply(root, kernel).T), prior)
        whitened = _apply(root.mT, factor((precision + precision.T) / 2)[0]).T
        # Push-through: Lambda G is not symmetric, but neither G nor Lambda, singular both, has to be inverted.
        solved = torch.linalg.inv(posterior_precision(_apply(root.mT @ root, kernel), prior))
        return cls(root.to(device), solved.to(device), whitened.to(device), prior)

    def scores(self, j: Tensor) -> Tensor:
        """Scores (n,) of a group of weights with Jacobian j (M K, n)."""
        explained = (self.whitened @ j).square().sum(0)
        curvature = _apply(self.root, j).square().sum(0)
        # A variance is at least 1 / (H_dd + lambda), also where 1 - explained is rounding.
        variance = torch.maximum((1 - explained) / self.prior, 1 / (curvature + self.prior))
        return (self.solved.T @ j).square().sum(0) / (len(self.root) * variance)


def default_examples(context: SelectionContext) -> int:
    """M: as many examples as make 512 rows of a Jacobian, at least 8 where their kernel fits in the memory."""
    return max(1, min(max(LEAST_EXAMPLES, KERNEL_ROWS // context.job.likelihood.outputs), most_examples(context)))


def most_examples(context: SelectionContext) -> int:
    """How many examples a sample may have for the kernel's matrices to fit in half of the memory."""
    return largest_that_fits(context) // context.job.likelihood.outputs


def draw(context: SelectionContext, examples: int) -> Tensor:
    """At most `examples` training inputs, (M, *shape); `ValueError` where their kernel does not fit in the memory."""
    inputs = torch.cat(list(Sample.of(context, examples).inputs("Sample for leverage")))
    most = most_examples(context)
    if len(inputs) > max(1, most):
        raise ValueError(
            f"selection_options['curvature_examples']: found {len(inputs)}, expected at most {most}, whose kernel fits "
            f"in {context.memory_bytes} bytes with {context.job.likelihood.outputs} outputs; give fewer, or a larger "
            "memory_budget"
        )
    return inputs


def sampled_leverage(context: SelectionContext, positions: Tensor, inputs: Tensor) -> Tensor:
    """mean_x sum_k (C J_k(x)^T)_d^2 / C_dd at `positions` (C,), float64; H and x from `inputs` (M, *shape)."""
    weight = count_examples(context) / len(inputs) / context.job.likelihood.noise_variance
    root = _hessian_roots(context, inputs, weight)
    prior = context.prior_precision
    whole = context.job.jacobian(positions)
    kernel = sum((j @ j.T for j in _jacobians(context, whole, inputs)), torch.zeros((), dtype=torch.float64))
    curvature = SampleCurvature.of(kernel.cpu(), root, prior, inputs.device)
    return torch.cat([curvature.scores(j).cpu() for j in _jacobians(context, whole, inputs)])


def _hessian_roots(context: SelectionContext, inputs: Tensor, weight: float) -> Tensor:
    """W (M, K, K) of each example, W^T W = Lambda times `weight`."""
    with torch.no_grad():
        mean = torch.cat([context.job.network(part) for part in torch.split(inputs, LEAST_EXAMPLES)]).double().cpu()
    identity = torch.eye(context.job.likelihood.outputs, dtype=torch.float64).expand(len(mean), -1, -1)
    return context.job.likelihood.sqrt_hessian_product(identity, mean).mul(math.sqrt(weight))


def _apply(blocks: Tensor, matrix: Tensor) -> Tensor:
    """Block-diagonal (M, K, K) times (M K, n)."""
    product: Tensor = torch.bmm(blocks, matrix.reshape(*blocks.shape[:2], -1))
    return product.reshape(matrix.shape)


def _jacobians(context: SelectionContext, whole: SubnetworkJacobian, inputs: Tensor) -> Iterator[Tensor]:
    """J (M K, n) float64, n weights after n others; all rows of as many as half the memory takes are held."""
    rows, memory = len(inputs) * context.job.likelihood.outputs, context.memory_bytes
    groups = torch.split(whole.indices, rows_within(memory // 2, HELD_BYTES * rows))
    columns = min(COLUMNS, rows_within(memory // 8, PRODUCT_BYTES * rows))
    for jacobian in context.job.track(restricted(whole, groups), "Leverage", len(groups)):
        for part in torch.split(_dense(jacobian, inputs, memory // 4), columns, dim=1):
            yield part.double()


def _dense(jacobian: SubnetworkJacobian, inputs: Tensor, memory: int) -> Tensor:
    """J (M K, n), in chunks of examples that take no more than `memory` bytes."""
    rows = measured_rows(memory, jacobian, inputs)
    return torch.cat([jacobian(part)[1].flatten(0, 1) for part in torch.split(inputs, rows)])
