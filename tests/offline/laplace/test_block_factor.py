"""The covariance in blocks gives the variances of the whole one, for any share of weights in the head."""

import numpy as np
import pytest
import torch
from torch import Tensor

from demur.offline.jacobian.find_head import find_head
from demur.offline.jacobian.plan import make_jacobian
from demur.offline.laplace.block_factor import OwnWeights, block_factor, factor_of, factor_size
from demur.offline.network.model_copy import private_copy
from demur.offline.network.weights import WeightLayout
from tests import reference
from tests.support.heads import build_head

OUTPUTS, FEATURES, EXAMPLES = 4, 6, 5


def problem(outside: int, in_head: int) -> tuple[np.ndarray, Tensor, list[OwnWeights], Tensor, Tensor, np.ndarray]:
    """Precision, ranks outside the head, head weights by output, g, h, and the whole Jacobian (B, K, S)."""
    generator = torch.Generator().manual_seed(outside + 100 * in_head)
    size = outside + in_head
    root = torch.randn(size, size, generator=generator, dtype=torch.float64)
    precision = (root @ root.T / size + 0.1 * torch.eye(size, dtype=torch.float64)).numpy()
    order = torch.randperm(size, generator=generator)
    head = torch.randperm(OUTPUTS * (FEATURES + 1), generator=generator)[:in_head]
    g = torch.randn(EXAMPLES, OUTPUTS, outside, generator=generator, dtype=torch.float64)
    h = torch.randn(EXAMPLES, FEATURES, generator=generator, dtype=torch.float64)
    jacobian = np.zeros((EXAMPLES, OUTPUTS, size))
    jacobian[:, :, order[:outside].numpy()] = g
    for rank, place in zip(order[outside:].tolist(), head.tolist(), strict=True):
        k, feature = divmod(place, FEATURES + 1)
        jacobian[:, k, rank] = h[:, feature] if feature < FEATURES else 1.0
    own = [
        OwnWeights(order[outside:][head // (FEATURES + 1) == k], head[head // (FEATURES + 1) == k] % (FEATURES + 1))
        for k in range(OUTPUTS)
    ]
    return precision, order[:outside], own if in_head else [OwnWeights(order[:0], head[:0])] * OUTPUTS, g, h, jacobian


@pytest.mark.parametrize(("outside", "in_head"), [(7, 0), (0, 9), (5, 9), (1, 1), (3, 28), (12, 2)])
def test_equals_the_whole_covariance(outside: int, in_head: int) -> None:
    precision, ranks, own, g, h, jacobian = problem(outside, in_head)
    scale_tril = np.linalg.cholesky(np.linalg.inv(precision))
    found = block_factor(scale_tril, ranks, own).variance(g, h)
    np.testing.assert_allclose(found.numpy(), reference.variance(jacobian, precision), rtol=1e-9)


def test_the_blocks_have_as_many_numbers_as_predicted() -> None:
    """One small factor an output for the head, the whole where there is none."""
    for name in ("perceptron", "rescued"):
        network, inputs = build_head(name)
        copied, layout = private_copy(network, torch.device("cpu")), WeightLayout.of(network)
        head = find_head(copied, inputs)
        assert head is not None
        for indices in (torch.arange(layout.total), torch.arange(layout.total - 12, layout.total), torch.arange(9)):
            jacobian = make_jacobian(copied, layout, indices, inputs, head)
            outputs = head.layer(copied).out_features
            found = factor_of(jacobian, np.eye(len(indices)), outputs)
            numbers = sum(matrix.numel() for matrix in (found.dense, found.cross, found.own))
            assert numbers == factor_size(jacobian, outputs)
