"""From the curvature to a posterior: observation noise, prior precision, and the factor that is kept."""

from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor

from demur.service.bundle import AddedWeights as ManifestPart
from demur.service.bundle import Posterior, Prior
from demur.service.maths.posterior_factor import CholeskyPosterior

from ..config import FitConfig
from ..data.held_out import HeldOut
from ..data.likelihood import Classification, Likelihood, Regression
from ..features.added_weights import AddedWeights
from ..jacobian.jacobian import SubnetworkJacobian
from ..job import Job
from ..runtime.arrays import Array, to_numpy
from ..runtime.progress import one_step
from ..section import Section
from .added_scale import AddedScale, Variances, choose_scale, held_outputs, shared_variances, suited_log_likelihood
from .calibration import held_out_rows
from .ggn import Curvature
from .noise import likeliest_noise
from .posterior import Spectrum, factor, posterior_precision
from .prior import (
    PLAIN,
    PriorSweep,
    choose_prior,
    fixed_prior,
    likeliest_prior,
    no_wider_than_targets,
    prior_share,
    searched_prior,
    sweep_prior,
)

# Where nothing else asks for it, a decomposition only for the report's picture is not worth S^3 work.
PICTURED_SIZE = 4096


@dataclass(frozen=True)
class Added:
    """The added weights with the prior variance that was chosen, and what that costs."""

    weights: AddedWeights
    chosen: AddedScale

    def in_manifest(self, budget: float) -> ManifestPart:
        """What the manifest says of them."""
        weights, paid = self.weights, self.chosen.paid
        return ManifestPart(
            layers=weights.layers.link,
            distance_layers=weights.layers.score,
            features=len(weights.link.phases),
            prior_variance=weights.scale,
            budget=budget,
            cost=paid.cost,
            cost_error=paid.error,
            explanation=self.chosen.explanation,
        )


@dataclass(frozen=True)
class Inference:
    """The posterior in float64 (`factor`), its entries in the manifest, and warnings for the user.

    likelihood: with the observation noise, or the temperature, that suits the posterior. eigenvalues (S,): of the
    curvature, None where no decomposition was made. added: the posterior over added weights, if there are any. notes:
    remarks on the search that need no action. noise_examples: how many held-out examples gave the noise, if any did.
    """

    factor: CholeskyPosterior
    posterior: Posterior
    prior: Prior
    likelihood: Likelihood
    eigenvalues: Tensor | None
    warnings: tuple[str, ...]
    notes: tuple[str, ...] = ()
    added: Added | None = None
    noise_examples: int | None = None

    @property
    def added_weights(self) -> AddedWeights | None:
        """With the prior variance that was chosen; None: there are none."""
        return None if self.added is None else self.added.weights

    def section(self, config: FitConfig) -> Section:
        """In the manifest."""
        fields = {"prior": self.prior, "posterior": self.posterior}
        added = None if self.added is None else self.added.in_manifest(config.budget)
        metrics = {} if self.noise_examples is None else {"noise_examples": float(self.noise_examples)}
        return Section({**fields, "added_weights": added}, metrics, self.warnings)


@dataclass(frozen=True)
class _Priors:
    """What the search for the prior gave."""

    prior: Prior
    likelihood: Likelihood
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    added: AddedScale | None = None


def infer(
    job: Job,
    jacobian: SubnetworkJacobian,
    curvature: Curvature,
    tuning: HeldOut,
    added: AddedWeights | None = None,
) -> Inference:
    """Choose lambda, the prior variance of the added weights and the noise, and factor P = H + lambda_S I.

    Raises `FactorizationError`.
    """
    config = job.config
    ggn = curvature.ggn.div_(job.likelihood.noise_variance)
    spectrum = _spectrum(job, ggn)
    found = _search(job, jacobian, ggn, spectrum, tuning, added, curvature.examples)
    prior, likelihood, warnings = found.prior, found.likelihood, found.warnings
    posterior_added = None
    if added is not None and found.added is not None:
        posterior_added = Added(replace(added, scale=found.added.scale), found.added)
    if isinstance(likelihood, Regression) and spectrum is not None and config.estimates_noise:
        rows = held_out_rows(jacobian, likelihood.outputs)
        extra = None if posterior_added is None else posterior_added.weights.of_all(job.network, tuning.inputs, rows)[0]
        noise = likeliest_noise(jacobian, spectrum, prior.used, tuning, likelihood, job.track, extra)
        ratio, likelihood = (likelihood.noise / noise) ** 2, replace(likelihood, sigma_noise=noise)
        ggn, spectrum = ggn.mul_(ratio), spectrum.scaled(ratio)
    kept, metadata = _cholesky(job, ggn, prior)
    if metadata.jitter:
        warnings += (
            f"{metadata.jitter:.2e} was added to the diagonal of the posterior precision before it was factored",
        )
    if config.added_weights and added is None:
        warnings += (
            "no weights were added: the network calls no Linear layer or convolution whose input can be read, so "
            "nothing tells how far an input is from the training data; build its layers from torch.nn modules",
        )
    eigenvalues = None if spectrum is None else spectrum.values
    noise_examples = len(tuning) if config.estimates_noise else None
    return Inference(
        kept, metadata, prior, likelihood, eigenvalues, warnings, found.notes, posterior_added, noise_examples
    )


def needs_spectrum(config: FitConfig, size: int) -> bool:
    """Whether the curvature of S weights is decomposed: to search, or where it costs little."""
    return not isinstance(config.prior_precision, float) or config.estimates_noise or size <= PICTURED_SIZE


def _spectrum(job: Job, ggn: Tensor) -> Spectrum | None:
    if not needs_spectrum(job.config, len(ggn)):
        return None
    return one_step(job.track, "Eigenvalues", lambda: Spectrum.of(ggn))


def _search(
    job: Job,
    jacobian: SubnetworkJacobian,
    ggn: Tensor,
    spectrum: Spectrum | None,
    tuning: HeldOut,
    added: AddedWeights | None,
    examples: int,
) -> _Priors:
    """lambda and lambda_S = lambda S / D, and the added weights' prior variance;
    examples: N of the curvature."""
    config = job.config
    share = prior_share(jacobian.size, job.layout.total)
    if isinstance(config.prior_precision, float):
        found = _Priors(fixed_prior(config.prior_precision, share), job.likelihood)
        return found if added is None else _scaled(job, jacobian, added, tuning, found, _of_factor(ggn, found.prior))
    assert spectrum is not None
    sweep = _sweep(job, jacobian, spectrum, share, tuning, shared=added is not None)
    likeliest = config.prior_precision is None and added is not None
    if isinstance(job.likelihood, Regression) and (likeliest or config.prior_precision in ("budget", None)):
        targets = to_numpy(job.likelihood.standardised(tuning.targets))
        sweep = no_wider_than_targets(sweep, spectrum, examples, job.likelihood.noise, targets)
    choice = (
        likeliest_prior(sweep) if likeliest else choose_prior(sweep, config.prior_precision or "budget", config.budget)
    )
    prior = searched_prior(sweep, choice)
    if added is None:
        return _Priors(prior, job.likelihood, choice.warnings, choice.notes)
    found = _Priors(prior, job.likelihood, choice.warnings)
    return _scaled(job, jacobian, added, tuning, found, lambda rows: spectrum.variances(rows, np.array([prior.used])))


def _scaled(
    job: Job, jacobian: SubnetworkJacobian, added: AddedWeights, tuning: HeldOut, found: _Priors, variances: Variances
) -> _Priors:
    """With the prior variance of the added weights, and the likelihood that goes with both posteriors."""
    held = held_outputs(job, jacobian, found.likelihood, added, tuning, variances)
    chosen = choose_scale(job.config, found.likelihood, held)
    return replace(found, likelihood=chosen.paid.likelihood, added=chosen)


def _sweep(
    job: Job, jacobian: SubnetworkJacobian, spectrum: Spectrum, share: float, tuning: HeldOut, *, shared: bool
) -> PriorSweep:
    """What each lambda is worth; with one divisor for all logits (`shared`), at the temperature that suits it."""
    weights = job.weights.cpu()[jacobian.indices.cpu()]
    if not (shared and isinstance(job.likelihood, Classification) and job.config.fits_temperature):
        return sweep_prior(spectrum, weights, share, jacobian, tuning, job.likelihood, job.track)
    precisions = spectrum.search_range(share)
    tried = np.append(precisions * share, PLAIN)
    mean, variances = shared_variances(
        job, jacobian, tuning, lambda rows: spectrum.variances(rows, tried), "Prior precision"
    )
    scores = suited_log_likelihood(job.likelihood, mean, variances, to_numpy(tuning.targets))
    evidence = spectrum.log_evidence(weights, precisions * share)
    sweep = PriorSweep(precisions, precisions * share, evidence, scores[:-1], float(scores[-1]))
    return sweep.as_far_as_it_matters()


def _of_factor(ggn: Tensor, prior: Prior) -> Variances:
    """By the factor at a lambda that is given: a decomposition would be dearer."""
    scale_tril = factor(posterior_precision(ggn, prior.used))[0].numpy()
    posterior = CholeskyPosterior(scale_tril)

    def variances(rows: Tensor) -> Array:
        found: Array = posterior.variance(to_numpy(rows.double()))
        return found[:, :, np.newaxis]

    return variances


def _cholesky(job: Job, ggn: Tensor, prior: Prior) -> tuple[CholeskyPosterior, Posterior]:
    scale_tril, jitter = one_step(job.track, "Factor", lambda: factor(posterior_precision(ggn, prior.used)))
    return CholeskyPosterior(scale_tril.numpy()), Posterior(kind="cholesky", size=len(ggn), jitter=jitter)
