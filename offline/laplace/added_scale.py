"""The prior variance c of the added weights: how much uncertainty they get.

The two posteriors are independent: an output's variance is v_S(x) + c v(x), of the chosen weights and of the added
ones. What uncertainty costs is the held-out log-likelihood below the best without any, each at the temperature that
suits it (`demur.offline.laplace.temperature`). c is the largest for which the cost *and its standard error*, paired
over the examples, are at most the uncertainty budget: with few examples it errs on the safe side by itself.

Where uncertainty costs nothing at all, as of a network that guesses, c ends where its typical variance is ten times the
square of the temperature, or of the noise.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from ..config import FitConfig
from ..data.held_out import HeldOut
from ..data.likelihood import Classification, Likelihood
from ..features.added_weights import AddedWeights
from ..jacobian.jacobian import SubnetworkJacobian
from ..job import Job
from ..runtime.arrays import Array, to_numpy
from .calibration import held_out_rows
from .temperature import suited

LEAST_SCALE, MOST_VARIANCE = 0.01, 10.0  # of c, and of c median(v): in squares of the temperature or of the noise
LEAST_TYPICAL = 1e-3  # of median(v)
STEPS_A_DECADE, BISECTIONS = 2, 6  # the latter between two steps: to 2 %
Variances = Callable[[Tensor], Array]
"""From derivatives (B, M, S) to variances (B, M, J)."""


@dataclass(frozen=True)
class Held:
    """Outputs of held-out examples: mean (n, K), targets, the subnetwork's variances (n, K), of which those with a
    divisor for all outputs keep the mean, (n, 1), and v of the added weights, (n,)."""

    mean: Array
    targets: Array
    subnetwork: Array
    added: Array

    def variance(self, scale: float, likelihood: Likelihood) -> Array:
        """(n, K) or (n, 1)."""
        total: Array = self.subnetwork + scale * self.added[:, np.newaxis] * likelihood.added_share
        return total


@dataclass(frozen=True)
class Paid:
    """What uncertainty costs on held-out data, mean and standard error in nats; and the likelihood that suits it."""

    cost: float
    error: float
    likelihood: Likelihood

    @property
    def most(self) -> float:
        """One standard error above the mean."""
        return self.cost + self.error


@dataclass(frozen=True)
class AddedScale:
    """c, what it costs, and the choice in one sentence."""

    scale: float
    paid: Paid
    explanation: str


def choose_scale(config: FitConfig, likelihood: Likelihood, held: Held) -> AddedScale:
    """The largest c within the budget; the smallest that is tried, where none is.

    likelihood: of the plain network.
    """
    budget = config.budget
    plain = likelihood.log_likelihood(held.mean, np.zeros_like(held.subnetwork), held.targets)

    def pay(scale: float) -> Paid:
        variance, own = held.variance(scale, likelihood), likelihood
        if isinstance(own, Classification) and config.fits_temperature:
            own = suited(own, held.mean, variance, held.targets)
        lost = plain - own.log_likelihood(held.mean, variance, held.targets)
        return Paid(float(lost.mean()), float(lost.std() / math.sqrt(len(lost))), own)

    logarithms = np.log(_scales(likelihood, held))
    last = len(logarithms) - 1
    place = next((place for place in range(last, -1, -1) if pay(math.exp(logarithms[place])).most <= budget), 0)
    low, high = logarithms[place], logarithms[min(place + 1, last)]
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if pay(math.exp(middle)).most <= budget else (low, middle)
    scale = math.exp(low)
    paid = pay(scale)
    return AddedScale(scale, paid, _explain(scale, paid, budget, ended=place == last, count=len(held.mean)))


def held_outputs(
    job: Job,
    jacobian: SubnetworkJacobian,
    likelihood: Likelihood,
    added: AddedWeights,
    data: HeldOut,
    variances: Variances,
) -> Held:
    """One pass; variances: of the subnetwork, J = 1."""
    mean, subnetwork = shared_variances(job, jacobian, data, variances, "Prior variance")
    variance, _ = added.of_all(job.network, data.inputs, held_out_rows(jacobian, likelihood.outputs))
    return Held(mean, to_numpy(data.targets), subnetwork[:, :, 0], variance)


def shared_variances(
    job: Job, jacobian: SubnetworkJacobian, data: HeldOut, variances: Variances, description: str
) -> tuple[Array, Array]:
    """Mean (n, K) and the subnetwork's variances of held-out examples, (n, K, J), or where one divisor is for all
    outputs their mean, (n, 1, J), float64."""
    means, found, shared = [], [], job.likelihood.link == "probit-shared"
    for inputs, _ in data.chunks(held_out_rows(jacobian, job.likelihood.outputs), job.track, description):
        mean, derivatives = jacobian(inputs)
        means.append(to_numpy(mean.double()))
        some = variances(derivatives)
        found.append(some.mean(axis=1, keepdims=True) if shared else some)
    return np.concatenate(means), np.concatenate(found)


def suited_log_likelihood(likelihood: Classification, mean: Array, variances: Array, targets: Array) -> Array:
    """(J,): of each of the variances (n, 1, J) or (n, K, J) at the temperature that suits them."""
    each = (variances[:, :, j] for j in range(variances.shape[2]))
    return np.array([suited(likelihood, mean, v, targets).log_likelihood(mean, v, targets).mean() for v in each])


def _scales(likelihood: Likelihood, held: Held) -> Array:
    """What is tried, ascending."""
    unit = likelihood.plain_temperature**2 if isinstance(likelihood, Classification) else likelihood.noise_variance
    typical = max(float(np.median(held.added)), LEAST_TYPICAL)
    least = unit * LEAST_SCALE
    most = unit * MOST_VARIANCE / typical
    return np.geomspace(least, most, 1 + math.ceil(STEPS_A_DECADE * math.log10(most / least)))


def _explain(scale: float, paid: Paid, budget: float, *, ended: bool, count: int) -> str:
    """One sentence."""
    text = (
        f"prior variance {scale:.3g} of the added weights: uncertainty costs {paid.cost:.2g} nats, with a standard "
        f"error of {paid.error:.2g} on {count:,} held-out examples, of the {budget:g} allowed"
    )
    return f"{text}; a larger one was not tried, since it would be most of every prediction" if ended else text
