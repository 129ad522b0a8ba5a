"""Strategies by name: each is one function that returns a `Subnetwork`, with what it needs from the job.

The paper keeps the S weights of largest marginal variance (Daxberger et al. 2021, section 4): under an independence
assumption they minimise the 2-Wasserstein distance to the full posterior. Ties go to the smaller index.

To add a strategy: write its function in `probity.offline.selection.strategies`, give it an entry in `STRATEGIES`, and
add its name to `probity.offline.config.StrategyName`, which must not import torch; a test holds the two equal.
"""

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

from torch import Tensor

from probity.offline.data.shifts import MOST_SHIFTS
from probity.offline.selection.context import SelectionContext
from probity.offline.selection.covariance import covariance_bytes
from probity.offline.selection.places import affordable_weights
from probity.offline.selection.sample import SCORE_EXAMPLES
from probity.offline.selection.strategies.baselines import magnitude, random_weights
from probity.offline.selection.strategies.gradient import gradient
from probity.offline.selection.strategies.greedy import POOL, greedy
from probity.offline.selection.strategies.last_layers import last_layers
from probity.offline.selection.strategies.leverage import leverage
from probity.offline.selection.strategies.named import last_layer, modules, parameters
from probity.offline.selection.strategies.novelty import NOVELTY_EXAMPLES, novelty, novelty_sampling
from probity.offline.selection.strategies.wasserstein_laplace import wasserstein_exact, wasserstein_laplace
from probity.offline.selection.strategies.wasserstein_swag import wasserstein_swag
from probity.offline.selection.subnetwork import Subnetwork

Options = Mapping[str, Any]
ALL_EXAMPLES = math.inf
SHIFTED_EXAMPLES = NOVELTY_EXAMPLES * (1 + MOST_SHIFTS)


def select(strategy: str, context: SelectionContext, options: Options) -> Subnetwork:
    """Run a strategy by name on the candidates; `ValueError` for an unknown name or an option it does not have."""
    entry = STRATEGIES.get(strategy)
    if entry is None:
        named = ", ".join(name for name in STRATEGIES if name != "auto")
        raise ValueError(f"selection: found {strategy!r}, expected one of {named}")
    known = [name for name in inspect.signature(entry.choose).parameters if name != "context"]
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise ValueError(
            f"selection_options: found {unknown[0]!r}, expected {', '.join(known)} for selection={strategy!r}"
        )
    chosen = entry.choose(context, **options)
    return replace(chosen, indices=chosen.indices.cpu(), strategy=strategy, options=dict(options))


def no_memory(options: Options, total: int) -> int:  # noqa: ARG001
    """Bytes of a strategy that streams: a chunk's worth, whatever its size."""
    return 0


def whole_covariance(options: Options, total: int) -> int:  # noqa: ARG001
    """Bytes of the covariance of all D weights."""
    return covariance_bytes(total)


def pool_covariance(options: Options, total: int) -> int:
    """Bytes of the covariance of the weights that "greedy" compares."""
    pool = options.get("pool", POOL)
    return covariance_bytes(min(pool, total) if isinstance(pool, int) else total)


@dataclass(frozen=True)
class Strategy:
    """One way to choose weights, and what it needs.

    choose: (context, **options) -> `Subnetwork`. examples: how many it differentiates with its default options,
    `ALL_EXAMPLES`, or None where that is not known beforehand. diagonal: whether it takes squared derivatives in all
    weights of the network. memory: bytes of the matrices it forms, from its options and D. whole: whether it takes
    whole modules or parameters, so that S is the most it may have. reach: the weights that it may choose.
    """

    choose: Callable[..., Subnetwork]
    examples: float | None
    diagonal: bool = False
    memory: Callable[[Options, int], int] = no_memory
    whole: bool = False
    reach: Callable[[SelectionContext], Tensor] = attrgetter("candidate_weights")


STRATEGIES: Mapping[str, Strategy] = {
    "auto": Strategy(last_layers, 0, reach=affordable_weights),
    "wasserstein-swag": Strategy(wasserstein_swag, None),
    "wasserstein-laplace": Strategy(wasserstein_laplace, ALL_EXAMPLES, diagonal=True),
    "wasserstein-exact": Strategy(wasserstein_exact, None, memory=whole_covariance),
    "gradient": Strategy(gradient, SCORE_EXAMPLES, diagonal=True),
    "leverage": Strategy(leverage, None, memory=whole_covariance),
    "greedy": Strategy(greedy, None, memory=pool_covariance),
    "novelty": Strategy(novelty, SHIFTED_EXAMPLES, diagonal=True),
    "novelty-sampling": Strategy(novelty_sampling, SHIFTED_EXAMPLES, diagonal=True),
    "magnitude": Strategy(magnitude, 0),
    "random": Strategy(random_weights, 0),
    "last-layer": Strategy(last_layer, 0, whole=True),
    "modules": Strategy(modules, 0, whole=True),
    "parameters": Strategy(parameters, 0, whole=True),
}
