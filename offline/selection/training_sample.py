"""A sample of the training data that is kept in memory, drawn in one pass."""

from dataclasses import dataclass

import numpy as np

from ..data.held_out import HeldOut
from ..data.loaders import rows_within
from ..job import Job
from ..runtime.arrays import Array

MEMORY_SHARE = 8  # the sample takes at most one part in so many of the job's memory


@dataclass(frozen=True)
class TrainingSample:
    """Some of the N = `total` training examples in the loader's order, with the keys (n,) by which they were drawn.

    Every example draws a uniform key by the seed, and the smallest keys are kept: a smaller sample is part of a larger
    one. `wanted`: how many were asked for; fewer are kept where they would take too much memory.
    """

    data: HeldOut
    keys: Array
    total: int
    wanted: int

    def holds(self, examples: int) -> bool:
        """Whether a sample of so many examples is part of this one, or this one is as large as memory allows."""
        return examples <= self.wanted or len(self.keys) == self.total

    def first(self, examples: int) -> HeldOut:
        """The sample of at most so many examples."""
        if examples >= len(self.keys):
            return self.data
        return self.data.at(smallest(self.keys, examples))


def draw_sample(job: Job, wanted: int, description: str | None = None) -> TrainingSample:
    """At most `wanted` of the training data, uniformly without replacement by the seed, in one pass."""
    most = min(wanted, rows_within(job.memory_bytes // MEMORY_SHARE, job.example[0].nbytes))
    generator = np.random.default_rng(job.config.seed)
    kept: HeldOut | None = None
    keys, total = np.zeros(0), 0
    for inputs, raw_targets in job.pass_over_training(description):
        targets = job.likelihood.check_targets(raw_targets, len(inputs))
        total += len(inputs)
        before, keys = len(keys), np.append(keys, generator.random(len(inputs)))
        first = smallest(keys, most)
        keys = keys[first]
        if first[-1] >= before:  # nothing is copied where no new example is among them
            kept = (kept.joined(inputs, targets) if kept is not None else HeldOut(inputs, targets)).at(first)
    assert kept is not None  # a loader without examples was refused
    return TrainingSample(kept, keys, total, wanted)


def smallest(keys: Array, count: int) -> Array:
    """Places of the `count` smallest keys, ascending."""
    return np.sort(np.argsort(keys, kind="stable")[:count])
