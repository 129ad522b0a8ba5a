"""The observation noise of a regression, from held-out residuals: those on the training data are too small.

The posterior and the predictive N(f, v(x) + sigma^2) share one sigma. A first estimate, the root mean square residual
on the held-out examples that tune, includes the variance v(x) that the weights explain. Once the prior precision is
known, sigma is chosen so that these examples are likeliest together with v(x), which depends on sigma itself:

    v_sigma(x) = J (G / sigma^2 + p I)^-1 J^T,   G = sum_n J_n^T J_n,   p = lambda_S.
"""

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from demur.service.maths.predictive import noise_ratios, predictive_std

from ..data.held_out import HeldOut
from ..data.likelihood import Regression, gaussian_log_likelihood
from ..jacobian.jacobian import SubnetworkJacobian
from ..runtime.arrays import Array, to_numpy
from ..runtime.progress import Track
from .calibration import held_out_rows
from .posterior import Spectrum

RESIDUAL_ROWS = 256
# Around the first estimate, 1 % apart: the weights take a part of it, seldom nearly all.
STEPS: Array = np.geomspace(0.1, 1.5, 271)


def residual_noise(network: nn.Module, data: HeldOut) -> tuple[float, tuple[float, ...] | None]:
    """sigma and the ratios r (K,) of the root mean square residuals sigma r_k of the outputs, None of a single one;
    `ValueError` where one is zero."""
    total: Array = np.zeros(data.targets.shape[1])
    with torch.no_grad():
        pieces = zip(torch.split(data.inputs, RESIDUAL_ROWS), torch.split(data.targets, RESIDUAL_ROWS), strict=True)
        for inputs, targets in pieces:
            total += to_numpy((targets.double() - network(inputs).double()).square().sum(0))
    if not (total > 0).all():
        which = "" if len(total) == 1 else f" in output {int(np.argmin(total))}"
        raise ValueError(
            f"sigma_noise: the model fits the held-out data exactly{which}, so its noise cannot be estimated; give a "
            "number"
        )
    sigma, ratios = noise_ratios(np.sqrt(total / len(data)))
    return sigma, None if len(ratios) == 1 else tuple(ratios.tolist())


def likeliest_noise(
    jacobian: SubnetworkJacobian,
    spectrum: Spectrum,
    used: float,
    data: HeldOut,
    likelihood: Regression,
    track: Track,
    beside: tuple[Array, Array] | None = None,
) -> float:
    """sigma with the largest held-out log-likelihood of the predictive, on a grid around the likelihood's.

    spectrum: of G / sigma^2; used: lambda_S. beside: mean and variance (n, K) of the same data, where the variance does
    not depend on sigma, as that of the added weights.
    """
    noises = likelihood.noise * STEPS
    if beside is not None:
        each = [replace(likelihood, sigma_noise=noise) for noise in noises.tolist()]
        return max(each, key=lambda one: float(one.log_likelihood(*beside, to_numpy(data.targets)).sum())).noise
    total = np.zeros(len(noises))
    for inputs, targets in data.chunks(held_out_rows(jacobian, data.targets.shape[1]), track, "Observation noise"):
        mean, j = jacobian(inputs)
        scaled = np.outer(noises, likelihood.relative)
        total += _log_likelihoods(to_numpy(mean.double()), j, targets, spectrum, used, scaled)
    return float(noises[int(np.argmax(total))])


def _log_likelihoods(
    mean: Array, jacobian: Tensor, targets: Array, spectrum: Spectrum, used: float, noises: Array
) -> Array:
    """Sums over the examples, one for each of the noises (I, K)."""
    scale = np.square(STEPS)  # v_sigma = scale J (G / first^2 + p scale I)^-1 J^T
    variances = scale * spectrum.variances(jacobian, used * scale)
    return np.array(
        [
            gaussian_log_likelihood(mean, predictive_std(variances[:, :, i], noise), targets).sum()
            for i, noise in enumerate(noises)
        ]
    )
