"""The time that a fit will take, stage by stage, from rates measured on a few examples."""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from ..config import COMPARED_SCORES
from ..data.foreigners import FOREIGN_EXAMPLES
from ..data.shifts import MOST_SHIFTS, available_shifts
from ..features.added_weights import LINK_FEATURES, SCORE_FEATURES
from ..job import Job
from ..laplace.added_fit import MOST_EXAMPLES
from ..laplace.inference import needs_spectrum
from ..laplace.scoring import SHIFTED_EXAMPLES
from ..runtime.progress import length_of, readable_seconds
from ..selection.registry import ALL_EXAMPLES, strategy_of
from ..selection.select import spread
from ..selection.strategies.auto import EXAMPLES
from ..selection.strategies.novelty import NOVELTY_EXAMPLES
from .memory import MemoryPlan
from .timing import MatrixSeconds, derivation_seconds, forward_seconds, seconds_per_example

# The parts of a fit.
SELECTION, CURVATURE, ADDED = "selection", "curvature", "added weights"
HELD_OUT, EXPORT = "held-out data", "export and verification"
LIVE_PASSES = 3  # forward passes that telling which weights live takes, at most
ALL_WEIGHTS = 20_000  # of a large network, so many stand for all: their share of the time is known from the layers
KINDS_OF_FOREIGNERS = 6
REPORT_SECONDS = 2.0  # its pictures
EXPORTS = 1.5  # trial exports that the export takes, the added weights among them


@dataclass(frozen=True)
class Rates:
    """Seconds: of an example's forward pass, its derivatives in the S weights, and these with the update of H_S; and of
    work on matrices."""

    forward: float
    derivatives: float
    curvature: float
    matrices: MatrixSeconds

    @classmethod
    def measured(cls, job: Job, reach: Tensor, rows: int) -> "Rates":
        """With weights spread over those that may be chosen."""
        chosen, given = job.jacobian(spread(reach, job.size)), (job.example, job.likelihood, rows)
        return cls(
            forward_seconds(job.network, job.example),
            derivation_seconds(chosen, *given),
            seconds_per_example(chosen, *given),
            MatrixSeconds.measured(job.device),
        )

    def variances(self, job: Job, size: int) -> float:
        """The variances of an example with weights that are decomposed, without its derivatives."""
        return job.rule.count(job.likelihood.outputs) * size**2 * self.matrices.multiply_add


def predict_duration(
    job: Job, reach: Tensor, memory: MemoryPlan, held_out: int, trial_seconds: float
) -> dict[str, float | None]:
    """Seconds of each stage; None where they are not known beforehand.

    reach (C,): the weights that may be chosen; held_out: calibration examples; trial_seconds: what the trial export has
    taken.
    """
    rows, total = memory.rows("curvature"), examples_of(job)
    rates = Rates.measured(job, reach, rows)
    decomposed = needs_spectrum(job.config, job.size)
    matrices = rates.matrices.decomposition * job.size**3 if decomposed else 0.0
    return {
        SELECTION: _selection(job, reach, rates, rows, total),
        CURVATURE: None if total is None else rates.curvature * total / job.distributed.world_size + matrices,
        ADDED: None if total is None else _added(job, rates, min(total, MOST_EXAMPLES)),
        HELD_OUT: _held_out(job, rates, held_out),
        EXPORT: EXPORTS * trial_seconds + REPORT_SECONDS + _foreign(rates, held_out),
    }


def _added(job: Job, rates: Rates, examples: int) -> float:
    """A forward pass for each example, and the features' curvatures."""
    if job.layers is None:
        return 0.0
    work = examples * (LINK_FEATURES.features**2 + SCORE_FEATURES.features**2) * rates.matrices.multiply_add
    return examples * rates.forward + 2 * work  # the coordinates, too


def _held_out(job: Job, rates: Rates, held_out: int) -> float:
    """The prior precision and the prior variance of added weights are tuned on half of the examples, and then all are
    scored; with added weights, each time another forward pass reads the activations."""
    tuning, scored = held_out // 2, held_out + _shifted(job, held_out)
    derived, plain = tuning + scored, float(tuning)
    if job.layers is not None:
        derived += tuning
        plain += tuning + scored
    return derived * (rates.derivatives + rates.variances(job, job.size)) + plain * rates.forward


def _foreign(rates: Rates, held_out: int) -> float:
    """Of each kind, some are predicted by the finished bundle."""
    return KINDS_OF_FOREIGNERS * min(held_out // 2, FOREIGN_EXAMPLES) * (rates.forward + rates.derivatives)


def _shifted(job: Job, held_out: int) -> int:
    """Foreign examples that are differentiated besides, or where a comparison of scores has none, examples of the half
    that tunes under synthetic shifts."""
    if job.foreign is not None:
        return len(job.foreign)
    if job.config.score not in COMPARED_SCORES:
        return 0
    return len(available_shifts(job.example, job.takes.parts)) * min(held_out // 2, SHIFTED_EXAMPLES)


def describe_duration(stages: Mapping[str, float | None]) -> str:
    """A readable line."""
    known = {name: seconds for name, seconds in stages.items() if seconds is not None}
    parts = ", ".join(f"{name} {readable_seconds(seconds)}" for name, seconds in known.items() if seconds >= 0.5)
    unknown = [name for name in stages if name not in known]
    without = f", without the {' and the '.join(unknown)}, whose time is not known beforehand" if unknown else ""
    return f"time: about {readable_seconds(sum(known.values()))}" + (f" ({parts})" if parts else "") + without


def examples_of(job: Job) -> int | None:
    """N, where the loader or its dataset knows it."""
    dataset = getattr(job.train, "dataset", None)
    return job.passes.examples or (length_of(dataset) if dataset is not None else None)


def _selection(job: Job, reach: Tensor, rates: Rates, rows: int, total: int | None) -> float | None:
    """By the strategy's passes with its default options, over the weights that it may choose (C,)."""
    strategy = job.config.selection
    if strategy == "auto":
        return LIVE_PASSES * min(EXAMPLES, EXAMPLES if total is None else total) * rates.forward
    examples = strategy_of(strategy).examples
    examples = total if examples == ALL_EXAMPLES else examples
    if not examples:
        return examples
    limit = NOVELTY_EXAMPLES if total is None else total
    every = job.jacobian(spread(reach, ALL_WEIGHTS))
    rows = max(1, rows * job.size // every.size)
    return min(examples, limit * (2 + MOST_SHIFTS)) * derivation_seconds(every, job.example, job.likelihood, rows)
