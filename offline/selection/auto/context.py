"""What `auto` is given, what it proposes, and what it finds out about each proposal."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from offline.data.held_out import HeldOut
from offline.data.likelihood import Likelihood
from offline.jacobian.jacobian import SubnetworkJacobian
from offline.network.weights import WeightLayout
from offline.runtime.progress import Track, silent

JUDGED_WEIGHTS = 1000
JUDGED_EXAMPLES = 500
# Fewer leave directions without curvature that all the data would have given them. Measured on MNIST: the merit of a
# dozen candidates judged with 1,000 correlates with that with all by 0.5 to 0.7, with 4,000 by 0.95 to 0.98.
TRAINING_EXAMPLES = 4000


class Choice(Protocol):
    """What a selection strategy returns: `indices` (S,) ascending, and weights without curvature that it left out."""

    @property
    def indices(self) -> Tensor: ...
    @property
    def dead_weights(self) -> int | None: ...


@dataclass(frozen=True)
class AutoContext:
    """What `choose_automatically` may use.

    network: in eval mode with frozen parameters; comes back as it was. live (C,) int64 ascending: the positions that
    may be chosen and have curvature on the training data; dead_weights: how many may be chosen and have none. size: S,
    at most. batches() starts a pass over the training data. tuning: the held-out data that tune; those that set the
    threshold must not be among them. jacobian(indices): of ascending positions (S,). select(strategy, options, size):
    runs a selection strategy by name; `strategies`: those to try beside random live weights of the whole network and of
    its last modules. shifts: names of the synthetic shifts (`offline.data.shifts`) that count, None: all alike. Who
    knows what will go wrong says so: the best weights for turned images are not the best for noise. share(size):
    lambda_S / lambda, as in `offline.laplace.prior.prior_share`. budget: nats of held-out log-likelihood that the
    uncertainty may cost. sigma_noise: observation noise of a regression, None: estimated. judged_weights,
    judged_examples, training_examples: how much of a candidate, of the held-out and of the training data the comparison
    uses, at most; drawn by the seed. Raises `ValueError` for options of the wrong kind.
    """

    network: nn.Module
    layout: WeightLayout
    live: Tensor
    dead_weights: int
    size: int
    outputs: int
    seed: int
    likelihood: Likelihood
    batches: Callable[[], Iterable[tuple[Tensor, Tensor]]]
    tuning: HeldOut
    jacobian: Callable[[Tensor], SubnetworkJacobian]
    select: Callable[[str, dict[str, Any], int], Choice]
    share: Callable[[int], float]
    budget: float = 0.05
    sigma_noise: float | None = None
    temperature: float = 1.0
    strategies: tuple[str, ...] = ("gradient", "novelty-sampling")
    shifts: tuple[str, ...] | None = None
    judged_weights: int = JUDGED_WEIGHTS
    judged_examples: int = JUDGED_EXAMPLES
    training_examples: int = TRAINING_EXAMPLES
    track: Track = silent

    def __post_init__(self) -> None:
        for name in ("judged_weights", "judged_examples", "training_examples"):
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


def _are_names(value: object) -> bool:
    return isinstance(value, tuple | list) and all(isinstance(name, str) for name in value)


@dataclass(frozen=True)
class Proposal:
    """One candidate: its `name` for people; strategy, options and modules (`within`, None: all) that give `indices`."""

    name: str
    strategy: str
    indices: Tensor
    forward_passes: float
    dead_weights: int | None = None
    options: dict[str, Any] = field(default_factory=dict)
    within: tuple[str, ...] | None = None

    def judged(self, most: int, seed: int) -> Tensor:
        """At most so many of the indices, ascending: a random part shows what the whole is like."""
        if len(self.indices) <= most:
            return self.indices
        places = np.random.default_rng(seed).permutation(len(self.indices))[:most]
        return self.indices[torch.as_tensor(np.sort(places))]


@dataclass(frozen=True)
class CandidateScore:
    """How one candidate did. `size`: its weights, of which `judged` were compared.

    forward_passes: what a prediction costs (`offline.network.call_order`). prior_precision: lambda within the budget.
    cost: nats of held-out log-likelihood that its uncertainty costs. log_likelihood: mean on held-out data.
    shift_log_likelihood: mean over the shifts that keep the label, of the true labels. shift_auroc: mean over all
    shifts of the area under the ROC curve of the score, held-out against shifted examples.
    """

    name: str
    size: int
    judged: int
    forward_passes: float
    prior_precision: float
    cost: float
    log_likelihood: float
    shift_log_likelihood: float
    shift_auroc: float
    chosen: bool = False
