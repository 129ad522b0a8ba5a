"""The inputs of `auto`, and its proposals."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from offline.data.held_out import HeldOut
from offline.jacobian.output_rule import ALL_OUTPUTS, OutputRule
from offline.job import Job
from offline.selection.auto.price import PriceModel
from offline.selection.candidate_weights import common
from offline.selection.subnetwork import Subnetwork
from offline.selection.training_sample import TrainingSample

Names = tuple[str, ...] | None
USUAL_COST = 3.0  # forward passes, where the user gives no limit
JUDGED_WEIGHTS = 1000
JUDGED_EXAMPLES = 500
# Fewer leave directions without curvature that all the data would have given them. Measured on MNIST: the merit of a
# dozen candidates judged with 1,000 correlates with that with all by 0.5 to 0.7, with 4,000 by 0.95 to 0.98.
TRAINING_EXAMPLES = 4000
# In the last layers an output has few weights of its own, whose curvature fewer examples determine.
QUICK_TRAINING_EXAMPLES, QUICK_JUDGED_EXAMPLES = 1000, 250
# A strategy looks at so many weights of a place at most, and at ten for each that it chooses at least.
POOL, POOL_SHARE = 20_000, 10


@dataclass(frozen=True)
class AutoOptions:
    """The options of `auto`; `ValueError` for any of the wrong kind.

    strategies: those to try beside random live weights of the whole network and of its last modules. shifts: names of
    the synthetic shifts (`offline.data.shifts`) that count, None: all alike; name those that you expect, since the best
    weights for turned images are not the best for noise. judged_weights, judged_examples, training_examples: how much
    of a candidate, of the held-out and of the training data the comparison uses, at most; drawn by the seed. pool: how
    many weights of a place the strategies choose among, drawn by the seed; no fewer than ten times as many as are
    chosen.
    """

    strategies: tuple[str, ...] = ("gradient", "novelty-sampling")
    shifts: tuple[str, ...] | None = None
    judged_weights: int = JUDGED_WEIGHTS
    judged_examples: int = JUDGED_EXAMPLES
    training_examples: int = TRAINING_EXAMPLES
    pool: int = POOL

    def __post_init__(self) -> None:
        for name in ("judged_weights", "judged_examples", "training_examples", "pool"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ValueError(f"selection_options[{name!r}]: found {value!r}, expected an integer of at least 1")
        shifts: object = self.shifts
        if shifts is not None and not _are_names(shifts):
            raise ValueError(f"selection_options['shifts']: found {shifts!r}, expected a list of names")
        names: object = self.strategies
        if not _are_names(names) or "auto" in self.strategies:
            raise ValueError(
                f"selection_options['strategies']: found {names!r}, expected a list of selection strategies other than "
                "'auto'"
            )

    @classmethod
    def of(cls, effort: Literal["quick", "thorough"], given: Mapping[str, Any]) -> "AutoOptions":
        """The options given; by default, a quick comparison looks at fewer examples."""
        fewer = {"training_examples": QUICK_TRAINING_EXAMPLES, "judged_examples": QUICK_JUDGED_EXAMPLES}
        return cls(**{**(fewer if effort == "quick" else {}), **given})

    def pool_for(self, size: int) -> int:
        """How many weights a strategy that chooses S = `size` looks at, at most."""
        return max(self.pool, POOL_SHARE * size)


def _are_names(value: object) -> bool:
    return isinstance(value, tuple | list) and all(isinstance(name, str) for name in value)


@dataclass(frozen=True)
class Place:
    """Where weights may be chosen: a name for people, the modules (None: the whole network), and the positions of the
    weights inside, (n,) ascending."""

    name: str
    modules: Names
    positions: Tensor

    def among(self, positions: Tensor) -> "Place":
        """The same with those of its weights that are at `positions`."""
        return replace(self, positions=common(self.positions, positions))


@dataclass(frozen=True)
class AutoContext:
    """What `choose_automatically` may use of the job; the network stays unchanged.

    tuning: the held-out data that tune; those that set the threshold must not be among them. places: where weights may
    be chosen, by the `prices`. live (C,) int64 ascending: the positions in them that have curvature on the training
    data; dead_weights: how many have none. select(strategy, size, options, within): what a strategy proposes among the
    weights of some modules (None: all). sample: training examples in memory, None: drawn when they are needed.
    left_out: whether there are other places as cheap, in which little effort does not look.
    """

    job: Job
    tuning: HeldOut
    places: tuple[Place, ...]
    prices: PriceModel
    live: Tensor
    dead_weights: int
    select: Callable[[str, int, AutoOptions, Names], Subnetwork]
    options: AutoOptions
    sample: TrainingSample | None = None
    left_out: bool = False

    @property
    def judged(self) -> HeldOut:
        """The held-out examples that judge the candidates, drawn by the seed."""
        share = min(1.0, self.options.judged_examples / len(self.tuning))
        return self.tuning.split(share, self.job.config.seed)[0]


@dataclass(frozen=True)
class Proposal:
    """One candidate: its `name` for people, what a prediction with it costs in forward passes, and which variances that
    computes. Candidates that differ in these alone share the `subnetwork`."""

    name: str
    subnetwork: Subnetwork
    forward_passes: float
    rule: OutputRule = ALL_OUTPUTS

    def judged(self, most: int, seed: int) -> Tensor:
        """At most so many of the indices, ascending: a random part shows what the whole is like."""
        indices = self.subnetwork.indices
        if len(indices) <= most:
            return indices
        places = np.random.default_rng(seed).permutation(len(indices))[:most]
        return indices[torch.as_tensor(np.sort(places))]
