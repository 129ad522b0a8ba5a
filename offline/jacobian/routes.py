"""The route of each chosen parameter: how its derivatives are formed."""

from dataclasses import dataclass

from torch import Tensor

from ..network.weights import Parameter
from .layer_rules import Entries
from .linear_head import FeatureParameter, HeadParameter, LinearHead


@dataclass(frozen=True)
class Chosen:
    """The chosen entries of one parameter: positions (n,) within it, ascending."""

    parameter: Parameter
    positions: Tensor


@dataclass(frozen=True)
class StructuredParameter:
    """A parameter formed from probes: the rule for each place (path of a layer, or its own name) that holds it."""

    parameter: Parameter
    rules: dict[str, Entries]


@dataclass(frozen=True)
class JacobianPlan:
    """The route of each chosen parameter.

    `structured`: formed from probes, with a backward pass an output. `in_head`: of the linear `head` itself.
    `by_feature`: of layers whose features reach the head separately. `generic`: the others.

    `expanded`: names of the bare parameters among the structured ones. `batched_outputs`: whether the outputs may be
    differentiated several at once (`probe_gradients`).
    """

    structured: tuple[StructuredParameter, ...]
    generic: tuple[Chosen, ...]
    expanded: tuple[str, ...] = ()
    batched_outputs: bool = False
    head: LinearHead | None = None
    in_head: tuple[HeadParameter, ...] = ()
    by_feature: tuple[FeatureParameter, ...] = ()

    @property
    def outside_head(self) -> list[str]:
        """Names of the parameters outside the head, route by route."""
        routes = (self.by_feature, self.structured)
        closed = [item.parameter.name for items in routes for item in items]
        return [*closed, *(chosen.parameter.name for chosen in self.generic)]

    @property
    def paths(self) -> list[str]:
        """The layers to probe for the gradients of the outputs."""
        return sorted({path for item in self.structured for path in item.rules} - set(self.expanded))

    @property
    def feature_paths(self) -> list[str]:
        """The layers to probe for the gradient of the head's input."""
        return sorted({item.path for item in self.by_feature})
