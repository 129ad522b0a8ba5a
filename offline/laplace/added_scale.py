"""The prior variance c of the added weights and of the chosen ones: how much uncertainty they get.

An output's variance is c times what is unusual of an input (`demur.offline.features.gate`). What uncertainty costs is
the held-out log-likelihood below the best without any, each at the temperature that suits it
(`demur.offline.laplace.temperature`). c is the largest for which the cost *and its standard error*, paired over the
examples, are at most the uncertainty budget: with few examples it errs on the safe side by itself, and what a few of
them gain by chance buys nothing. And no class, or label, may be announced much more often than by the best temperature:
its mean probability may rise by a tenth, or by half a standard error of its frequency, where that is more; the rise is
charged with its standard error, too.

Where uncertainty costs nothing at all, as of a network that guesses, c ends at ten times the square of the temperature,
or of the noise: so much for each median that an input is more unusual than the ordinary ones.
"""

import math
from dataclasses import dataclass

import numpy as np

from ..config import FitConfig
from ..data.held_out import HeldOut
from ..data.likelihood import Classification, Likelihood, Regression, with_noise_scale
from ..features.added_weights import AddedWeights
from ..features.gate import Gate
from ..features.input_noise import InputNoise
from ..features.told_noise import ToldNoise
from ..jacobian.jacobian import SubnetworkJacobian
from ..job import Job
from ..runtime.arrays import Array, to_numpy
from .calibration import held_out_rows
from .posterior import Variances
from .temperature import suited

LEAST_SCALE, MOST_SCALE = 1e-3, 10.0  # of c: in squares of the temperature or of the noise
RISE, ERRORS = 0.1, 0.5  # of the mean probability of a class: in its own size, and in standard errors
FEW = 5.0  # expected examples of a class; of rarer ones, a single unsure example would decide: they count as one
STEPS_A_DECADE, BISECTIONS = 2, 6  # the latter between two steps: to 2 %


@dataclass(frozen=True)
class Held:
    """Outputs of held-out examples: mean (n, K), targets, and the variances for c = 1, (n, K), of which those with a
    divisor for all outputs keep the mean, (n, 1); gate: that of c = 1; psi (n, m): as `AddedWeights.of` gives it."""

    mean: Array
    targets: Array
    variance: Array
    gate: Gate
    psi: Array | None = None


@dataclass(frozen=True)
class Paid:
    """What uncertainty costs on held-out data, mean and standard error in nats; the likelihood that suits it; and
    whether every class keeps its share."""

    cost: float
    error: float
    likelihood: Likelihood
    shares_kept: bool

    @property
    def most(self) -> float:
        """One standard error above the mean, of which a gain counts only beyond one standard error."""
        return (self.cost if self.cost > 0 else min(self.cost + self.error, 0.0)) + self.error


@dataclass(frozen=True)
class AddedScale:
    """c, what it costs, of what budget, and the choice in one sentence."""

    scale: float
    budget: float
    paid: Paid
    explanation: str


@dataclass(frozen=True)
class Scaled:
    """What held-out data say of the added weights: their prior variance, the likelihood that goes with both posteriors,
    and the noise that depends on the input, or that the network tells."""

    held: Held
    chosen: AddedScale
    likelihood: Likelihood
    noise: InputNoise | None = None
    told: ToldNoise | None = None


def scale_added(
    job: Job, jacobian: SubnetworkJacobian, added: AddedWeights, tuning: HeldOut, variances: Variances
) -> Scaled:
    """Their prior variance is chosen beside one noise for all: a few unusual examples with little noise would forbid it
    to all. variances: of the subnetwork."""
    held = held_outputs(job, jacobian, job.likelihood, added, tuning, variances)
    chosen = choose_scale(job.config, job.likelihood, held)
    own, noise, likelihood = None, None, chosen.paid.likelihood
    if isinstance(likelihood, Regression) and job.config.estimates_noise:
        squares = np.square((held.targets - held.mean) / likelihood.noises)
        assert held.psi is not None
        noise, scale = InputNoise.fit(held.psi, held.mean, squares, job.config.seed) or (None, None)
        told = ToldNoise.fit(job.form, job.network, tuning.inputs, squares)
        if told is not None and (noise is None or told[1].gain > noise.gain - noise.error):
            own, noise, scale = told
        likelihood = with_noise_scale(likelihood, scale)
    return Scaled(held, chosen, likelihood, noise, own)


def choose_scale(config: FitConfig, likelihood: Likelihood, held: Held) -> AddedScale:
    """The largest c within the budget; the smallest that is tried, where none is.

    likelihood: of the plain network.
    """
    none = np.zeros_like(held.variance)
    plain = likelihood.log_likelihood(held.mean, none, held.targets)
    usual = _probabilities(likelihood, held, none)
    budget = config.budget(-float(plain.mean()), added=True)

    def pay(scale: float) -> Paid:
        variance, own = scale * held.variance, likelihood
        if isinstance(own, Classification) and config.fits_temperature:
            own = suited(own, held.mean, variance, held.targets)
        lost = plain - own.log_likelihood(held.mean, variance, held.targets)
        kept = _keeps_shares(usual, _probabilities(own, held, variance))
        return Paid(float(lost.mean()), float(lost.std() / math.sqrt(len(lost))), own, kept)

    def affordable(logarithm: float) -> bool:
        paid = pay(math.exp(logarithm))
        return paid.most <= budget and paid.shares_kept

    logarithms = np.log(_scales(likelihood))
    last = len(logarithms) - 1
    place = next((place for place in range(last, -1, -1) if affordable(logarithms[place])), 0)
    low, high = logarithms[place], logarithms[min(place + 1, last)]
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if affordable(middle) else (low, middle)
    scale = math.exp(low)
    paid, more = pay(scale), pay(math.exp(high))
    explanation = _explain(paid, budget, len(held.mean), more, ended=place == last)
    return AddedScale(scale, budget, paid, explanation)


def _probabilities(likelihood: Likelihood, held: Held, variance: Array) -> Array:
    """Of each class or label, (n, K); none of a regression."""
    if isinstance(likelihood, Classification):
        return likelihood.probabilities(held.mean, variance)
    return np.zeros((len(held.mean), 0))


def _keeps_shares(usual: Array, found: Array) -> bool:
    """Whether no class, or all that are `FEW` as one, is announced much more often than usual; (n, K) both."""
    few = len(usual) * usual.mean(axis=0) < FEW
    usual, found = (np.column_stack([p[:, ~few], p[:, few].sum(axis=1)]) for p in (usual, found))
    shares, error = usual.mean(axis=0), math.sqrt(len(usual))
    rise = (found - usual).mean(axis=0) + (found - usual).std(axis=0) / error
    own = np.sqrt(np.maximum(shares * (1 - shares), 0.0)) / error
    return bool((rise <= np.maximum(RISE * shares, ERRORS * own)).all())


def held_outputs(
    job: Job,
    jacobian: SubnetworkJacobian,
    likelihood: Likelihood,
    added: AddedWeights,
    data: HeldOut,
    variances: Variances,
) -> Held:
    """One pass; variances: of the subnetwork."""
    rows, share = held_out_rows(jacobian, likelihood.outputs), likelihood.added_share
    means, found = [], []
    for inputs, _ in data.chunks(rows, job.track, "Prior variance"):
        mean, derivatives = jacobian(inputs)
        means.append(to_numpy(mean.double()))
        found.append(variances(derivatives))
    subnetwork, (extra, _, psi) = np.concatenate(found), added.of_all(job.network, data.inputs, rows)
    gate = Gate.fit((subnetwork / share).mean(axis=1), extra, _unit(likelihood))
    variance = gate.of(subnetwork, extra, share)[0]
    if likelihood.link == "probit-shared":
        variance = variance.mean(axis=1, keepdims=True)
    return Held(np.concatenate(means), to_numpy(data.targets), variance, gate, psi)


def _scales(likelihood: Likelihood) -> Array:
    """What is tried, ascending."""
    least, most = (bound * _unit(likelihood) for bound in (LEAST_SCALE, MOST_SCALE))
    return np.geomspace(least, most, 1 + math.ceil(STEPS_A_DECADE * math.log10(most / least)))


def _unit(likelihood: Likelihood) -> float:
    """T^2, or sigma^2."""
    return likelihood.plain_temperature**2 if isinstance(likelihood, Classification) else likelihood.noise_variance


def _explain(paid: Paid, budget: float, count: int, more: Paid, *, ended: bool) -> str:
    """One sentence; more: what a larger c would be paid for."""
    text = (
        f"uncertainty costs {paid.cost:.2g} nats, with a standard error of {paid.error:.2g} on {count:,} held-out "
        f"examples, of the {budget:.2g} allowed"
    )
    if ended:
        return f"{text}; more was not tried, since it would be most of every unusual prediction"
    guarded = more.most <= budget and not more.shares_kept
    return f"{text}; more of it would announce a class too often" if guarded else text
