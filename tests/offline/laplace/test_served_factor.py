"""A head whose outputs have the same features: triangles in panels give the variances of the whole covariance."""

import numpy as np
import pytest
import torch
from torch import nn

from demur.offline.jacobian.find_head import find_head
from demur.offline.jacobian.plan import make_jacobian
from demur.offline.laplace.block_factor import BlockFactor, OwnWeights, block_factor
from demur.offline.laplace.served_factor import HeadFactor, TriangularFactors, head_factor, structured_factor
from demur.offline.network.model_copy import private_copy
from demur.offline.network.weights import WeightLayout
from demur.service.maths.posterior_factor import CholeskyPosterior
from tests import reference


def random_precision(size: int) -> np.ndarray:
    root = np.random.default_rng(size).normal(size=(size, size))
    precision: np.ndarray = root @ root.T / size + 0.1 * np.eye(size)
    return precision


@pytest.mark.parametrize("size", [1, 7, 128, 200, 300])
def test_panels_leave_out_zeros_only(size: int) -> None:
    generator = torch.Generator().manual_seed(size)
    triangles = torch.randn(3, size, size, generator=generator, dtype=torch.float64).tril()
    x = torch.randn(4, size, generator=generator, dtype=torch.float64)
    factors = TriangularFactors.of(triangles)
    expected = torch.stack([(x @ triangle).square().sum(1) for triangle in triangles], dim=1)
    torch.testing.assert_close(factors.squared_norms(x), expected, rtol=1e-12, atol=0)
    assert (sum(panel.numel() for panel in factors.panels) < 0.8 * triangles.numel()) == (size > 64)


@pytest.mark.parametrize("chosen", ["all", "weights", "even features"])
def test_equals_the_whole_covariance(chosen: str) -> None:
    torch.manual_seed(0)
    network, inputs = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3)), torch.randn(4, 5)
    copied, layout = private_copy(network, torch.device("cpu")), WeightLayout.of(network)
    head = find_head(copied, inputs)
    assert head is not None
    layer = head.layer(copied)
    weights = layer.out_features * layer.in_features
    first = layout.total - weights - layer.out_features
    indices = torch.arange(first, layout.total)
    if chosen != "all":
        indices = indices[:weights]
    if chosen == "even features":
        indices = indices[indices.sub(first).remainder(layer.in_features).remainder(2) == 0]
    jacobian = make_jacobian(copied, layout, indices, inputs, head)
    precision = random_precision(len(indices))
    posterior = CholeskyPosterior(np.linalg.cholesky(np.linalg.inv(precision)))
    factor = structured_factor(jacobian, posterior, layer.out_features)
    assert isinstance(factor, HeadFactor)
    assert (factor.features is None) == (chosen == "all")
    hidden = network[:-1](inputs).detach().double()
    truth = reference.full_jacobian(network, inputs)[1][:, :, indices.numpy()]
    np.testing.assert_allclose(factor.variance(None, hidden), reference.variance(truth, precision), rtol=1e-6)


def test_other_choices_of_weights_stay_in_blocks() -> None:
    """Features that differ, outputs without weights, and weights outside the head."""
    every, none = torch.arange(4), torch.arange(0)
    own = [OwnWeights(every[:2], every[:2]), OwnWeights(every[2:], every[:2])]
    other = [own[0], OwnWeights(every[2:], every[1:3])]
    fewer = [own[0], OwnWeights(every[2:3], every[:1])]
    scale_tril = np.linalg.cholesky(np.linalg.inv(random_precision(4)))
    assert head_factor(block_factor(scale_tril, none, own), 3) is not None
    assert head_factor(block_factor(scale_tril, none, other), 3) is None
    assert head_factor(block_factor(scale_tril[:3, :3], none, fewer), 3) is None
    outside = [OwnWeights(every[:1], every[:1]), OwnWeights(every[1:2], every[:1])]
    assert head_factor(block_factor(scale_tril, every[2:], outside), 3) is None
    assert isinstance(block_factor(scale_tril, every[2:], outside), BlockFactor)
