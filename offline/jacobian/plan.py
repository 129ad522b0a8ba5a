"""Plan a subnetwork Jacobian: find the parameters that probes can form, and check the result.

Whether a weight is used by its layer alone is not a matter of type: it may be tied to an embedding, reparametrised,
fed time-major, or read by other code. So the structured rules are tried on a few inputs against plain differentiation
in float64, at positions spread over each parameter, and a parameter that does not agree takes the generic route.
"""

import warnings
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace

import torch
from torch import Tensor, nn

from offline.jacobian.jacobian import (
    Chosen,
    JacobianPlan,
    ProbeCall,
    StructuredParameter,
    SubnetworkJacobian,
    probe_gradients,
    probed_forward,
    structured_block,
)
from offline.jacobian.layer_rules import Entries, ExpandedEntries, entries_of, is_structured
from offline.network.finite import check_finite_jacobian, check_finite_outputs
from offline.network.model_copy import check_output, highest_precision
from offline.network.weights import Owners, WeightLayout, parameter_owners

CHECK_EXAMPLES = 2
EXAMPLES = "the first batch of train_loader"
CHECK_OUTPUTS = 2  # random mixtures of the outputs stand for all of them: the rules are linear in their gradients
CHECK_POSITIONS = 48  # of each parameter: comparing all of a large one would need its whole Jacobian


def make_jacobian(model: nn.Module, layout: WeightLayout, indices: Tensor, examples: Tensor) -> SubnetworkJacobian:
    """The Jacobian of the chosen weights, its plan tried on the first of `examples` (B, *input_shape).

    model: from `private_copy`, in float64 while the plan is tried; indices (S,) ascending positions in the layout.
    Raises `NotFiniteError` for outputs or derivatives of these examples that are NaN or infinite.
    """
    indices = indices.to(examples.device)
    chosen = tuple(Chosen(parameter, positions) for parameter, positions in layout.locate(indices))
    owners = parameter_owners(model)
    names = trusted_names(model, chosen, owners, examples[:CHECK_EXAMPLES])
    plan = plan_for(model, chosen, owners, names)
    plan = replace(plan, batched_outputs=allows_batched_outputs(model, plan, examples[:CHECK_EXAMPLES]))
    return SubnetworkJacobian(model, layout, indices, plan)


def allows_batched_outputs(model: nn.Module, plan: JacobianPlan, x: Tensor) -> bool:
    """Whether several outputs can be differentiated in one pass: tried, since not every operation has a rule for it."""
    mean, calls = probed_forward(model, plan, x)
    if mean.shape[1] == 1 or not calls:
        return False
    mixed = mean @ output_mixing(mean.detach())
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


def trusted_names(model: nn.Module, chosen: tuple[Chosen, ...], owners: Owners, x: Tensor) -> set[str]:
    """Names of the parameters whose structured rule is right for this model."""
    sampled = tuple(replace(c, positions=_spread(c.positions)) for c in chosen)
    layers = {c.parameter.name for c in chosen if _in_layers(model, owners.get(c.parameter.name, []))}
    bare = {c.parameter.name for c in chosen if _is_bare(model, c, owners.get(c.parameter.name, []))}
    with highest_precision(model, x) as precise:
        for names in (layers | bare, layers):  # a model that cannot take a bare parameter once an example
            right = _agreeing(model, plan_for(model, sampled, owners, names), sampled, precise)
            if right is not None:
                return right
    return set()


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


def plan_for(model: nn.Module, chosen: tuple[Chosen, ...], owners: Owners, names: set[str]) -> JacobianPlan:
    """The parameters of `names` by their rules, the others by the generic route."""
    structured, expanded = [], []
    for c in chosen:
        name = c.parameter.name
        if name in names:
            in_layers = _in_layers(model, owners[name])
            rules: dict[str, Entries] = {name: ExpandedEntries(c.positions)}
            if in_layers:
                rules = {p: entries_of(model.get_submodule(p), role, c.positions) for p, role in owners[name]}
            else:
                expanded.append(name)
            structured.append(StructuredParameter(c.parameter, rules))
    generic = tuple(c for c in chosen if c.parameter.name not in names)
    return JacobianPlan(tuple(structured), generic, tuple(expanded))


def _agreeing(exact: nn.Module, plan: JacobianPlan, chosen: tuple[Chosen, ...], x: Tensor) -> set[str] | None:
    """Names of structured parameters that equal plain differentiation; None where the probes fail."""
    names = {item.parameter.name for item in plan.structured}
    if not names:
        return names
    structured = tuple(c for c in chosen if c.parameter.name in names)
    output = check_output(exact(x), x.shape[0])
    check_finite_outputs(exact, x, output, EXAMPLES)
    mixing = output_mixing(output)
    plain = plain_jacobian(exact, structured, x, mixing)
    check_finite_jacobian(exact, x, plain, EXAMPLES)
    truth = torch.split(plain, [len(c.positions) for c in structured], dim=2)
    expected = {c.parameter.name: part for c, part in zip(structured, truth, strict=True)}
    try:
        mean, calls = probed_forward(exact, plan, x)
        gradients = probe_gradients(mean @ mixing, calls, 1)
    except (RuntimeError, TypeError, AttributeError, ValueError):  # a place that gives or takes something unusual
        return None
    blocks = {item.parameter.name: _try_block(exact, item, calls, gradients) for item in plan.structured}
    return {name for name in names if _agree(blocks[name], expected[name])}


def output_mixing(mean: Tensor) -> Tensor:
    """(K, at most `CHECK_OUTPUTS`): mixtures that stand for all outputs while something is tried; mean (B, K)."""
    count = mean.shape[1]
    if count <= CHECK_OUTPUTS:
        return torch.eye(count, dtype=mean.dtype, device=mean.device)
    generator = torch.Generator().manual_seed(0)
    return torch.randn(count, CHECK_OUTPUTS, dtype=mean.dtype, generator=generator).to(mean.device)


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


def plain_jacobian(model: nn.Module, chosen: tuple[Chosen, ...], x: Tensor, mixing: Tensor | None = None) -> Tensor:
    """(B, K, n), one example and one output at a time by plain autograd: slow, and independent of all the above.

    mixing (K, M): the derivatives of M mixtures of the outputs instead, (B, M, n). A parameter that the outputs do not
    depend on has derivative zero. The chosen entries of each parameter's gradient are taken as soon as it is there, and
    the rest of it is freed: all gradients at once would be a second network.
    """
    parameters = dict(model.named_parameters())
    tensors = [parameters[c.parameter.name] for c in chosen]
    try:
        for tensor in tensors:
            tensor.requires_grad_(True)
        with torch.enable_grad():
            return torch.stack([_plain_example(model, chosen, tensors, example.unsqueeze(0), mixing) for example in x])
    finally:
        for tensor in tensors:
            tensor.requires_grad_(False)


def _plain_example(
    model: nn.Module, chosen: tuple[Chosen, ...], tensors: Sequence[Tensor], x: Tensor, mixing: Tensor | None
) -> Tensor:
    outputs = check_output(model(x), 1)[0]
    outputs = outputs if mixing is None else outputs @ mixing
    result = torch.zeros(len(outputs), sum(len(c.positions) for c in chosen), dtype=outputs.dtype, device=x.device)
    if outputs.requires_grad:
        for output, row in zip(outputs, result, strict=True):
            _plain_row(output, chosen, tensors, row)
    return result


def _plain_row(output: Tensor, chosen: tuple[Chosen, ...], tensors: Sequence[Tensor], row: Tensor) -> None:
    """One output's derivatives into `row` (n,)."""
    with ExitStack() as hooks:
        for c, tensor, part in zip(chosen, tensors, torch.split(row, [len(c.positions) for c in chosen]), strict=True):

            def take(leaf: Tensor, part: Tensor = part, positions: Tensor = c.positions) -> None:
                assert leaf.grad is not None
                part.copy_(leaf.grad.reshape(-1)[positions])
                leaf.grad = None

            handle = tensor.register_post_accumulate_grad_hook(take)  # type: ignore[no-untyped-call]
            hooks.callback(handle.remove)
        torch.autograd.backward(output, retain_graph=True)
