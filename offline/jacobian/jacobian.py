"""Subnetwork Jacobians: the derivatives of the outputs with respect to the chosen weights only.

For a layer with input a and output z, a zero probe is added to z, and its gradient g = d out / d z follows from one
backward pass for each output. The chosen entries are then formed from a and g alone
(`demur.offline.jacobian.layer_rules`). Nothing of size (batch, outputs, D) ever exists, and layers below the lowest
chosen weight are not differentiated. A bare parameter of shape (1, ...) is given to the model once an example, with a
probe of its own. Weights of a linear head and of layers whose features reach it separately need none or one backward
pass (`demur.offline.jacobian.linear_head`). Every other parameter takes the generic route: reverse-mode
differentiation of one example, restricted to the touched tensors.
"""

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor, nn
from torch.func import functional_call, vjp

from ..network.weights import Parameter, WeightLayout
from .batched import batched
from .linear_head import FeatureParameter, LinearHead
from .mixtures import Mixed, Mixing, every_output
from .probes import ProbeCall, ProbedForward, feature_gradients, outputs_at_once, probe_gradients, probed_forward
from .routes import Chosen, JacobianPlan, StructuredParameter

BlockMakers = dict[str, Callable[[], Tensor]]


class SubnetworkJacobian:
    """x (B, *input_shape) -> (mean (B, K), jacobian (B, K, S)), S = len(indices), in the order of `indices`.

    `model` is a private copy in eval mode with frozen parameters (`private_copy`): hooks are placed on it. Made by
    `demur.offline.jacobian.plan.make_jacobian`.
    """

    def __init__(self, model: nn.Module, layout: WeightLayout, indices: Tensor, plan: JacobianPlan) -> None:
        self.model, self.layout, self.indices, self.plan = model, layout, indices, plan

    @property
    def size(self) -> int:
        """S, the number of chosen weights."""
        return len(self.indices)

    def ranks(self) -> dict[str, Tensor]:
        """Where the chosen entries of each parameter stand among all S, by its name."""
        located = [(parameter.name, len(inside)) for parameter, inside in self.layout.locate(self.indices)]
        every = torch.arange(self.size, device=self.indices.device)
        parts = torch.split(every, [count for _, count in located])
        return {name: part for (name, _), part in zip(located, parts, strict=True)}

    def __call__(self, x: Tensor) -> tuple[Tensor, Tensor]:
        mean, blocks = self.blocks(x)
        return mean, torch.cat([block for _, block in blocks], dim=2)

    def blocks(self, x: Tensor, mixing: Mixing = every_output) -> tuple[Tensor, Iterator[tuple[Parameter, Tensor]]]:
        """The mean (B, K) and, one parameter at a time in the layout's order, its block (B, K, n); with `mixing`, which
        may depend on the mean, those of M mixtures of the outputs, (B, M, n)."""
        forward = probed_forward(self.model, self.plan, x)
        mixed = mixing(forward.mean.detach())
        outputs = mixed.of(forward.mean)
        at_once = outputs_at_once(*outputs.shape) if self.plan.batched_outputs else 1
        calls = forward.of([*self.plan.paths, *self.plan.expanded])
        makers = self._generic(x, mixed.cotangents(forward.mean.detach()))
        makers |= self._structured(calls, probe_gradients(outputs, calls, at_once))
        makers |= closed_blocks(self.model, self.plan, forward, mixed)
        ordered = ((p, makers[p.name]()) for p in self.layout.parameters if p.name in makers)
        return forward.mean.detach(), ordered

    def _structured(self, calls: list[ProbeCall], gradients: list[Tensor]) -> BlockMakers:
        return {
            item.parameter.name: partial(structured_block, self.model, item, calls, gradients)
            for item in self.plan.structured
        }

    def _generic(self, x: Tensor, cotangents: Tensor) -> BlockMakers:
        blocks = generic_blocks(self.model, self.plan.generic, x, cotangents) if self.plan.generic else {}
        return {name: partial(_same, block) for name, block in blocks.items()}


def closed_blocks(model: nn.Module, plan: JacobianPlan, forward: ProbedForward, mixed: Mixed) -> BlockMakers:
    """What makes the blocks (B, M, n) of the head's parameters and of those whose features reach it separately."""
    h = forward.features
    if plan.head is None or h is None:
        return {}
    calls = forward.of(plan.feature_paths)
    gradients = feature_gradients(h, calls)
    makers: BlockMakers = {item.parameter.name: partial(item.block, h.detach(), mixed) for item in plan.in_head}
    for item in plan.by_feature:
        makers[item.parameter.name] = partial(feature_block, model, plan.head, item, calls, gradients, mixed)
    return makers


def _same(block: Tensor) -> Tensor:
    return block


def feature_block(
    model: nn.Module,
    head: LinearHead,
    item: FeatureParameter,
    calls: list[ProbeCall],
    gradients: list[Tensor],
    mixed: Mixed,
) -> Tensor:
    """(B, M, n) of a layer whose features reach the head separately; it is called once."""
    (place,) = (i for i, call in enumerate(calls) if call.path == item.path)
    layer = model.get_submodule(item.path)
    return item.block(head.layer(model), layer, calls[place].input, gradients[place], mixed)


def structured_block(
    model: nn.Module, item: StructuredParameter, calls: list[ProbeCall], gradients: list[Tensor]
) -> Tensor:
    """(B, K, n): the contributions of every call of every place that holds the parameter, added up."""
    parts = [
        item.rules[call.path](owner(model, call.path), call.input, gradient)
        for call, gradient in zip(calls, gradients, strict=True)
        if call.path in item.rules
    ]
    if not parts:
        raise ValueError(f"parameter {item.parameter.name!r}: its layer was not called by the model")
    return torch.stack(parts).sum(0) if len(parts) > 1 else parts[0]


def owner(model: nn.Module, path: str) -> nn.Module:
    """The layer at `path`; for the name of a bare parameter, the module that holds it."""
    try:
        return model.get_submodule(path)
    except AttributeError:
        return model.get_submodule(path.rpartition(".")[0])


def example_products(model: nn.Module, chosen: tuple[Chosen, ...]) -> Callable[[Tensor, Tensor], Tensor]:
    """x (*input_shape), c (M, K) -> (M, n): reverse-mode derivatives of the mixtures c f of one example's outputs f in
    the touched tensors only."""
    parameters = dict(model.named_parameters())
    touched = {c.parameter.name: parameters[c.parameter.name].detach() for c in chosen}

    def products(x: Tensor, cotangents: Tensor) -> Tensor:
        def outputs(tensors: dict[str, Tensor]) -> Tensor:
            result: Tensor = functional_call(model, tensors, (x.unsqueeze(0),))
            return result[0]

        _, pullback = vjp(outputs, touched)[:2]
        (full,) = batched(pullback)(cotangents)
        return torch.cat([full[c.parameter.name].reshape(len(cotangents), -1)[:, c.positions] for c in chosen], dim=1)

    return products


def generic_blocks(model: nn.Module, chosen: tuple[Chosen, ...], x: Tensor, cotangents: Tensor) -> dict[str, Tensor]:
    """(B, M, n) for each parameter of the generic route; one example at a time where `vmap` knows no rule."""
    products = example_products(model, chosen)
    try:
        joined = batched(products)(x, cotangents)
    except (RuntimeError, ValueError):
        joined = torch.stack([products(*example) for example in zip(x, cotangents, strict=True)])
    parts = torch.split(joined.detach(), [len(c.positions) for c in chosen], dim=2)
    return {c.parameter.name: part for c, part in zip(chosen, parts, strict=True)}
