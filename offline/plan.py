"""Plan a subnetwork Jacobian: which parameters may be formed from layers, and the proof that it is right.

Whether a weight is used by its layer alone is not a matter of type: it may be tied to an embedding, reparametrised,
fed time-major, or read by other code. So the structured plan is tried on a few inputs against plain differentiation
in float64, and a parameter that does not agree takes the generic route.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from offline.entries import entries_of
from offline.jacobians import (
    Chosen,
    JacobianPlan,
    LayerCall,
    StructuredParameter,
    SubnetworkJacobian,
    check_output,
    private_copy,
    probe,
    structured_block,
)
from offline.layout import WeightLayout

STRUCTURED_TYPES = (nn.Linear, nn.Conv2d)
CHECK_EXAMPLES = 2


def make_jacobian(model: nn.Module, layout: WeightLayout, indices: Tensor, examples: Tensor) -> SubnetworkJacobian:
    """The Jacobian of the chosen weights, its plan tried on the first of `examples` (B, *input_shape).

    model: from `private_copy`; indices (S,) ascending positions in the layout.
    """
    indices = indices.to(examples.device)
    chosen = tuple(Chosen(parameter, positions) for parameter, positions in layout.locate(indices))
    owners = parameter_owners(model)
    candidates = {c.parameter.name for c in chosen if _is_structured(model, owners.get(c.parameter.name, []))}
    plan = _plan(model, chosen, owners, candidates)
    wrong = _disagreeing(SubnetworkJacobian(model, layout, indices, plan), chosen, examples[:CHECK_EXAMPLES])
    return SubnetworkJacobian(
        model, layout, indices, _plan(model, chosen, owners, candidates - wrong) if wrong else plan
    )


def parameter_owners(model: nn.Module) -> dict[str, list[tuple[str, str]]]:
    """For each parameter's first name, every (module path, attribute) that holds it: tied weights have several."""
    first_name = {id(tensor): name for name, tensor in model.named_parameters()}
    owners: dict[str, list[tuple[str, str]]] = {}
    for path, module in model.named_modules():
        for attribute, tensor in module.named_parameters(recurse=False, remove_duplicate=False):
            owners.setdefault(first_name[id(tensor)], []).append((path, attribute))
    return owners


def _is_structured(model: nn.Module, places: list[tuple[str, str]]) -> bool:
    modules = [model.get_submodule(path) for path, _ in places]
    return bool(modules) and all(type(m) in STRUCTURED_TYPES for m in modules) and len(set(modules)) == len(modules)


def _plan(
    model: nn.Module, chosen: tuple[Chosen, ...], owners: dict[str, list[tuple[str, str]]], names: set[str]
) -> JacobianPlan:
    structured = [
        StructuredParameter(
            c.parameter,
            {path: entries_of(model.get_submodule(path), role, c.positions) for path, role in owners[c.parameter.name]},
        )
        for c in chosen
        if c.parameter.name in names
    ]
    return JacobianPlan(tuple(structured), tuple(c for c in chosen if c.parameter.name not in names))


def _disagreeing(jacobian: SubnetworkJacobian, chosen: tuple[Chosen, ...], x: Tensor) -> set[str]:
    """Names of structured parameters whose entries differ from plain differentiation in float64."""
    names = {item.parameter.name for item in jacobian.plan.structured}
    if not names:
        return names
    exact = private_copy(jacobian.model, x.device, torch.float64)
    x = x.double() if x.is_floating_point() else x
    structured = tuple(c for c in chosen if c.parameter.name in names)
    truth = torch.split(plain_jacobian(exact, structured, x), [len(c.positions) for c in structured], dim=2)
    expected = {c.parameter.name: part for c, part in zip(structured, truth, strict=True)}
    try:
        _, calls, gradients = probe(exact, jacobian.plan.paths, x)
    except (RuntimeError, TypeError, AttributeError):  # a hooked layer that returns or takes something unusual
        return names
    found = {item.parameter.name: _try_block(exact, item, calls, gradients) for item in jacobian.plan.structured}
    return {name for name in names if not _agree(found[name], expected[name])}


def _try_block(
    model: nn.Module, item: StructuredParameter, calls: list[LayerCall], gradients: list[Tensor]
) -> Tensor | None:
    """The block, or None where its rule does not fit what the layer was given."""
    try:
        return structured_block(model, item, calls, gradients)
    except (RuntimeError, ValueError, IndexError):
        return None


def _agree(found: Tensor | None, expected: Tensor) -> bool:
    if found is None or found.shape != expected.shape:
        return False
    return torch.allclose(found, expected, rtol=1e-8, atol=1e-10 * float(expected.abs().max()))


def plain_jacobian(model: nn.Module, chosen: tuple[Chosen, ...], x: Tensor) -> Tensor:
    """(B, K, n), one example and one output at a time by plain autograd: slow, and independent of all the above.

    A parameter that the outputs do not depend on has derivative zero.
    """
    parameters = dict(model.named_parameters())
    tensors = [parameters[c.parameter.name] for c in chosen]
    try:
        for tensor in tensors:
            tensor.requires_grad_(True)
        with torch.enable_grad():
            return torch.stack([_plain_example(model, chosen, tensors, example.unsqueeze(0)) for example in x])
    finally:
        for tensor in tensors:
            tensor.requires_grad_(False)


def _plain_example(model: nn.Module, chosen: tuple[Chosen, ...], tensors: Sequence[Tensor], x: Tensor) -> Tensor:
    outputs = check_output(model(x), 1)[0]
    if not outputs.requires_grad:
        return torch.zeros(len(outputs), sum(len(c.positions) for c in chosen), dtype=outputs.dtype, device=x.device)
    rows = []
    for output in outputs:
        gradients = torch.autograd.grad(output, tensors, retain_graph=True, allow_unused=True, materialize_grads=True)
        rows.append(torch.cat([g.reshape(-1)[c.positions] for g, c in zip(gradients, chosen, strict=True)]))
    return torch.stack(rows)
