"""From the curvature to a posterior: observation noise, prior precision, and the factor that is kept."""

import functools
from collections.abc import Iterator
from dataclasses import dataclass, replace

from torch import Tensor

from demur.service.bundle import AddedWeights as ManifestPart
from demur.service.bundle import Gate as GatePart
from demur.service.bundle import InputNoise as InputNoisePart
from demur.service.bundle import Posterior, Prior
from demur.service.maths.posterior_factor import CholeskyPosterior

from ..data.held_out import HeldOut
from ..data.likelihood import Likelihood, Regression
from ..features.added_weights import AddedWeights
from ..features.input_noise import InputNoise
from ..features.mistakes import Mistakes, possible_mistakes
from ..jacobian.jacobian import SubnetworkJacobian
from ..job import Job
from ..runtime.progress import one_step
from ..section import Section
from .added_scale import AddedScale, held_outputs, scale_added
from .calibration import held_out_rows
from .ggn import Curvature
from .noise import likeliest_noise
from .posterior import Spectrum, factor, posterior_precision, variances_under
from .prior import find_prior


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
    searched = not isinstance(config.prior_precision, float)
    spectrum = None
    if searched or config.estimates_noise:
        spectrum = one_step(job.track, "Eigenvalues", lambda: Spectrum.of(ggn))
    prior, warnings = find_prior(job, jacobian, spectrum, curvature.examples, tuning, gated=added is not None)
    scaled, likelihood = None, job.likelihood
    if added is not None:
        variances = variances_under(ggn, spectrum if searched else None, prior.used)
        scaled = scale_added(job, jacobian, added, tuning, variances)
        likelihood = scaled.likelihood
    if isinstance(likelihood, Regression) and spectrum is not None and config.estimates_noise:
        beside = None if scaled is None else (scaled.held.mean, scaled.chosen.scale * scaled.held.variance)
        noise = likeliest_noise(jacobian, spectrum, prior.used, tuning, likelihood, job.track, beside)
        ratio, likelihood = (likelihood.noise / noise) ** 2, replace(likelihood, sigma_noise=noise, noise_scale=None)
        ggn, spectrum = ggn.mul_(ratio), spectrum.scaled(ratio)
        if scaled is not None and added is not None:  # what is usual of the posterior that is served
            variances = variances_under(ggn, spectrum, prior.used)
            scaled = replace(scaled, held=held_outputs(job, jacobian, likelihood, added, tuning, variances))
    scale_tril, jitter = one_step(job.track, "Factor", lambda: factor(posterior_precision(ggn, prior.used)))
    kept, metadata = CholeskyPosterior(scale_tril.numpy()), Posterior(kind="cholesky", size=len(ggn), jitter=jitter)
    finished = None
    if added is not None and scaled is not None:
        mistakes = _mistakes(job, added, tuning, held_out_rows(jacobian, likelihood.outputs))
        gate = scaled.held.gate.scaled(scaled.chosen.scale)
        weights = replace(added, gate=gate, noise=scaled.noise, told=scaled.told, mistakes=mistakes)
        finished = Added(weights, scaled.chosen)
    warnings += tuple(_warnings(job, jacobian, metadata, finished))
    noise_examples = len(tuning) if config.estimates_noise else None
    return Inference(kept, metadata, prior, likelihood, warnings, finished, noise_examples)


def _warnings(job: Job, jacobian: SubnetworkJacobian, posterior: Posterior, added: Added | None) -> Iterator[str]:
    if job.form.two_values and (added is None or added.weights.told is None):
        yield (
            "the noise that the model gives is not served: that takes added weights, an estimated sigma_noise, and "
            "targets held out that it makes likelier, beyond chance, than one noise for all does, and than one that is "
            "fitted"
        )
    if posterior.jitter:
        yield f"{posterior.jitter:.2e} was added to the diagonal of the posterior precision before it was factored"
    if job.config.added_weights and added is None:
        yield (
            "no weights were added: the network calls no Linear layer or convolution whose input can be read, so "
            "nothing tells how far an input is from the training data; build its layers from torch.nn modules"
        )
    if added is not None and not added.weights.gate.subnetwork:
        yield (
            f"the {jacobian.size:,} chosen weights are not served: for most held-out examples their variance is "
            "next to nothing, so it says nothing of others; far from the training data the added weights are "
            "alone; try another selection"
        )


def _mistakes(job: Job, added: AddedWeights, tuning: HeldOut, rows: int) -> Mistakes | None:
    def read(inputs: Tensor) -> Tensor:
        return added.coordinates_of(job.network, inputs, rows)

    possible = possible_mistakes(tuning.inputs, job.takes.parts)
    fit = functools.partial(Mistakes.fit, read, job.network, tuning.inputs, possible, job.config.seed, rows)
    return one_step(job.track, "Named mistakes", fit) if possible else None
