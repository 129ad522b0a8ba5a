"""Subnetwork selection by name: each strategy is one function that returns the ascending `subnetwork_indices`.

The paper keeps the S weights of largest marginal variance (Daxberger et al. 2021, section 4): under an independence
assumption they minimise the 2-Wasserstein distance to the full posterior. Ties go to the smaller index.
"""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from offline.strategies.candidates import candidate_positions
from offline.strategies.context import SelectionContext, SelectionResult, largest
from offline.strategies.gradient import gradient
from offline.strategies.greedy import greedy
from offline.strategies.laplace import wasserstein_exact, wasserstein_laplace
from offline.strategies.leverage import leverage
from offline.strategies.named import last_layer, modules, parameters
from offline.strategies.novelty import novelty, novelty_sampling
from offline.strategies.plain import magnitude, random_weights
from offline.strategies.swag import wasserstein_swag

__all__ = ["STRATEGY_FUNCTIONS", "SelectionContext", "SelectionResult", "candidate_positions", "largest", "select"]

STRATEGY_FUNCTIONS: Mapping[str, Callable[..., SelectionResult]] = {
    "wasserstein-swag": wasserstein_swag,
    "wasserstein-laplace": wasserstein_laplace,
    "wasserstein-exact": wasserstein_exact,
    "gradient": gradient,
    "leverage": leverage,
    "greedy": greedy,
    "novelty": novelty,
    "novelty-sampling": novelty_sampling,
    "magnitude": magnitude,
    "random": random_weights,
    "last-layer": last_layer,
    "modules": modules,
    "parameters": parameters,
}


def select(strategy: str, context: SelectionContext, options: Mapping[str, Any]) -> SelectionResult:
    """Run a strategy by name on the candidates; `ValueError` for an unknown name or an option it does not have."""
    function = STRATEGY_FUNCTIONS.get(strategy)
    if function is None:
        raise ValueError(f"selection: found {strategy!r}, expected one of {', '.join(STRATEGY_FUNCTIONS)}")
    known = [name for name in inspect.signature(function).parameters if name != "context"]
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise ValueError(
            f"selection_options: found {unknown[0]!r}, expected {', '.join(known)} for selection={strategy!r}"
        )
    return function(context, **options)
