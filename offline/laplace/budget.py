"""Share the uncertainty budget between the subnetwork and the added weights.

The two posteriors are independent: an output's variance is v_S(x) + c v(x), of the chosen weights at prior precision
lambda and of the added ones at prior variance c. The budget is what both may cost together, in nats of held-out
log-likelihood below the best without them, at the temperature that suits each (`offline.laplace.temperature`). A share
of it decides lambda, the smallest that it pays for, and then c is the largest that the whole pays for.

The shares are judged on synthetic shifts of the held-out data by which no weights were chosen.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from offline.data.held_out import HeldOut
from offline.data.likelihood import Classification, Likelihood
from offline.data.shifts import available_shifts, finite_shifts, keeps_label, split_shifts
from offline.features.added_weights import AddedWeights
from offline.jacobian.jacobian import SubnetworkJacobian
from offline.jacobian.output_rule import filled
from offline.job import Job
from offline.laplace.calibration import held_out_rows
from offline.laplace.temperature import suited
from offline.runtime.arrays import Array, to_numpy
from service.bundle import BudgetShare

SHARES = (0.0, 0.5, 1.0)  # of the budget, to the added weights
SCALES: Array = np.logspace(-2, 4, 13)  # of c, in squares of the temperature or of the noise
BISECTIONS = 6  # between two of them: to 2 %
MARGIN = 0.02  # nats under shift: of the order of the error that some hundred examples leave
SHIFTED_EXAMPLES = 250
Variances = Callable[[Tensor], Array]
"""From derivatives (B, M, S) to the variances (B, M, J) of each way to share."""


@dataclass(frozen=True)
class Way:
    """A share of the budget, and the prior precision lambda that the rest pays for."""

    share: float
    precision: float


@dataclass(frozen=True)
class Held:
    """Outputs of held-out examples: mean (n, K), targets, the subnetwork's variances (n, K, J) for each way, of which a
    classification keeps the mean over the outputs, (n, 1, J), and v of the added weights, (n,)."""

    mean: Array
    targets: Array
    subnetwork: Array
    added: Array

    def variance(self, way: int, scale: float) -> Array:
        """(n, K) or (n, 1)."""
        total: Array = self.subnetwork[:, :, way] + scale * self.added[:, np.newaxis]
        return total


@dataclass(frozen=True)
class Shared:
    """The way that was chosen: its place, c, the likelihood at the temperature that suits it, what was compared, and
    the choice in one sentence."""

    place: int
    scale: float
    likelihood: Likelihood
    tried: tuple[BudgetShare, ...]
    explanation: str


def share_budget(
    job: Job,
    jacobian: SubnetworkJacobian,
    likelihood: Likelihood,
    added: AddedWeights,
    tuning: HeldOut,
    ways: Sequence[Way],
    variances: Variances,
    reference: float | None,
) -> Shared:
    """Choose one of the `ways`, with the c that goes with it.

    reference: the best mean held-out log-likelihood that is known, which uncertainty is charged to; None: that of the
    first way without added weights.
    """

    def outputs(data: HeldOut) -> Held:
        return _outputs(job, jacobian, likelihood, added, data, variances)

    held = outputs(tuning)
    plain = max(_suited(job, likelihood, held, way, 0.0)[1] for way in range(len(ways)))
    least = (plain if reference is None else max(plain, reference)) - job.config.uncertainty_budget
    found = [_largest_scale(job, likelihood, held, way, least) for way in range(len(ways))]
    fitted = [_suited(job, likelihood, held, way, scale) for way, scale in enumerate(found)]
    names: list[str] = []
    under: list[float | None] = [None] * len(ways)
    if len(ways) > 1:
        names, under = _under_shift(job, tuning, outputs, [own for own, _ in fitted], found)
    place = _choose(ways, under)
    tried = tuple(
        BudgetShare(
            way.share,
            found[i],
            way.precision,
            own.temperature,
            log_likelihood,
            under[i],
            chosen=i == place,
        )
        for i, (way, (own, log_likelihood)) in enumerate(zip(ways, fitted, strict=True))
    )
    return Shared(place, found[place], fitted[place][0], tried, _explain(tried, names, job.config.uncertainty_budget))


def shared_variances(
    job: Job, jacobian: SubnetworkJacobian, data: HeldOut, variances: Variances, description: str
) -> tuple[Array, Array]:
    """Mean (n, K) and the subnetwork's variances of held-out examples, (n, K, J), for a classification their mean over
    the outputs, (n, 1, J), float64."""
    means, found, classes = [], [], isinstance(job.likelihood, Classification)
    for inputs, _ in data.chunks(held_out_rows(jacobian, job.likelihood.outputs), job.track, description):
        mean, derivatives = jacobian.predictive(inputs)
        means.append(to_numpy(mean.double()))
        some = filled(jacobian.rule, variances(derivatives), mean)
        found.append(some.mean(axis=1, keepdims=True) if classes else some)
    return np.concatenate(means), np.concatenate(found)


def suited_log_likelihood(likelihood: Likelihood, mean: Array, variances: Array, targets: Array) -> Array:
    """(J,): of each of the variances (n, 1, J) at the temperature that suits them."""
    assert isinstance(likelihood, Classification)
    return np.array([suited(likelihood, mean, variances[:, :, j], targets)[1] for j in range(variances.shape[2])])


def _outputs(
    job: Job,
    jacobian: SubnetworkJacobian,
    likelihood: Likelihood,
    added: AddedWeights,
    data: HeldOut,
    variances: Variances,
) -> Held:
    mean, subnetwork = shared_variances(job, jacobian, data, variances, "Shares of the budget")
    variance, _ = added.of_all(job.network, data.inputs, held_out_rows(jacobian, likelihood.outputs))
    return Held(mean, to_numpy(data.targets), subnetwork, variance)


def _suited(job: Job, likelihood: Likelihood, held: Held, way: int, scale: float) -> tuple[Likelihood, float]:
    """The likelihood that goes with these variances, and the mean held-out log-likelihood."""
    variance = held.variance(way, scale)
    if isinstance(likelihood, Classification) and job.config.temperature == "fit":
        return suited(likelihood, held.mean, variance, held.targets)
    return likelihood, float(likelihood.log_likelihood(held.mean, variance, held.targets).mean())


def _largest_scale(job: Job, likelihood: Likelihood, held: Held, way: int, least: float) -> float:
    """The largest c whose log-likelihood is at least `least`, by bisection of log c; the smallest that is tried where
    none is."""
    unit = likelihood.plain_temperature**2 if isinstance(likelihood, Classification) else likelihood.noise_variance
    logarithms = np.log(unit * SCALES)

    def affordable(logarithm: float) -> bool:
        return _suited(job, likelihood, held, way, math.exp(logarithm))[1] >= least

    last = len(logarithms) - 1
    place = next((place for place in range(last, -1, -1) if affordable(logarithms[place])), 0)
    low, high = logarithms[place], logarithms[min(place + 1, last)]
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if affordable(middle) else (low, middle)
    return math.exp(low)


def _under_shift(
    job: Job,
    tuning: HeldOut,
    outputs: Callable[[HeldOut], Held],
    likelihoods: Sequence[Likelihood],
    scales: Sequence[float],
) -> tuple[list[str], list[float | None]]:
    """Names of the shifts, and the mean log-likelihood of each way under them; None where there is no shift."""
    some = tuning.at(np.arange(min(len(tuning), SHIFTED_EXAMPLES)))
    _, judging = split_shifts(available_shifts(some.inputs))
    shifts = finite_shifts(job.network, some.inputs, job.config.seed, judging)
    kept = [name for name in shifts if keeps_label(name)]
    if not kept:
        return [], [None] * len(scales)
    found = np.zeros(len(scales))
    for name in kept:
        held = outputs(HeldOut(shifts[name], some.targets))
        for way, (own, scale) in enumerate(zip(likelihoods, scales, strict=True)):
            found[way] += own.log_likelihood(held.mean, held.variance(way, scale), held.targets).mean()
    return kept, list((found / len(kept)).tolist())


def _choose(ways: Sequence[Way], under: Sequence[float | None]) -> int:
    """Of the ways within `MARGIN` of the best, the one with the largest share to the added weights."""
    known = [value for value in under if value is not None]
    near = [i for i, value in enumerate(under) if value is None or value >= max(known) - MARGIN]
    return max(near, key=lambda i: ways[i].share)


def _explain(tried: Sequence[BudgetShare], names: Sequence[str], budget: float) -> str:
    """One sentence."""
    chosen = next(way for way in tried if way.chosen)
    words = {0.0: "what is left of", 0.5: "half of", 1.0: "all of"}
    text = f"added weights take {words[chosen.share]} the budget of {budget:g} nats, with the prior variance "
    text += f"{chosen.prior_variance:.3g}"
    others = [way for way in tried if not way.chosen and way.shift_log_likelihood is not None]
    if chosen.shift_log_likelihood is None or not others:
        return text
    *before, last = names
    listed = f"{', '.join(before)} and {last}" if before else last
    compared = ", ".join(f"{way.shift_log_likelihood:.2f} with {words[way.share]} it" for way in others)
    return f"{text}: log-likelihood under {listed} {chosen.shift_log_likelihood:.2f} ({compared})"
