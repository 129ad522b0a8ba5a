"""The time that a fit will take, stage by stage, from rates measured on a few examples."""

from collections.abc import Mapping

from torch import Tensor

from offline.config import COMPARED_SCORES
from offline.data.shifts import MOST_SHIFTS, available_shifts
from offline.estimate.memory import MemoryPlan
from offline.estimate.timing import derivation_seconds, seconds_per_example
from offline.job import Job
from offline.laplace.scoring import SHIFTED_EXAMPLES
from offline.runtime.progress import length_of, readable_seconds
from offline.selection.auto.context import JUDGED_EXAMPLES, JUDGED_WEIGHTS, TRAINING_EXAMPLES
from offline.selection.registry import ALL_EXAMPLES, STRATEGIES
from offline.selection.select import reachable_weights, spread
from offline.selection.strategies.novelty import NOVELTY_EXAMPLES

CANDIDATES = 8  # that `auto` compares, about
ALL_WEIGHTS = 20_000  # of a large network, so many stand for all: their share of the time is known from the layers


def predict_duration(job: Job, memory: MemoryPlan, held_out: int, trial_seconds: float) -> dict[str, float | None]:
    """Seconds of each stage; None where they are not known beforehand.

    held_out: calibration examples; trial_seconds: what the trial export has taken.
    """
    rows, total, reach = memory.rows("curvature"), examples_of(job), reachable_weights(job)
    chosen = job.jacobian(spread(reach, job.size))
    each = seconds_per_example(chosen, job.example, job.likelihood, rows)
    return {
        "selection": _selection(job, reach, rows, total, held_out // 2),
        "curvature": None if total is None else each * total / job.distributed.world_size,
        "held-out data": (1.5 * held_out + _shifted(job, held_out)) * each,  # the half that tunes twice
        "export and verification": 1.5 * trial_seconds,
    }


def _shifted(job: Job, held_out: int) -> int:
    """Foreign examples that are differentiated besides, or where a comparison of scores has none, examples of the half
    that tunes under synthetic shifts."""
    if job.foreign is not None:
        return len(job.foreign)
    if job.config.score not in COMPARED_SCORES:
        return 0
    return len(available_shifts(job.example)) * min(held_out // 2, SHIFTED_EXAMPLES)


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


def _selection(job: Job, reach: Tensor, rows: int, total: int | None, tuning: int) -> float | None:
    """By the strategy's passes with its default options, over the weights that it may choose (C,)."""
    strategy = job.config.selection
    examples = STRATEGIES[strategy].examples
    examples = total if examples == ALL_EXAMPLES else examples
    if not examples:
        return examples
    limit = NOVELTY_EXAMPLES if total is None else total
    seconds = min(examples, limit * (2 + MOST_SHIFTS)) * _derivation(job, reach, ALL_WEIGHTS, rows)
    if strategy == "auto":
        judged = min(limit, TRAINING_EXAMPLES) + min(tuning, JUDGED_EXAMPLES) * (2 + MOST_SHIFTS)
        seconds += judged * _derivation(job, reach, CANDIDATES * min(job.size, JUDGED_WEIGHTS), rows)
    return seconds


def _derivation(job: Job, reach: Tensor, weights: int, rows: int) -> float:
    """Seconds that the derivatives of an example in so many weights take, in as much memory as the curvature's."""
    jacobian = job.jacobian(spread(reach, weights))
    rows = max(1, rows * job.size // jacobian.size)
    return derivation_seconds(jacobian, job.example, job.likelihood, rows)
