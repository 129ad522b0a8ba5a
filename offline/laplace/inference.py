"""From the curvature to a posterior: observation noise, prior precision, and the factor that is kept."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from offline.config import FitConfig
from offline.data.held_out import HeldOut
from offline.data.likelihood import Likelihood, Regression
from offline.data.loaders import rows_within
from offline.jacobian.jacobian import SubnetworkJacobian
from offline.job import Job
from offline.laplace.ggn import Curvature
from offline.laplace.low_rank import low_rank
from offline.laplace.noise import likeliest_noise
from offline.laplace.posterior import Spectrum, factor, posterior_precision
from offline.laplace.prior import choose_prior, fixed_prior, prior_share, searched_prior, sweep_prior
from offline.runtime.progress import one_step
from service.bundle import Posterior, Prior
from service.maths.posterior_factor import CholeskyPosterior, LowRankPosterior, PosteriorFactor

LOW_RANK_EXAMPLES, LOW_RANK_BYTES = 256, 256 * 2**20
# Where nothing else asks for it, a decomposition only for the report's picture is not worth S^3 work.
PICTURED_SIZE = 4096


@dataclass(frozen=True)
class Inference:
    """The posterior in float64 (`factor`), its entries in the manifest, and warnings for the user.

    likelihood: with the observation noise that suits the posterior. eigenvalues (S,): of the curvature, None where no
    decomposition was made. notes: remarks on the search that need no action.
    """

    factor: PosteriorFactor
    posterior: Posterior
    prior: Prior
    likelihood: Likelihood
    eigenvalues: Tensor | None
    warnings: tuple[str, ...]
    notes: tuple[str, ...] = ()


def infer(job: Job, jacobian: SubnetworkJacobian, curvature: Curvature, tuning: HeldOut) -> Inference:
    """Choose lambda and the noise, and factor P = H + lambda_S I. Raises `FactorizationError`."""
    config, likelihood = job.config, job.likelihood
    ggn = curvature.ggn.div_(likelihood.noise_variance)
    spectrum = _spectrum(job, ggn)
    prior, warnings, notes = _prior(job, jacobian, spectrum, tuning)
    if isinstance(likelihood, Regression) and spectrum is not None and config.estimates_noise:
        noise = likeliest_noise(jacobian, spectrum, prior.used, tuning, likelihood.noise, job.track)
        ratio, likelihood = (likelihood.noise / noise) ** 2, replace(likelihood, sigma_noise=noise)
        ggn, spectrum = ggn.mul_(ratio), spectrum.scaled(ratio)
    if config.posterior == "low-rank":
        assert spectrum is not None
        kept, metadata = _low_rank(job, jacobian, spectrum, prior, tuning)
        warnings += _worthless_rank(metadata)
    else:
        kept, metadata = _cholesky(job, ggn, prior)
    if metadata.jitter:
        warnings += (
            f"{metadata.jitter:.2e} was added to the diagonal of the posterior precision before it was factored",
        )
    eigenvalues = None if spectrum is None else spectrum.values
    return Inference(kept, metadata, prior, likelihood, eigenvalues, warnings, notes)


def needs_spectrum(config: FitConfig, size: int) -> bool:
    """Whether the curvature of S weights is decomposed: to search, for a low rank, or where it costs little."""
    fixed = isinstance(config.prior_precision, float) and config.posterior == "cholesky"
    return not fixed or config.estimates_noise or size <= PICTURED_SIZE


def _spectrum(job: Job, ggn: Tensor) -> Spectrum | None:
    if not needs_spectrum(job.config, len(ggn)):
        return None
    return one_step(job.track, "Eigenvalues", lambda: Spectrum.of(ggn))


def _prior(
    job: Job, jacobian: SubnetworkJacobian, spectrum: Spectrum | None, tuning: HeldOut
) -> tuple[Prior, tuple[str, ...], tuple[str, ...]]:
    """lambda and lambda_S = lambda * S / D (or lambda, without scaling), warnings and notes of the search."""
    config = job.config
    share = prior_share(jacobian.size, job.layout.total, config.prior_scaling)
    if isinstance(config.prior_precision, float):
        return fixed_prior(config, config.prior_precision, share), (), ()
    assert spectrum is not None
    weights = job.weights.cpu()[jacobian.indices.cpu()]
    sweep = sweep_prior(spectrum, weights, share, jacobian, tuning, job.likelihood, job.track)
    choice = choose_prior(sweep, config.prior_precision, config.uncertainty_budget)
    return searched_prior(config, sweep, choice), choice.warnings, choice.notes


def _cholesky(job: Job, ggn: Tensor, prior: Prior) -> tuple[PosteriorFactor, Posterior]:
    scale_tril, jitter = one_step(job.track, "Factor", lambda: factor(posterior_precision(ggn, prior.used)))
    return CholeskyPosterior(scale_tril.numpy()), Posterior(kind="cholesky", size=len(ggn), jitter=jitter)


def _low_rank(
    job: Job, jacobian: SubnetworkJacobian, spectrum: Spectrum, prior: Prior, tuning: HeldOut
) -> tuple[PosteriorFactor, Posterior]:
    config, sample = job.config, tuning.inputs[: _sample_size(job, jacobian)]
    rows = torch.cat([jacobian.predictive(x)[1].double().cpu() for x in torch.split(sample, 8)])
    result = low_rank(spectrum.values, spectrum.vectors, prior.used, rows, config.posterior_tolerance)
    metadata = Posterior(
        kind="low-rank",
        size=jacobian.size,
        jitter=0.0,
        rank=result.rank,
        tolerance=config.posterior_tolerance,
        error=result.error,
    )
    return LowRankPosterior(result.eigenvalues, result.eigenvectors, prior.used), metadata


def _sample_size(job: Job, jacobian: SubnetworkJacobian) -> int:
    """Held-out examples on which the error of a low rank is measured."""
    return min(
        LOW_RANK_EXAMPLES, rows_within(LOW_RANK_BYTES, 8 * jacobian.rule.count(job.likelihood.outputs) * jacobian.size)
    )


def _worthless_rank(posterior: Posterior) -> tuple[str, ...]:
    if posterior.rank is None or 2 * posterior.rank < posterior.size:
        return ()
    return (
        f"the low-rank posterior needs {posterior.rank} of {posterior.size} eigenpairs, which is no smaller and no "
        "faster than posterior='cholesky'; take that, or a larger posterior_tolerance",
    )
