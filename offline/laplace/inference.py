"""From the curvature to a posterior: observation noise, prior precision, and the factor that is kept."""

from dataclasses import dataclass

import torch
from torch import Tensor

from offline.config import FitConfig
from offline.data.held_out import HeldOut
from offline.data.loaders import rows_within
from offline.jacobian.jacobian import SubnetworkJacobian
from offline.job import Job
from offline.laplace.ggn import Curvature
from offline.laplace.low_rank import low_rank
from offline.laplace.noise import estimates_noise, likeliest_noise
from offline.laplace.posterior import Spectrum, factor, posterior_precision
from offline.laplace.prior import choose_prior, fixed_prior, prior_share, searched_prior, sweep_prior
from offline.runtime.progress import one_step
from service.bundle import Posterior, Prior
from service.posterior_factor import CholeskyPosterior, LowRankPosterior, PosteriorFactor

LOW_RANK_EXAMPLES, LOW_RANK_BYTES = 256, 256 * 2**20
# Where nothing else asks for it, a decomposition only for the report's picture is not worth S^3 work.
PICTURED_SIZE = 4096


@dataclass(frozen=True)
class Inference:
    """The posterior in float64 (`factor`), what the manifest says of it, and what the user should know.

    eigenvalues (S,): of the curvature, None where no decomposition was made. plain_noise: the observation noise that
    suits the network without weight uncertainty. notes: what the search found out, and nothing to worry about.
    """

    factor: PosteriorFactor
    posterior: Posterior
    prior: Prior
    sigma_noise: float | None
    eigenvalues: Tensor | None
    warnings: tuple[str, ...]
    plain_noise: float | None = None
    notes: tuple[str, ...] = ()


def infer(job: Job, jacobian: SubnetworkJacobian, curvature: Curvature, tuning: HeldOut) -> Inference:
    """H_S + lambda_S I and its factor. Raises `FactorizationError`."""
    config, sigma_noise = job.config, job.sigma_noise
    ggn = curvature.ggn if sigma_noise is None else curvature.ggn.div_(sigma_noise**2)
    spectrum = _spectrum(job, ggn)
    prior, warnings, notes = _prior(job, jacobian, spectrum, tuning, sigma_noise)
    if sigma_noise is not None and spectrum is not None and estimates_noise(config):
        likeliest = likeliest_noise(jacobian, spectrum, prior.used, tuning, sigma_noise, job.track)
        ratio, sigma_noise = (sigma_noise / likeliest) ** 2, likeliest
        ggn, spectrum = ggn.mul_(ratio), spectrum.scaled(ratio)
    if config.posterior == "low-rank":
        assert spectrum is not None
        kept, said = _low_rank(job, jacobian, spectrum, prior, tuning)
        warnings += _worthless_rank(said)
    else:
        kept, said = _cholesky(job, ggn, prior)
    if said.jitter:
        warnings += (f"{said.jitter:.2e} was added to the diagonal of the posterior precision before it was factored",)
    eigenvalues = None if spectrum is None else spectrum.values
    return Inference(kept, said, prior, sigma_noise, eigenvalues, warnings, job.sigma_noise, notes)


def needs_spectrum(config: FitConfig, size: int) -> bool:
    """Whether the curvature of S weights is decomposed: to search, for a low rank, or where it costs little."""
    fixed = isinstance(config.prior_precision, float) and config.posterior == "cholesky"
    return not fixed or estimates_noise(config) or size <= PICTURED_SIZE


def _spectrum(job: Job, ggn: Tensor) -> Spectrum | None:
    if not needs_spectrum(job.config, len(ggn)):
        return None
    return one_step(job.track, "Eigenvalues", lambda: Spectrum.of(ggn))


def _prior(
    job: Job, jacobian: SubnetworkJacobian, spectrum: Spectrum | None, tuning: HeldOut, sigma_noise: float | None
) -> tuple[Prior, tuple[str, ...], tuple[str, ...]]:
    """lambda and lambda_S = lambda * S / D (or lambda, without scaling), warnings, and what the search found out."""
    config = job.config
    share = prior_share(jacobian.size, job.layout.total, config.prior_scaling)
    if isinstance(config.prior_precision, float):
        return fixed_prior(config, config.prior_precision, share), (), ()
    assert spectrum is not None
    weights = job.weights.cpu()[jacobian.indices.cpu()]
    sweep = sweep_prior(
        spectrum, weights, share, jacobian, tuning, job.outputs, sigma_noise, job.track, temperature=job.temperature
    )
    choice = choose_prior(sweep, config.prior_precision, config.uncertainty_budget)
    return searched_prior(config, sweep, choice), choice.warnings, choice.notes


def _cholesky(job: Job, ggn: Tensor, prior: Prior) -> tuple[PosteriorFactor, Posterior]:
    scale_tril, jitter = one_step(job.track, "Factor", lambda: factor(posterior_precision(ggn, prior.used)))
    return CholeskyPosterior(scale_tril.numpy()), Posterior(kind="cholesky", size=len(ggn), jitter=jitter)


def _low_rank(
    job: Job, jacobian: SubnetworkJacobian, spectrum: Spectrum, prior: Prior, tuning: HeldOut
) -> tuple[PosteriorFactor, Posterior]:
    config, sample = job.config, tuning.inputs[: _sample_size(job, jacobian)]
    rows = torch.cat([jacobian(x)[1].double().cpu() for x in torch.split(sample, 8)])
    found = low_rank(spectrum.values, spectrum.vectors, prior.used, rows, config.posterior_tolerance)
    said = Posterior(
        kind="low-rank",
        size=jacobian.size,
        jitter=0.0,
        rank=found.rank,
        tolerance=config.posterior_tolerance,
        error=found.error,
    )
    return LowRankPosterior(found.eigenvalues, found.eigenvectors, prior.used), said


def _sample_size(job: Job, jacobian: SubnetworkJacobian) -> int:
    """Held-out examples on which the error of a low rank is measured."""
    return min(LOW_RANK_EXAMPLES, rows_within(LOW_RANK_BYTES, 8 * job.outputs * jacobian.size))


def _worthless_rank(posterior: Posterior) -> tuple[str, ...]:
    if posterior.rank is None or 2 * posterior.rank < posterior.size:
        return ()
    return (
        f"the low-rank posterior needs {posterior.rank} of {posterior.size} eigenpairs, which is no smaller and no "
        "faster than posterior='cholesky'; take that, or a larger posterior_tolerance",
    )
