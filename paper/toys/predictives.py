"""Predictive variances of the full posterior, of cruder ones and of subnetworks, all around the same mean.

Everything is float64 and over the weights without biases; variances include the observation noise.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from demur.offline.laplace.posterior import factor, posterior_precision
from demur.offline.laplace.prior import prior_share
from demur.offline.selection.candidate_weights import module_parameters, positions_of
from demur.offline.selection.live_weights import is_live
from paper.fitted import Fitted

Array = npt.NDArray[Any]
PRIOR_PRECISION = 3.0  # "the full covariance approach presents reasonable results" with it, not with 1
WHOLE = "full", "diagonal", "last layer", "last layer, alone", "MAP"
Jacobians = Mapping[str, Tensor]  # set of points -> (n, D)


@dataclass(frozen=True)
class PaperFitted(Fitted):
    """With its full Laplace posterior, by the paper's prior precision."""

    prior_precision = PRIOR_PRECISION

    @cached_property
    def sigma_noise(self) -> float:
        """The root mean square residual."""
        with torch.no_grad():
            residual = self.exact(torch.as_tensor(self.problem.x)) - torch.as_tensor(self.problem.y)
        return float(residual.square().mean().sqrt())

    @cached_property
    def training(self) -> Tensor:
        """The Jacobian of the training data, (N, D)."""
        return self.jacobian(self.problem.x)

    @cached_property
    def ggn(self) -> Tensor:
        """H (D, D), without prior, with 1 / sigma^2."""
        ggn: Tensor = self.training.T @ self.training
        return ggn.div_(self.sigma_noise**2)

    @cached_property
    def scale_tril(self) -> Tensor:
        """L (D, D) with L L^T = (H + lambda I)^-1."""
        return factor(posterior_precision(self.ggn, self.prior_precision))[0]

    @property
    def head(self) -> Tensor:
        """Positions of the last layer."""
        last = str(len(list(self.model.children())) - 1)
        names = module_parameters(self.model, self.layout, [last], "last layer")
        return positions_of([parameter for parameter in self.layout.parameters if parameter.name in names])


def whole_network(fitted: PaperFitted, jacobians: Jacobians) -> dict[str, dict[str, Array]]:
    """What needs no selection: name -> set of points -> variances (n,)."""
    return {
        "full": _each(jacobians, lambda j: j @ fitted.scale_tril, fitted),
        "diagonal": _each(jacobians, lambda j: j / (fitted.ggn.diagonal() + fitted.prior_precision).sqrt(), fitted),
        # The paper's: the full covariance, of which all but the last layer's entries are discarded.
        "last layer": _each(jacobians, lambda j: j[:, fitted.head] @ fitted.scale_tril[fitted.head], fitted),
        # The posterior of these weights with all others fixed.
        "last layer, alone": subnetwork(fitted, fitted.head, jacobians),
        "MAP": {name: np.full(len(j), fitted.sigma_noise**2) for name, j in jacobians.items()},
    }


def _each(jacobians: Jacobians, root: Callable[[Tensor], Tensor], fitted: PaperFitted) -> dict[str, Array]:
    """Squared lengths of the rows that `root` makes of a Jacobian, with the noise."""
    return {
        name: root(jacobian).square().sum(1).numpy() + fitted.sigma_noise**2 for name, jacobian in jacobians.items()
    }


def subnetwork(fitted: PaperFitted, indices: Tensor, jacobians: Jacobians) -> dict[str, Array]:
    """Full covariance over these weights, lambda_S = lambda S / D, all others fixed."""
    used = fitted.prior_precision * prior_share(len(indices), fitted.total)
    precision = fitted.ggn[indices][:, indices] + used * torch.eye(len(indices), dtype=torch.float64)
    lower = torch.linalg.cholesky(precision)
    solved = {k: torch.linalg.solve_triangular(lower, j[:, indices].T, upper=False) for k, j in jacobians.items()}
    return {k: (s.square().sum(0) + fitted.sigma_noise**2).numpy() for k, s in solved.items()}


def dead_among(fitted: PaperFitted, indices: Tensor) -> int:
    """How many of these weights have no curvature on the training data."""
    return int((~is_live(fitted.ggn.diagonal())[indices]).sum())
