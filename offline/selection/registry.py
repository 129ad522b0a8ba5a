"""Strategies by name: each is one function that returns a `Subnetwork`, with what it needs from the job.

The paper keeps the S weights of largest marginal variance (Daxberger et al. 2021, section 4): under an independence
assumption they minimise the 2-Wasserstein distance to the full posterior. Ties go to the smaller index.

To add a strategy: write its function in `demur.offline.selection.strategies`, give it an entry in `STRATEGIES`, and
add its name to `demur.offline.config.StrategyName`, which must not import torch; a test holds the two equal. A
function of the user's own needs neither.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

import torch
from pydantic import ConfigDict, ValidationError, create_model
from torch import Tensor

from demur.service.format.text import suggestion
from demur.service.format.validation import refused_value

from ..config import strategy_name
from .context import SelectionContext
from .places import affordable_weights
from .strategies import every, last_layer, last_layers, random_weights, wasserstein_laplace
from .subnetwork import Subnetwork
from .wasserstein_swag import wasserstein_swag

Options = Mapping[str, Any]


@dataclass(frozen=True)
class Strategy:
    """One way to choose weights, and what it needs.

    choose: (context, **options) -> `Subnetwork`. whole: whether it takes whole layers, so that S is the most it may
    have. reach: the weights that it may choose.
    """

    choose: Callable[..., Subnetwork]
    whole: bool = False
    reach: Callable[[SelectionContext], Tensor] = attrgetter("candidate_weights")


STRATEGIES: Mapping[str, Strategy] = {
    "auto": Strategy(last_layers, reach=affordable_weights),
    "wasserstein-swag": Strategy(wasserstein_swag),
    "wasserstein-laplace": Strategy(wasserstein_laplace),
    "random": Strategy(random_weights),
    "last-layer": Strategy(last_layer, whole=True),
    "all": Strategy(every, whole=True),
}


def strategy_of(selection: str | Callable[..., Any]) -> Strategy:
    """The strategy of this name, or that of a function from the context and the options to positions."""
    if isinstance(selection, str):
        return STRATEGIES[selection]
    return Strategy(lambda context, **options: _checked(selection(context, **options), context))


def check_options(selection: str | Callable[..., Any], options: Options) -> None:
    """`ValueError` for an option that the strategy does not have, and for a value that its annotation refuses."""
    function = strategy_of(selection).choose if isinstance(selection, str) else selection
    every = list(inspect.signature(function, eval_str=isinstance(selection, str)).parameters.values())
    if not every:
        raise ValueError("selection: found a function without parameters, expected one of the SelectionContext")
    known = every[1:]  # after the context
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in known):
        return
    names = [parameter.name for parameter in known]
    lacking = [
        p.name for p in known if p.default is p.empty and p.kind is not p.VAR_POSITIONAL and p.name not in options
    ]
    if lacking:
        raise ValueError(
            f"selection_options: found no {lacking[0]!r}, which {strategy_name(selection)} needs; options are given by "
            f"name, as selection_options={{{lacking[0]!r}: ...}}"
        )
    for name in sorted(set(options) - set(names)):
        expected = f"{', '.join(names) or 'none'} for selection={strategy_name(selection)!r}"
        raise ValueError(f"selection_options: found {name!r}{suggestion(name, names)}, expected {expected}")
    if isinstance(selection, str):
        fields: dict[str, Any] = {parameter.name: (parameter.annotation, parameter.default) for parameter in known}
        model = create_model("Options", __config__=ConfigDict(strict=True, arbitrary_types_allowed=True), **fields)
        try:
            model(**options)
        except ValidationError as error:
            name, problem = refused_value(error)
            raise ValueError(f"selection_options[{name!r}]: {problem}") from None


def select(selection: str | Callable[..., Any], context: SelectionContext, options: Options) -> Subnetwork:
    """Choose among the candidates."""
    chosen = strategy_of(selection).choose(context, **options)
    named = strategy_name(selection)
    return replace(chosen, indices=chosen.indices.cpu(), strategy=named, options=dict(options))


def _checked(positions: Any, context: SelectionContext) -> Subnetwork:
    """What a user's function returned, ascending; `ValueError` for anything but at most S different candidates."""
    try:
        found = torch.as_tensor(positions).detach().cpu().flatten()
    except (RuntimeError, TypeError, ValueError):  # what is no numbers
        found = torch.zeros(0)
    whole = not (found.is_floating_point() or found.is_complex() or found.dtype == torch.bool)
    chosen = torch.unique(found.to(torch.int64)) if whole else found[:0]
    if not len(chosen) or len(chosen) != len(found) or not bool(torch.isin(chosen, context.candidate_weights).all()):
        raise ValueError(
            f"selection: found {' '.join(repr(positions).split()):.100}, expected different positions among the "
            "candidate_weights of the context, at least one"
        )
    if len(chosen) > context.size:
        raise ValueError(f"selection: found {len(chosen)} positions, expected at most subnetwork_size, {context.size}")
    return Subnetwork(chosen)
