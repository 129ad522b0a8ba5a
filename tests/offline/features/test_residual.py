"""What features have outside the principal subspace."""

import numpy as np
import torch

from offline.features.class_gaussian import unit
from offline.features.residual import HELD, Residual
from tests import reference


def test_the_residual_of_the_definition() -> None:
    generator = torch.Generator().manual_seed(0)
    scale = torch.tensor([1.0, 0.5, 0.3, 0.05, 0.02, 0.01])
    u = unit([(scale * torch.randn(200, 6, generator=generator)).double()])
    residual = Residual.of(u.T @ u)
    assert 1 <= residual.basis.shape[1] < 6
    asked = unit([torch.randn(9, 6, generator=generator).double()])
    expected = [reference.residual(x, u.numpy(), HELD) for x in asked.numpy()]
    np.testing.assert_allclose(residual.distance(asked), expected, rtol=1e-9)


def test_one_direction_is_always_left_out() -> None:
    u = unit([torch.randn(50, 3, generator=torch.Generator().manual_seed(0)).double()])
    assert Residual.of(u.T @ u).basis.shape == (3, 2)
    assert Residual.of(torch.ones(1, 1).double()).basis.shape == (1, 1)
