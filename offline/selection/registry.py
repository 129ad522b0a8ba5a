"""Subnetwork selection by name: each strategy is one function that returns the ascending `subnetwork_indices`.

The paper keeps the S weights of largest marginal variance (Daxberger et al. 2021, section 4): under an independence
assumption they minimise the 2-Wasserstein distance to the full posterior. Ties go to the smaller index.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from offline.selection.candidates import candidate_positions
from offline.selection.context import SelectionContext, largest
from offline.selection.strategies.baselines import magnitude, random_weights
from offline.selection.strategies.gradient import gradient
from offline.selection.strategies.greedy import greedy
from offline.selection.strategies.leverage import leverage
from offline.selection.strategies.named import last_layer, modules, parameters
from offline.selection.strategies.novelty import novelty, novelty_sampling
from offline.selection.strategies.wasserstein_laplace import wasserstein_exact, wasserstein_laplace
from offline.selection.strategies.wasserstein_swag import wasserstein_swag
from offline.selection.subnetwork import Subnetwork

__all__ = ["STRATEGY_FUNCTIONS", "SelectionContext", "Subnetwork", "candidate_positions", "largest", "select"]

STRATEGY_FUNCTIONS: Mapping[str, Callable[..., Subnetwork]] = {
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


def select(strategy: str, context: SelectionContext, options: Mapping[str, Any]) -> Subnetwork:
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
    chosen = function(context, **options)
    return replace(chosen, indices=chosen.indices.cpu(), strategy=strategy, options=dict(options))
