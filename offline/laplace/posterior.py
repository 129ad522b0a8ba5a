"""From the curvature H to the posterior precision P = H + lambda_S I and its Cholesky factor.

With H = Q diag(e) Q^T known once, every prior precision costs only diagonal work: log evidence and the predictive
variances of a held-out batch for a whole grid of lambda follow from e and J Q.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from demur.service.maths.posterior_factor import CholeskyPosterior

from ..runtime.arrays import Array, to_numpy

# The range of the paper's search (appendix "Image Experiments") and two decades more, ten values a decade: where a
# subnetwork is a small share of the network, lambda S / D is small.
PRIOR_GRID: Array = np.logspace(-4, 6, 101)
# The search goes on below that range, down to where the largest eigenvalue is so many times lambda_S: smaller values
# stand for variances that derivatives in 32-bit numbers do not resolve. More decades would only be a longer table.
STEPS_A_DECADE, RESOLVED, MORE_DECADES = 10, 1e10, 8
FIRST_JITTER, MAX_TRIES = 1e-12, 8
Variances = Callable[[Tensor], Array]
"""From derivatives (B, M, S) to variances (B, M)."""


class FactorizationError(ValueError):
    """The posterior precision could not be factored."""


@dataclass(frozen=True)
class Spectrum:
    """H = vectors @ diag(values) @ vectors.T; values (S,) >= 0 ascending, vectors (S, S), float64."""

    values: Tensor
    vectors: Tensor

    @classmethod
    def of(cls, ggn: Tensor) -> "Spectrum":
        """Eigenvalues below zero are rounding (the matrix is positive semi-definite) and set to zero."""
        values, vectors = torch.linalg.eigh(ggn)
        return cls(values.clamp(min=0), vectors)

    def search_range(self, share: float) -> Array:
        """Values of lambda to try, ascending, ten a decade: `PRIOR_GRID`, and smaller ones as far as they make sense.

        share: lambda_S / lambda. The ranges of two spectra differ only in where they begin.
        """
        smallest = float(self.values.max()) / RESOLVED / share
        decades = min(MORE_DECADES, max(0.0, np.log10(PRIOR_GRID[0] / smallest) if smallest > 0 else np.inf))
        steps = np.arange(np.floor(STEPS_A_DECADE * decades), 0, -1)
        return np.concatenate([PRIOR_GRID[0] * 10 ** (-steps / STEPS_A_DECADE), PRIOR_GRID])

    def scaled(self, factor: float) -> "Spectrum":
        """That of factor * H."""
        return Spectrum(self.values * factor, self.vectors)

    def variances(self, jacobian: Tensor, precisions: Array) -> Array:
        """diag(J (H + p I)^-1 J^T) for each p: sum_i (J q_i)^2 / (e_i + p). (B, K, S), (G,) -> (B, K, G).

        p may be infinite: no variance.
        """
        squares = (jacobian.to(self.vectors) @ self.vectors).square_()
        p = torch.as_tensor(precisions).to(self.values)
        result: Array = (squares @ (self.values.unsqueeze(1) + p).reciprocal_()).cpu().numpy()
        return result

    def log_evidence(self, weights: Tensor, precisions: Array) -> Array:
        """Log marginal likelihood of each prior precision p, up to terms without p, (G,):

        0.5 (S log p - p ||theta_S||^2 - sum_i log(e_i + p)) (MacKay 1992; Immer et al. 2021).
        """
        p = torch.as_tensor(precisions).to(self.values)
        log_determinant = torch.log(self.values.unsqueeze(1) + p).sum(0)
        norm = weights.to(self.values).square().sum()
        result: Array = (0.5 * (len(self.values) * p.log() - p * norm - log_determinant)).cpu().numpy()
        return result


def variances_under(ggn: Tensor, spectrum: Spectrum | None, used: float) -> Variances:
    """diag(J (H + lambda_S I)^-1 J^T), by the spectrum where there is one, else by a factor: a decomposition would be
    dearer."""
    if spectrum is not None:
        p = np.array([used])
        return lambda jacobian: spectrum.variances(jacobian, p)[..., 0]
    posterior = CholeskyPosterior(factor(posterior_precision(ggn, used))[0].numpy())
    return lambda jacobian: posterior.variance(to_numpy(jacobian.double()))


def posterior_precision(ggn: Tensor, used: float) -> Tensor:
    """P = H + lambda_S I, (S, S) float64."""
    precision = ggn.clone()
    precision.diagonal().add_(used)
    return precision


def factor(precision: Tensor) -> tuple[Tensor, float]:
    """scale_tril L (S, S), lower triangular with positive diagonal, L L^T = precision^-1; and the jitter added.

    Without inverting: reversing rows and columns of the precision's reversed Cholesky factor gives an upper
    triangular U with precision = U U^T, so L = U^-T. Where the matrix cannot be factored, growing multiples of its
    mean diagonal are added to the diagonal; the multiple is returned, never hidden.
    """
    identity = torch.eye(len(precision), dtype=precision.dtype)
    scale = float(precision.diagonal().mean())
    steps = [0.0, *(FIRST_JITTER * 10**attempt * scale for attempt in range(MAX_TRIES))]
    for jitter in steps:
        lower, info = torch.linalg.cholesky_ex(torch.flip(precision + jitter * identity, (0, 1)))
        if int(info) == 0:
            upper = torch.flip(lower, (0, 1))
            return torch.linalg.solve_triangular(upper.T, identity, upper=False), jitter
    raise FactorizationError(
        f"posterior precision: no Cholesky factor even with {steps[-1]:.1e} added to its diagonal; raise "
        "prior_precision"
    )
