"""The posterior over chosen weights of a network with one output and Gaussian noise, and the search for lambda.

With A (N, S) the Jacobian of the training data divided by sigma, H = A^T A, and for lambda_S = p

    v(x) = J (H + p I)^-1 J^T = (J J^T - J A^T (A A^T + p I)^-1 A J^T) / p,

so that the smaller one of an (S, S) and an (N, N) matrix is factored. Everything is float64.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from demur.offline.data.likelihood import gaussian_log_likelihood
from demur.offline.laplace.posterior import posterior_precision
from demur.offline.laplace.prior import prior_share

Array = npt.NDArray[Any]
PRIOR_GRID = (0.0001, 0.001, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 100.0, 1000.0)  # the paper's


class Posterior(Protocol):
    """Over S weights, for any prior precision."""

    def variances(self, jacobian: Tensor, used: float) -> Tensor:
        """v(x) (n,) of jacobian (n, S) with lambda_S = `used`."""


@dataclass(frozen=True)
class Primal:
    """By H (S, S)."""

    ggn: Tensor

    def variances(self, jacobian: Tensor, used: float) -> Tensor:
        lower = torch.linalg.cholesky(posterior_precision(self.ggn, used))
        variances: Tensor = torch.linalg.solve_triangular(lower, jacobian.T, upper=False).square_().sum(0)
        return variances


@dataclass(frozen=True)
class Dual:
    """By A (N, S) and its kernel A A^T (N, N)."""

    rows: Tensor
    kernel: Tensor

    def variances(self, jacobian: Tensor, used: float) -> Tensor:
        lower = torch.linalg.cholesky(posterior_precision(self.kernel, used))
        explained: Tensor = torch.linalg.solve_triangular(lower, self.rows @ jacobian.T, upper=False).square_().sum(0)
        # A variance below zero is rounding: where the data determine all that the weights do at x.
        variances: Tensor = (jacobian.square().sum(1) - explained).clamp_(min=0) / used
        return variances


class Curvature(Protocol):
    """Of all D weights."""

    @property
    def diagonal(self) -> Tensor:
        """diag(H), (D,)."""

    def over(self, indices: Tensor) -> Posterior:
        """The posterior over these weights, all others fixed."""


@dataclass(frozen=True)
class WholeMatrix:
    """H (D, D), where there are at least as many examples as weights."""

    ggn: Tensor

    @property
    def diagonal(self) -> Tensor:
        return self.ggn.diagonal()

    def over(self, indices: Tensor) -> Posterior:
        everything = len(indices) == len(self.ggn)
        return Primal(self.ggn if everything else self.ggn[indices][:, indices])


@dataclass(frozen=True)
class Rows:
    """A (N, D), where there are fewer examples than weights."""

    rows: Tensor

    @property
    def diagonal(self) -> Tensor:
        return self.rows.square().sum(0)

    def over(self, indices: Tensor) -> Posterior:
        rows = self.rows[:, indices]
        return Primal(rows.T @ rows) if len(indices) <= len(rows) else Dual(rows, rows @ rows.T)


@dataclass(frozen=True)
class Judged:
    """Data to predict: the means (n, 1) of the network, its Jacobian (n, D), and targets; `sigma` is of the noise."""

    mean: Array
    jacobian: Tensor
    targets: Array
    sigma: float

    def log_likelihood(self, variances: Array | float) -> float:
        """Mean log-likelihood per example of N(f, v + sigma^2), in standardised units; variances (n,) or 0."""
        std = np.sqrt(np.broadcast_to(variances, len(self.mean))[:, None] + self.sigma**2)
        return float(gaussian_log_likelihood(self.mean, std, self.targets).mean())

    def under(self, posterior: Posterior, indices: Tensor, used: float) -> float:
        """The same under a posterior over the weights at `indices`."""
        chosen = self.jacobian if len(indices) == self.jacobian.shape[1] else self.jacobian[:, indices]
        return self.log_likelihood(posterior.variances(chosen, used).numpy())


Score = Callable[[float], float]
Search = Callable[[Score, float], float]


def whole_grid(score: Score, start: float) -> float:  # noqa: ARG001
    """The lambda of `PRIOR_GRID` with the best score; ties go to the smaller one."""
    return max(PRIOR_GRID, key=score)


def climb(score: Score, start: float) -> float:
    """The same where scores rise to one peak: from `start` to the better neighbour until there is none."""
    known: dict[int, float] = {}

    def at(place: int) -> float:
        if not 0 <= place < len(PRIOR_GRID):
            return -math.inf
        if place not in known:
            known[place] = score(PRIOR_GRID[place])
        return known[place]

    place = PRIOR_GRID.index(start)
    while (best := max((place, place - 1, place + 1), key=at)) != place:
        place = best
    return PRIOR_GRID[place]


@dataclass(frozen=True)
class Chosen:
    """lambda and what it gives: mean log-likelihoods in standardised units."""

    prior_precision: float
    validation: float
    test: float


def fit(
    curvature: Curvature, indices: Tensor, total: int, validation: Judged, test: Judged, search: Search, start: float
) -> Chosen:
    """Choose lambda on the validation set, lambda_S = lambda S / D, and score the test set with it."""
    posterior, share = curvature.over(indices), prior_share(len(indices), total)
    found: dict[float, float] = {}

    def score(precision: float) -> float:
        found[precision] = validation.under(posterior, indices, precision * share)
        return found[precision]

    best = search(score, start)
    return Chosen(best, found[best], test.under(posterior, indices, best * share))
