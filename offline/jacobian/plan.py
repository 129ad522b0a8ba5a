"""Plan a subnetwork Jacobian: find the parameters that probes can form, and check the result.

Whether a weight is used by its layer alone is not a matter of type: it may be tied to an embedding, reparametrised,
fed time-major, or read by other code. So the structured rules are tried on a few inputs against plain differentiation
in float64, at positions spread over each parameter, and a parameter that does not agree takes the generic route.
"""

import warnings
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from ..network.finite import check_finite_jacobian, check_finite_outputs
from ..network.model_copy import highest_precision
from ..network.outputs import check_output
from ..network.weights import Owners, WeightLayout, parameter_owners
from .jacobian import SubnetworkJacobian, closed_blocks, structured_block
from .layer_rules import Entries, ExpandedEntries, entries_of, is_structured
from .linear_head import FeatureParameter, HeadParameter, LinearHead, features_of
from .mixtures import Mixed, Mixtures, every_output
from .plain import plain_jacobian
from .probes import ProbeCall, probe_gradients, probed_forward
from .routes import Chosen, JacobianPlan, StructuredParameter

CHECK_EXAMPLES = 2
EXAMPLES = "the first batch of train_loader"
CHECK_OUTPUTS = 2  # random mixtures of the outputs stand for all of them: the rules are linear in their gradients
CHECK_POSITIONS = 48  # of each parameter: comparing all of a large one would need its whole Jacobian


def make_jacobian(
    model: nn.Module,
    layout: WeightLayout,
    indices: Tensor,
    examples: Tensor,
    head: LinearHead | None = None,
) -> SubnetworkJacobian:
    """The Jacobian of the chosen weights, its plan tried on the first of `examples` (B, *input_shape).

    model: from `private_copy`, in float64 while the plan is tried; indices (S,) ascending positions in the layout;
    head: from `find_head`, None: no closed forms. Raises `NotFiniteError` for outputs or derivatives of these examples
    that are NaN or infinite.
    """
    indices = indices.to(examples.device)
    chosen = tuple(Chosen(parameter, positions) for parameter, positions in layout.locate(indices))
    routes = trusted_routes(model, head, chosen, parameter_owners(model), examples[:CHECK_EXAMPLES])
    plan = plan_for(model, chosen, routes)
    plan = replace(plan, batched_outputs=allows_batched_outputs(model, plan, examples[:CHECK_EXAMPLES]))
    return SubnetworkJacobian(model, layout, indices, plan)


def allows_batched_outputs(model: nn.Module, plan: JacobianPlan, x: Tensor) -> bool:
    """Whether several outputs can be differentiated in one pass: tried, since not every operation has a rule for it."""
    forward = probed_forward(model, plan, x)
    calls = forward.of([*plan.paths, *plan.expanded])
    if forward.mean.shape[1] == 1 or not calls:
        return False
    mixed = few_mixtures(forward.mean.detach()).of(forward.mean)
    expected = probe_gradients(mixed, calls, 1)
    for gradient in expected:
        check_finite_jacobian(model, x, gradient, EXAMPLES)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # torch says so where it goes through the outputs one by one
            batched = probe_gradients(mixed, calls, CHECK_OUTPUTS)
    except (RuntimeError, ValueError, NotImplementedError, UserWarning):
        return False
    return all(_nearly(a, b) for a, b in zip(batched, expected, strict=True))


def _nearly(found: Tensor, expected: Tensor) -> bool:
    """Equal up to float32 rounding."""
    if found.shape != expected.shape:
        return False
    return torch.allclose(found, expected, rtol=1e-3, atol=1e-4 * float(expected.abs().max()))


NONE: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Routes:
    """How the derivatives of each parameter are formed, by its name; those in none of the sets take the generic route.

    `head`: the linear head, `in_head` its own parameters; `by_feature`: parameters of layers whose features reach it
    separately; `structured`: those with a backward pass an output.
    """

    owners: Owners
    head: LinearHead | None
    in_head: frozenset[str]
    by_feature: frozenset[str]
    structured: frozenset[str]

    @classmethod
    def of(cls, model: nn.Module, plan: JacobianPlan) -> "Routes":
        """Those of a plan, for other entries of the same parameters."""
        in_head, by_feature, structured = (
            frozenset(item.parameter.name for item in items)
            for items in (plan.in_head, plan.by_feature, plan.structured)
        )
        return cls(parameter_owners(model), plan.head, in_head, by_feature, structured)

    @property
    def closed(self) -> frozenset[str]:
        """The parameters with a closed form."""
        return self.in_head | self.by_feature

    def without_closed_forms(self, names: frozenset[str]) -> "Routes":
        """The same, with backward passes for the outputs in place of the closed forms of `names`."""
        return replace(
            self,
            in_head=self.in_head - names,
            by_feature=self.by_feature - names,
            structured=self.structured | (self.closed & names),
        )


def trusted_routes(
    model: nn.Module, head: LinearHead | None, chosen: tuple[Chosen, ...], owners: Owners, x: Tensor
) -> Routes:
    """The cheapest route that is right for this model, for each chosen parameter; x (B, *input_shape)."""
    sampled = tuple(replace(c, positions=_spread(c.positions)) for c in chosen)
    layers = {c.parameter.name for c in chosen if _in_layers(model, owners.get(c.parameter.name, []))}
    bare = {c.parameter.name for c in chosen if _is_bare(model, c, owners.get(c.parameter.name, []))}
    with highest_precision(model, x) as precise:
        routes = _closed_forms(head, layers, owners)
        while True:
            tried, right = _tried(model, routes, bare, sampled, precise)
            wrong = tried.closed if right is None else tried.closed - right
            if not wrong:
                return replace(tried, structured=tried.structured & (right or NONE))
            routes = routes.without_closed_forms(wrong)


def _tried(
    model: nn.Module, routes: Routes, bare: set[str], chosen: tuple[Chosen, ...], x: Tensor
) -> tuple[Routes, frozenset[str] | None]:
    """The routes, with the bare parameters or, for a model that cannot take these once an example, without; and which
    of them are right (None: the probes fail)."""
    whole = replace(routes, structured=routes.structured | bare)
    right = _agreeing(model, whole, chosen, x)
    if right is not None or not bare:
        return whole, right
    return routes, _agreeing(model, routes, chosen, x)


def _closed_forms(head: LinearHead | None, names: set[str], owners: Owners) -> Routes:
    """Routes of the parameters `names`, which belong to layers with rules: closed forms where the structure allows."""
    if head is None:
        return Routes(owners, None, NONE, NONE, frozenset(names))
    alone = {name: owners[name][0][0] for name in names if len(owners[name]) == 1}
    in_head = frozenset(name for name, path in alone.items() if path == head.path)
    by_feature = frozenset(name for name, path in alone.items() if path in head.separate)
    return Routes(owners, head, in_head, by_feature, frozenset(names) - in_head - by_feature)


def _spread(positions: Tensor) -> Tensor:
    """A few positions, first and last among them."""
    if len(positions) <= CHECK_POSITIONS:
        return positions
    at = torch.linspace(0, len(positions) - 1, CHECK_POSITIONS, dtype=torch.float64, device=positions.device)
    return positions[at.round().long()]


def _in_layers(model: nn.Module, places: list[tuple[str, str]]) -> bool:
    modules = [model.get_submodule(path) for path, _ in places]
    return bool(modules) and all(is_structured(m) for m in modules) and len(set(modules)) == len(modules)


def _is_bare(model: nn.Module, chosen: Chosen, places: list[tuple[str, str]]) -> bool:
    """A parameter that broadcasts over the batch and belongs to no layer with a rule."""
    shape = chosen.parameter.shape
    return len(places) == 1 and not _in_layers(model, places) and len(shape) > 1 and shape[0] == 1


def plan_for(model: nn.Module, chosen: tuple[Chosen, ...], routes: Routes) -> JacobianPlan:
    """The chosen entries of each parameter by its route."""
    structured, expanded = [], []
    for c in chosen:
        name = c.parameter.name
        if name in routes.structured:
            in_layers = _in_layers(model, routes.owners[name])
            rules: dict[str, Entries] = {name: ExpandedEntries(c.positions)}
            if in_layers:
                rules = {p: entries_of(model.get_submodule(p), role, c.positions) for p, role in routes.owners[name]}
            else:
                expanded.append(name)
            structured.append(StructuredParameter(c.parameter, rules))
    in_head = tuple(_head_parameter(model, c, routes) for c in chosen if c.parameter.name in routes.in_head)
    by_feature = tuple(_feature_parameter(model, c, routes) for c in chosen if c.parameter.name in routes.by_feature)
    known = routes.structured | routes.in_head | routes.by_feature
    return JacobianPlan(
        tuple(structured),
        tuple(c for c in chosen if c.parameter.name not in known),
        tuple(expanded),
        head=routes.head if in_head or by_feature else None,
        in_head=in_head,
        by_feature=by_feature,
    )


def _head_parameter(model: nn.Module, chosen: Chosen, routes: Routes) -> HeadParameter:
    assert routes.head is not None
    _, role = routes.owners[chosen.parameter.name][0]
    return HeadParameter.of(routes.head.layer(model), chosen.parameter, role, chosen.positions)


def _feature_parameter(model: nn.Module, chosen: Chosen, routes: Routes) -> FeatureParameter:
    path, role = routes.owners[chosen.parameter.name][0]
    layer = model.get_submodule(path)
    entries, features = entries_of(layer, role, chosen.positions), features_of(layer, role, chosen.positions)
    return FeatureParameter(chosen.parameter, path, entries, features)


def _agreeing(exact: nn.Module, routes: Routes, chosen: tuple[Chosen, ...], x: Tensor) -> frozenset[str] | None:
    """Names of parameters whose route equals plain differentiation; None where the probes fail."""
    known = routes.structured | routes.in_head | routes.by_feature
    tried = tuple(c for c in chosen if c.parameter.name in known)
    if not tried:
        return NONE
    plan = plan_for(exact, tried, routes)
    output = check_output(exact(x), x.shape[0])
    check_finite_outputs(exact, x, output, EXAMPLES)
    plain = plain_jacobian(exact, tried, x, few_mixtures)
    check_finite_jacobian(exact, x, plain, EXAMPLES)
    parts = torch.split(plain, [len(c.positions) for c in tried], dim=2)
    try:
        forward = probed_forward(exact, plan, x)
        calls = forward.of([*plan.paths, *plan.expanded])
        mixed = few_mixtures(forward.mean.detach())
        gradients = probe_gradients(mixed.of(forward.mean), calls, 1)
        closed = closed_blocks(exact, plan, forward, mixed)
    except (RuntimeError, TypeError, AttributeError, ValueError):  # a place that gives or takes something unusual
        return None
    blocks = {item.parameter.name: _try_block(exact, item, calls, gradients) for item in plan.structured}
    blocks |= {name: make() for name, make in closed.items()}
    names = [c.parameter.name for c in tried]
    return frozenset(name for name, part in zip(names, parts, strict=True) if _agree(blocks[name], part))


def few_mixtures(mean: Tensor) -> Mixed:
    """At most `CHECK_OUTPUTS` mixtures that stand for all outputs while something is tried, in any precision the same;
    mean (B, K)."""
    count = mean.shape[1]
    if count <= CHECK_OUTPUTS:
        return every_output(mean)
    generator = torch.Generator().manual_seed(0)
    return Mixtures(torch.randn(1, CHECK_OUTPUTS, count, dtype=torch.float64, generator=generator).to(mean))


def _try_block(
    model: nn.Module, item: StructuredParameter, calls: list[ProbeCall], gradients: list[Tensor]
) -> Tensor | None:
    """The block, or None where its rule does not fit the layer's input."""
    try:
        return structured_block(model, item, calls, gradients)
    except (RuntimeError, ValueError, IndexError):
        return None


def _agree(found: Tensor | None, expected: Tensor) -> bool:
    if found is None or found.shape != expected.shape:
        return False
    if found.dtype != torch.float64:
        return _nearly(found, expected)
    return torch.allclose(found, expected, rtol=1e-8, atol=1e-10 * float(expected.abs().max()))
