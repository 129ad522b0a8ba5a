"""The prior precision lambda: everything that a search tries, and the rules that choose from it.

With the curvature H = Q diag(e) Q^T known, a value of lambda costs only diagonal work (`Spectrum`), so a whole grid is
tried in one pass over the held-out data. lambda_S = lambda S / D stands in the posterior precision (Daxberger et al.
2021, appendix "Updating the prior precision for uncertainty estimation with subnetworks").
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from torch import Tensor

from demur.service.bundle import Prior, Tried

from ..data.held_out import HeldOut
from ..data.likelihood import Likelihood, Regression
from ..jacobian.jacobian import SubnetworkJacobian
from ..job import Job
from ..runtime.arrays import Array, to_numpy
from ..runtime.peak_memory import rows_within
from ..runtime.progress import Track, silent
from .calibration import MEMORY_BYTES, held_out_rows
from .posterior import PRIOR_GRID, STEPS_A_DECADE, Spectrum

Method = Literal["gridsearch", "marglik", "budget"]
PLAIN = np.inf  # without weight uncertainty: the variance vanishes as the prior precision grows
FLAT = 1e-4  # nats: the log-likelihood is flat where it changes by less over the lowest decade of lambda
BYTES_A_VALUE = 64  # float64 intermediates of the predictive, for each example, output and prior precision


@dataclass(frozen=True)
class PriorSweep:
    """What each prior precision is worth, (G,) each: lambda `precisions` ascending, lambda_S `used`.

    `log_evidence` up to a constant; `log_likelihood`, mean over held-out examples in nats, and that of the network
    without weight uncertainty, are None where no held-out data were given.
    """

    precisions: Array
    used: Array
    log_evidence: Array
    log_likelihood: Array | None = None
    plain_log_likelihood: float | None = None

    @property
    def ends_flat(self) -> bool:
        """Whether the held-out log-likelihood is constant over the lowest decade."""
        return self.log_likelihood is not None and is_flat(self.log_likelihood)

    def as_far_as_it_matters(self) -> "PriorSweep":
        """The sweep without the values below `PRIOR_GRID` at which the held-out log-likelihood no longer changes."""
        scores, start = self.log_likelihood, int(np.searchsorted(self.precisions, PRIOR_GRID[0] * (1 - 1e-9)))
        if scores is None:
            return self
        while start > 0 and not is_flat(scores[start:]):
            start -= 1
        return PriorSweep(
            self.precisions[start:],
            self.used[start:],
            self.log_evidence[start:],
            scores[start:],
            self.plain_log_likelihood,
        )

    def at_least(self, used: float) -> "PriorSweep":
        """The sweep without the values of lambda_S below `used`; the largest one stays."""
        start = min(int(np.searchsorted(self.used, used * (1 - 1e-9))), len(self.used) - 1)
        scores = self.log_likelihood
        return PriorSweep(
            self.precisions[start:],
            self.used[start:],
            self.log_evidence[start:],
            None if scores is None else scores[start:],
            self.plain_log_likelihood,
        )

    @property
    def reference(self) -> float:
        """The best mean held-out log-likelihood of the sweep and of the plain network: what uncertainty is charged to.

        Raises `ValueError` without held-out data.
        """
        if self.log_likelihood is None or self.plain_log_likelihood is None:
            raise ValueError("prior_precision: found no held-out data, expected at least one example to choose by")
        return max(float(self.log_likelihood.max()), self.plain_log_likelihood)


def is_flat(scores: Array) -> bool:
    """Whether the lowest decade of a log-likelihood (G,) over ascending precisions is all alike."""
    lowest = scores[: STEPS_A_DECADE + 1]
    return len(lowest) > STEPS_A_DECADE and float(np.ptp(lowest)) < FLAT


@dataclass(frozen=True)
class PriorChoice:
    """lambda `precision` and lambda_S `used`, by which method, and where it stands.

    `edge`: which end of the range was hit; `cost`: nats of mean held-out log-likelihood below the sweep's reference;
    `budget`: the cost that was allowed (method "budget"); `ends_flat`: whether the smallest values tried are alike.
    """

    method: Method
    precision: float
    used: float
    edge: Literal["smallest", "largest"] | None = None
    cost: float | None = None
    budget: float | None = None
    ends_flat: bool = False

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings for the user."""
        messages = []
        if self.edge == "largest" or (self.edge == "smallest" and self.budget is None and not self.ends_flat):
            messages.append(
                f"the prior precision {self.precision:g} is the {self.edge} of the range searched by {self.method!r}"
            )
        if self.budget is not None and self.cost is not None and self.cost > self.budget:
            messages.append(
                f"no prior precision in the range searched keeps to the uncertainty budget of {self.budget:g} nats: "
                f"the one taken costs {self.cost:.3g} on held-out data"
            )
        return tuple(messages)


def find_prior(
    job: Job,
    jacobian: SubnetworkJacobian,
    spectrum: Spectrum | None,
    examples: int,
    tuning: HeldOut,
    *,
    gated: bool,
) -> tuple[Prior, tuple[str, ...]]:
    """lambda and lambda_S = lambda S / D, as the user gives it or by the method that is due, and warnings.

    spectrum: of the curvature of N = `examples`; None where nothing is searched. gated: beside added weights the
    evidence alone decides, unless the user names a method.
    """
    config, share = job.config, prior_share(jacobian.size, job.layout.total)
    if isinstance(config.prior_precision, float):
        return Prior("fixed", config.prior_precision, config.prior_precision * share), ()
    assert spectrum is not None
    method: Method = config.prior_precision or ("marglik" if gated else "budget")
    judged = None if gated and method == "marglik" else tuning
    weights = job.weights.cpu()[jacobian.indices.cpu()]
    sweep = sweep_prior(spectrum, weights, share, jacobian, judged, job.likelihood, job.track)
    if isinstance(job.likelihood, Regression) and method == "budget":
        targets = to_numpy(job.likelihood.standardised(tuning.targets))
        sweep = no_wider_than_targets(sweep, spectrum, examples, job.likelihood.noise, targets)
    choice = choose_prior(sweep, method, config.budget(-(sweep.plain_log_likelihood or 0.0), added=gated))
    warnings = choice.warnings if config.prior_precision or not gated else ()
    return _searched(sweep, choice), warnings


def no_wider_than_targets(
    sweep: PriorSweep, spectrum: Spectrum, examples: int, noise: float, targets: Array
) -> PriorSweep:
    """For a regression, the values of lambda_S under which outputs spread no wider than targets before any data:

        E|J|^2 / lambda_S <= sum_k Var[y_k],   E|J|^2 = noise^2 trace(H) / N over the training examples.

    Held-out data bound the uncertainty only where they are: weights that these data determine may have any prior
    variance, and between and beyond the training data nothing else keeps their intervals finite.

    spectrum: of H, of N = `examples`; targets (n, K), held out.
    """
    spread = float(np.var(targets, axis=0).sum())
    squared = noise**2 * float(spectrum.values.sum()) / examples
    return sweep.at_least(squared / spread) if spread > 0 else sweep


def prior_share(size: int, total: int) -> float:
    """lambda_S / lambda = S / D."""
    return size / total


def sweep_prior(
    spectrum: Spectrum,
    weights: Tensor,
    share: float,
    jacobian: SubnetworkJacobian,
    tuning: HeldOut | None,
    likelihood: Likelihood,
    track: Track = silent,
    *,
    precisions: Array | None = None,
) -> PriorSweep:
    """Try every prior precision: log evidence, and the held-out log-likelihood where there are `tuning` data.

    spectrum: of the curvature over the S chosen `weights`; share: `prior_share`; precisions: by default
    `Spectrum.search_range`, as far down as anything changes. Raises `ValueError` for outputs that overflow on the
    held-out data.
    """
    searched = precisions is None
    precisions = spectrum.search_range(share) if precisions is None else precisions
    used = precisions * share
    evidence = spectrum.log_evidence(weights.cpu(), used)
    if tuning is None or not len(tuning):
        return PriorSweep(precisions, used, evidence)
    tried = np.append(used, PLAIN)
    scores = sweep_log_likelihood(jacobian, spectrum, tuning, tried, likelihood, track)
    sweep = PriorSweep(precisions, used, evidence, scores[:-1], float(scores[-1]))
    return sweep.as_far_as_it_matters() if searched else sweep


def sweep_log_likelihood(
    jacobian: SubnetworkJacobian,
    spectrum: Spectrum,
    data: HeldOut,
    precisions: Array,
    likelihood: Likelihood,
    track: Track,
) -> Array:
    """Mean predictive log-likelihood (G,) of each lambda_S, in one pass over the data; infinity: the plain network."""
    total, outputs = np.zeros(len(precisions)), likelihood.outputs
    rows = min(held_out_rows(jacobian, outputs), rows_within(MEMORY_BYTES, BYTES_A_VALUE * outputs * len(precisions)))
    for inputs, targets in data.chunks(rows, track, "Prior precision"):
        mean, derivatives = jacobian(inputs)
        variances = spectrum.variances(derivatives, precisions)
        total += grid_log_likelihood(to_numpy(mean), variances, targets, likelihood).sum(1)
    return _finite(total / len(data))


def grid_log_likelihood(mean: Array, variances: Array, targets: Array, likelihood: Likelihood) -> Array:
    """Predictive log-likelihood (G, n) of every example for each of G variances: mean (n, K), variances (n, K, G)."""
    count, outputs, grid = variances.shape
    flat = np.moveaxis(variances, 2, 0).reshape(grid * count, outputs)
    repeated = np.tile(targets, (grid, *(1,) * (targets.ndim - 1)))
    values = likelihood.log_likelihood(np.tile(mean, (grid, 1)), flat, repeated)
    result: Array = values.reshape(grid, count)
    return result


def choose_prior(sweep: PriorSweep, method: Method, budget: float = 0.0) -> PriorChoice:
    """Choose by `method`; ties go to the smaller precision, which leaves more uncertainty.

    "marglik": the largest log evidence (MacKay 1992). "gridsearch": the largest held-out log-likelihood. "budget": the
    smallest precision whose held-out log-likelihood is at most `budget` nats below the best of the sweep and of the
    plain network; where none is, the one that costs least. Raises `ValueError` where held-out data are wanting.
    """
    place = int(np.argmax(_merits(sweep, method, budget)))
    cost = None if sweep.log_likelihood is None else sweep.reference - float(sweep.log_likelihood[place])
    return PriorChoice(
        method,
        float(sweep.precisions[place]),
        float(sweep.used[place]),
        {0: "smallest", len(sweep.precisions) - 1: "largest"}.get(place),  # type: ignore[arg-type]
        cost,
        budget if method == "budget" else None,
        sweep.ends_flat,
    )


def _merits(sweep: PriorSweep, method: Method, budget: float) -> Array:
    """(G,): the first of the largest is chosen."""
    if method == "marglik":
        return sweep.log_evidence
    reference = sweep.reference
    assert sweep.log_likelihood is not None
    affordable: Array = reference - sweep.log_likelihood <= budget
    return affordable if method == "budget" and affordable.any() else sweep.log_likelihood


def _finite(scores: Array) -> Array:
    if not np.isfinite(scores).all():
        raise ValueError(
            "the held-out log-likelihood is not finite: the model's outputs or derivatives overflow on these data"
        )
    return scores


def _searched(sweep: PriorSweep, choice: PriorChoice) -> Prior:
    """The prior precision chosen, with everything that was tried."""
    scores = sweep.log_likelihood
    tried = Tried(
        precisions=tuple(sweep.precisions.tolist()),
        log_likelihood=None if scores is None else tuple(scores.tolist()),
        log_evidence=tuple(sweep.log_evidence.tolist()),
        plain_log_likelihood=sweep.plain_log_likelihood,
    )
    return Prior(choice.method, choice.precision, choice.used, choice.budget, tried)
