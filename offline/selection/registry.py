"""Strategies by name: each is one function that returns a `Subnetwork`, with what it needs from the job.

The paper keeps the S weights of largest marginal variance (Daxberger et al. 2021, section 4): under an independence
assumption they minimise the 2-Wasserstein distance to the full posterior. Ties go to the smaller index.

To add a strategy: write its function in `offline.selection.strategies`, give it an entry in `STRATEGIES`, and add its
name to `offline.config.StrategyName`, which must not import torch; a test holds the two equal.
"""

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor

from offline.data.shifts import MOST_SHIFTS
from offline.selection.auto.choose import choose_automatically
from offline.selection.auto.context import AutoContext, AutoOptions, Names, Place
from offline.selection.auto.places import affordable_places, affordable_weights, weights_in
from offline.selection.context import SelectionContext, SharedSquares
from offline.selection.covariance import covariance_bytes
from offline.selection.live_weights import LIVE_EXAMPLES, live_candidates
from offline.selection.sample import SCORE_EXAMPLES, holding
from offline.selection.squared_derivatives import pooled
from offline.selection.strategies.baselines import magnitude, random_weights
from offline.selection.strategies.gradient import gradient
from offline.selection.strategies.greedy import POOL, greedy
from offline.selection.strategies.leverage import leverage
from offline.selection.strategies.named import last_layer, modules, parameters
from offline.selection.strategies.novelty import NOVELTY_EXAMPLES, novelty, novelty_sampling
from offline.selection.strategies.wasserstein_laplace import wasserstein_exact, wasserstein_laplace
from offline.selection.strategies.wasserstein_swag import wasserstein_swag
from offline.selection.subnetwork import Subnetwork

Options = Mapping[str, Any]
ALL_EXAMPLES = math.inf
SHIFTED_EXAMPLES = NOVELTY_EXAMPLES * (1 + MOST_SHIFTS)


def select(strategy: str, context: SelectionContext, options: Options) -> Subnetwork:
    """Run a strategy by name on the candidates; `ValueError` for an unknown name or an option it does not have."""
    entry = STRATEGIES.get(strategy)
    if entry is None:
        named = ", ".join(name for name in STRATEGIES if name != "auto")
        raise ValueError(f"selection: found {strategy!r}, expected one of {named}")
    known = [name for name in inspect.signature(entry.options or entry.choose).parameters if name != "context"]
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise ValueError(
            f"selection_options: found {unknown[0]!r}, expected {', '.join(known)} for selection={strategy!r}"
        )
    chosen = entry.choose(context, **options)
    if chosen.strategy:  # `auto` returns the choice of another strategy
        return chosen
    return replace(chosen, indices=chosen.indices.cpu(), strategy=strategy, options=dict(options))


def auto(context: SelectionContext, **options: Any) -> Subnetwork:
    """Compare several subnetworks and keep the best, or a cheaper one nearly as good (`offline.selection.auto`)."""
    checked, job, tuning = AutoOptions.of(context.job.config.effort, options), context.job, context.tuning
    assert tuning is not None
    places, prices, left_out = affordable_places(context)
    context = replace(context, candidate_weights=weights_in(places))
    examples = LIVE_EXAMPLES if job.config.effort == "thorough" else checked.training_examples
    context = holding(context, max(checked.training_examples, examples))
    live, dead = live_candidates(context, examples)
    return choose_automatically(
        AutoContext(
            job,
            tuning,
            places,
            prices,
            live.cpu(),
            dead,
            partial(select_candidate, sharing_squares(replace(context, candidate_weights=live), places, checked)),
            checked,
            sample=context.sample,
            left_out=left_out,
        )
    )


def sharing_squares(context: SelectionContext, places: Sequence[Place], options: AutoOptions) -> SelectionContext:
    """The context in which the strategies of several places differentiate the same weights once."""
    pool = options.pool_for(context.size)
    pools = [pooled(context, context.inside(place.modules).candidate_weights, pool) for place in places]
    return replace(context, squares=SharedSquares(torch.unique(torch.cat(pools))))


def select_candidate(
    context: SelectionContext, strategy: str, size: int, options: AutoOptions, within: Names
) -> Subnetwork:
    """What a strategy proposes to `auto`, inside modules (None: all): with its default options, but for the shifts
    that count (None: all) and the pool that it chooses among."""
    entry, inside = STRATEGIES.get(strategy), replace(context, size=size).inside(within)
    given: dict[str, Any] = {}
    if entry is not None and entry.shifts and options.shifts is not None:
        given["shifts"] = list(options.shifts)
    if entry is not None and entry.pool and len(inside.candidate_weights) > (pool := options.pool_for(context.size)):
        given["pool"] = pool
    chosen = select(strategy, inside, given)
    return replace(chosen, within=within)


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


def candidates_covariance(options: Options, total: int) -> int:
    """Bytes for `auto`: a covariance where one of the strategies that it compares forms one."""
    named = options.get("strategies", ())
    known = [STRATEGIES[name] for name in named if name in STRATEGIES] if _are_names(named) else []
    return covariance_bytes(total) if any(entry.memory({}, total) for entry in known) else 0


def _are_names(value: object) -> bool:
    """False for what `AutoOptions` refuses later."""
    return isinstance(value, list | tuple) and all(isinstance(name, str) and name != "auto" for name in value)


@dataclass(frozen=True)
class Strategy:
    """One way to choose weights, and what it needs.

    choose: (context, **options) -> `Subnetwork`. options: whose parameters the options are, by default those of
    `choose`. examples: how many it differentiates with its default options, `ALL_EXAMPLES`, or None where that is not
    known beforehand. diagonal: whether it takes squared derivatives in all weights of the network. memory: bytes of the
    matrices it forms, from its options and D. whole: whether it takes whole modules or parameters, so that S is the
    most it may have. shifts: whether `auto` passes on the synthetic shifts that count.
    """

    choose: Callable[..., Subnetwork]
    examples: float | None
    diagonal: bool = False
    memory: Callable[[Options, int], int] = no_memory
    whole: bool = False
    shifts: bool = False
    pool: bool = False
    reach: Callable[[SelectionContext], Tensor] = attrgetter("candidate_weights")
    options: Callable[..., object] | None = None


STRATEGIES: Mapping[str, Strategy] = {
    "auto": Strategy(
        auto,
        SCORE_EXAMPLES + SHIFTED_EXAMPLES,
        diagonal=True,
        memory=candidates_covariance,
        reach=affordable_weights,
        options=AutoOptions,
    ),
    "wasserstein-swag": Strategy(wasserstein_swag, None),
    "wasserstein-laplace": Strategy(wasserstein_laplace, ALL_EXAMPLES, diagonal=True),
    "wasserstein-exact": Strategy(wasserstein_exact, None, memory=whole_covariance),
    "gradient": Strategy(gradient, SCORE_EXAMPLES, diagonal=True, pool=True),
    "leverage": Strategy(leverage, None, memory=whole_covariance),
    "greedy": Strategy(greedy, None, memory=pool_covariance),
    "novelty": Strategy(novelty, SHIFTED_EXAMPLES, diagonal=True, shifts=True, pool=True),
    "novelty-sampling": Strategy(novelty_sampling, SHIFTED_EXAMPLES, diagonal=True, shifts=True, pool=True),
    "magnitude": Strategy(magnitude, 0),
    "random": Strategy(random_weights, 0),
    "last-layer": Strategy(last_layer, 0, whole=True),
    "modules": Strategy(modules, 0, whole=True),
    "parameters": Strategy(parameters, 0, whole=True),
}
