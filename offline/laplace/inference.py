"""From the curvature to a posterior: observation noise, prior precision, and the factor that is kept."""

import functools
from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor

from demur.service.bundle import AddedWeights as ManifestPart
from demur.service.bundle import Gate as GatePart
from demur.service.bundle import InputNoise as InputNoisePart
from demur.service.bundle import Posterior, Prior
from demur.service.maths.posterior_factor import CholeskyPosterior

from ..config import FitConfig
from ..data.held_out import HeldOut
from ..data.likelihood import Likelihood, Regression, with_noise_scale
from ..features.added_weights import AddedWeights
from ..features.input_noise import InputNoise
from ..features.mistakes import Mistakes, possible_mistakes
from ..features.told_noise import ToldNoise
from ..jacobian.jacobian import SubnetworkJacobian
from ..job import Job
from ..runtime.arrays import Array, to_numpy
from ..runtime.progress import one_step
from ..section import Section
from .added_scale import AddedScale, Held, Variances, choose_scale, held_outputs
from .calibration import held_out_rows
from .ggn import Curvature
from .noise import likeliest_noise, noise_beside
from .posterior import Spectrum, factor, posterior_precision
from .prior import (
    choose_prior,
    fixed_prior,
    no_wider_than_targets,
    prior_share,
    searched_prior,
    sweep_prior,
)


@dataclass(frozen=True)
class Added:
    """The added weights with the gate that was chosen, and what that costs."""

    weights: AddedWeights
    chosen: AddedScale

    @property
    def explanation(self) -> str:
        """Of the gate, and of a noise that the network tells."""
        told = self.weights.told
        return self.chosen.explanation + ("" if told is None else f"; the model's second value is a {told.reading}")

    def in_manifest(self) -> ManifestPart:
        """What the manifest says of them."""
        weights, paid = self.weights, self.chosen.paid
        return ManifestPart(
            layers=weights.layers.link,
            distance_layers=weights.layers.score,
            features=len(weights.variances.factors[0]),
            prior_variance=weights.gate.added,
            gate=GatePart(weights.gate.subnetwork, weights.gate.threshold),
            budget=self.chosen.budget,
            cost=paid.cost,
            cost_error=paid.error,
            explanation=self.explanation,
            noise=None if weights.noise is None else _noise_part(weights.noise),
        )


def _noise_part(noise: InputNoise) -> InputNoisePart:
    least, most = float(noise.low.min().exp()), float(noise.high.max().exp())
    return InputNoisePart(least, most, noise.gain, noise.error)


@dataclass(frozen=True)
class Inference:
    """The posterior in float64 (`factor`), its entries in the manifest, and warnings for the user.

    likelihood: with the observation noise, or the temperature, that suits the posterior. added: the posterior over
    added weights, if there are any. noise_examples: how many held-out examples gave the noise, if any did.
    """

    factor: CholeskyPosterior
    posterior: Posterior
    prior: Prior
    likelihood: Likelihood
    warnings: tuple[str, ...]
    added: Added | None = None
    noise_examples: int | None = None

    @property
    def added_weights(self) -> AddedWeights | None:
        """With the gate that was chosen; None: there are none."""
        return None if self.added is None else self.added.weights

    def section(self) -> Section:
        """In the manifest."""
        fields = {"prior": self.prior, "posterior": self.posterior}
        added = None if self.added is None else self.added.in_manifest()
        metrics = {} if self.noise_examples is None else {"noise_examples": float(self.noise_examples)}
        return Section({**fields, "added_weights": added}, metrics, self.warnings)


@dataclass(frozen=True)
class _Priors:
    """What the search for the prior gave."""

    prior: Prior
    likelihood: Likelihood
    warnings: tuple[str, ...] = ()
    added: tuple[Held, AddedScale] | None = None
    noise: InputNoise | None = None
    told: ToldNoise | None = None


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
    prior, likelihood, warnings = found.prior, found.likelihood, found.warnings + _not_told(job, found)
    held, chosen = found.added or (None, None)
    if isinstance(likelihood, Regression) and spectrum is not None and config.estimates_noise:
        if held is None or chosen is None:
            noise = likeliest_noise(jacobian, spectrum, prior.used, tuning, likelihood, job.track)
        else:
            noise = noise_beside(held.mean, chosen.scale * held.variance, held.targets, likelihood)
        ratio, likelihood = (likelihood.noise / noise) ** 2, replace(likelihood, sigma_noise=noise, noise_scale=None)
        ggn, spectrum = ggn.mul_(ratio), spectrum.scaled(ratio)
        if held is not None and added is not None:  # what is usual of the posterior that is served
            held = held_outputs(job, jacobian, likelihood, added, tuning, _of_spectrum(spectrum, prior))
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
    posterior_added = None
    if added is not None and held is not None and chosen is not None:
        mistakes = _mistakes(job, added, tuning, held_out_rows(jacobian, likelihood.outputs))
        gate = held.gate.scaled(chosen.scale)
        with_all = replace(added, gate=gate, noise=found.noise, told=found.told, mistakes=mistakes)
        posterior_added = Added(with_all, chosen)
        if not held.gate.subnetwork:
            warnings += (
                f"the {jacobian.size:,} chosen weights are not served: for most held-out examples their variance is "
                "next to nothing, so it says nothing of others; far from the training data the added weights are "
                "alone; try another selection",
            )
    noise_examples = len(tuning) if config.estimates_noise else None
    return Inference(kept, metadata, prior, likelihood, warnings, posterior_added, noise_examples)


def _not_told(job: Job, found: _Priors) -> tuple[str, ...]:
    """A warning where the network's own noise is not served."""
    if not job.form.two_values or found.told is not None:
        return ()
    return (
        "the noise that the model gives is not served: that takes added weights, an estimated sigma_noise, and targets "
        "held out that it makes likelier, beyond chance, than one noise for all does, and than one that is fitted",
    )


def _mistakes(job: Job, added: AddedWeights, tuning: HeldOut, rows: int) -> Mistakes | None:
    def read(inputs: Tensor) -> Tensor:
        return added.coordinates_of(job.network, inputs, rows)

    possible = possible_mistakes(tuning.inputs, job.takes.parts)
    fit = functools.partial(Mistakes.fit, read, job.network, tuning.inputs, possible, job.config.seed, rows)
    return one_step(job.track, "Named mistakes", fit) if possible else None


def needs_spectrum(config: FitConfig) -> bool:
    """Whether the curvature is decomposed, to search."""
    return not isinstance(config.prior_precision, float) or config.estimates_noise


def _spectrum(job: Job, ggn: Tensor) -> Spectrum | None:
    if not needs_spectrum(job.config):
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
    """lambda and lambda_S = lambda S / D, and the gate of both posteriors, if there are two; examples: N of the
    curvature."""
    config = job.config
    share = prior_share(jacobian.size, job.layout.total)
    if isinstance(config.prior_precision, float):
        found = _Priors(fixed_prior(config.prior_precision, share), job.likelihood)
        return found if added is None else _scaled(job, jacobian, added, tuning, found, _of_factor(ggn, found.prior))
    assert spectrum is not None
    method = config.prior_precision or ("budget" if added is None else "marglik")
    judged = None if added is not None and method == "marglik" else tuning  # behind the gate, by evidence alone
    weights = job.weights.cpu()[jacobian.indices.cpu()]
    sweep = sweep_prior(spectrum, weights, share, jacobian, judged, job.likelihood, job.track)
    if isinstance(job.likelihood, Regression) and method == "budget":
        targets = to_numpy(job.likelihood.standardised(tuning.targets))
        sweep = no_wider_than_targets(sweep, spectrum, examples, job.likelihood.noise, targets)
    choice = choose_prior(sweep, method, config.budget(-(sweep.plain_log_likelihood or 0.0)))
    prior = searched_prior(sweep, choice)
    if added is None:
        return _Priors(prior, job.likelihood, choice.warnings)
    found = _Priors(prior, job.likelihood, choice.warnings if config.prior_precision else ())
    return _scaled(job, jacobian, added, tuning, found, _of_spectrum(spectrum, prior))


def _scaled(
    job: Job, jacobian: SubnetworkJacobian, added: AddedWeights, tuning: HeldOut, found: _Priors, variances: Variances
) -> _Priors:
    """With the prior variance of the added weights, and the likelihood that goes with both posteriors.

    That variance is chosen beside one noise for all: a few unusual examples with little noise would forbid it to all.
    """
    held = held_outputs(job, jacobian, found.likelihood, added, tuning, variances)
    chosen = choose_scale(job.config, found.likelihood, held)
    own, noise, likelihood = None, None, chosen.paid.likelihood
    if isinstance(likelihood, Regression) and job.config.estimates_noise:
        squares = np.square((held.targets - held.mean) / likelihood.noises)
        assert held.psi is not None
        noise, scale = InputNoise.fit(held.psi, held.mean, squares, job.config.seed) or (None, None)
        told = ToldNoise.fit(job.form, job.network, tuning.inputs, squares)
        if told is not None and (noise is None or told[1].gain > noise.gain - noise.error):
            own, noise, scale = told
        likelihood = with_noise_scale(likelihood, scale)
    return replace(found, likelihood=likelihood, added=(held, chosen), noise=noise, told=own)


def _of_spectrum(spectrum: Spectrum, prior: Prior) -> Variances:
    used = np.array([prior.used])
    return lambda rows: spectrum.variances(rows, used)[..., 0]


def _of_factor(ggn: Tensor, prior: Prior) -> Variances:
    """By the factor at a lambda that is given: a decomposition would be dearer."""
    scale_tril = factor(posterior_precision(ggn, prior.used))[0].numpy()
    posterior = CholeskyPosterior(scale_tril)

    def variances(rows: Tensor) -> Array:
        return posterior.variance(to_numpy(rows.double()))

    return variances


def _cholesky(job: Job, ggn: Tensor, prior: Prior) -> tuple[CholeskyPosterior, Posterior]:
    scale_tril, jitter = one_step(job.track, "Factor", lambda: factor(posterior_precision(ggn, prior.used)))
    return CholeskyPosterior(scale_tril.numpy()), Posterior(kind="cholesky", size=len(ggn), jitter=jitter)
