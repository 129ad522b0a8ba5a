"""Subnetwork Jacobians: the derivatives of the outputs with respect to the chosen weights only.

For a layer with input a and output z, a zero probe is added to z, and its gradient g = d out / d z follows from one
backward pass for each output. The chosen entries are then formed from a and g alone (`offline.jacobian.layer_rules`).
Nothing of size (batch, outputs, D) ever exists, and layers below the lowest chosen weight are not differentiated. A
bare parameter of shape (1, ...) is given to the model once an example, with a probe of its own. Every other parameter
takes the generic route: reverse-mode differentiation of one example, restricted to the touched tensors.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call, vjp, vmap

from offline.jacobian.layer_rules import Entries
from offline.network.model_copy import check_output
from offline.network.weights import Parameter, WeightLayout

# More rows than these in a backward pass are no faster on a CPU: they leave the caches.
ROWS_AT_ONCE = 32


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
    """Which chosen parameters are formed from probes, and which take the generic route.

    `expanded`: names of the bare parameters among the structured ones. `batched_outputs`: whether the outputs may be
    differentiated several at once (`probe_gradients`).
    """

    structured: tuple[StructuredParameter, ...]
    generic: tuple[Chosen, ...]
    expanded: tuple[str, ...] = ()
    batched_outputs: bool = False

    @property
    def paths(self) -> list[str]:
        """The layers to probe."""
        return sorted({path for item in self.structured for path in item.rules} - set(self.expanded))


@dataclass(frozen=True)
class ProbeCall:
    """One call of a probed layer: its path, its input, and the zero probe that was added to its output.

    For a bare parameter: its name, itself, and the probe that was added to it.
    """

    path: str
    input: Tensor
    probe: Tensor


class Probes:
    """Context manager: hooks that add a zero probe to the output of each layer and record the call.

    An output that the batch shares (position embeddings of shape (1, T, ...)) is first repeated for each example, so
    that the probe tells the examples apart.
    """

    def __init__(self, model: nn.Module, paths: list[str], batch: int) -> None:
        self.layers = {model.get_submodule(path): path for path in paths}
        self.batch = batch
        self.calls: list[ProbeCall] = []

    def __enter__(self) -> list[ProbeCall]:
        self.handles = [layer.register_forward_hook(self._record, with_kwargs=True) for layer in self.layers]
        return self.calls

    def __exit__(self, *_: object) -> None:
        for handle in self.handles:
            handle.remove()

    def _record(self, layer: nn.Module, args: tuple[Tensor, ...], kwargs: dict[str, Tensor], output: Tensor) -> Tensor:
        a = (args[0] if args else kwargs["input"]).detach()
        if output.shape[0] == 1 and self.batch != 1:
            a, output = (t.expand(self.batch, *t.shape[1:]) for t in (a, output))
        probe = torch.zeros_like(output).requires_grad_()
        self.calls.append(ProbeCall(self.layers[layer], a, probe))
        return output + probe


class SubnetworkJacobian:
    """x (B, *input_shape) -> (mean (B, K), jacobian (B, K, S)), S = len(indices), in the order of `indices`.

    `model` is a private copy in eval mode with frozen parameters (`private_copy`): hooks are placed on it. Made by
    `offline.jacobian.plan.make_jacobian`.
    """

    def __init__(self, model: nn.Module, layout: WeightLayout, indices: Tensor, plan: JacobianPlan) -> None:
        self.model, self.layout, self.indices, self.plan = model, layout, indices, plan

    @property
    def size(self) -> int:
        """S, the number of chosen weights."""
        return len(self.indices)

    def __call__(self, x: Tensor) -> tuple[Tensor, Tensor]:
        mean, blocks = self.blocks(x)
        return mean, torch.cat([block for _, block in blocks], dim=2)

    def blocks(self, x: Tensor) -> tuple[Tensor, Iterator[tuple[Parameter, Tensor]]]:
        """The mean (B, K) and, one parameter at a time in the layout's order, its block (B, K, n)."""
        mean, calls, gradients = probe(self.model, self.plan, x)
        return mean, self._blocks(x, calls, gradients)

    def _blocks(self, x: Tensor, calls: list[ProbeCall], gradients: list[Tensor]) -> Iterator[tuple[Parameter, Tensor]]:
        structured = {item.parameter.name: item for item in self.plan.structured}
        generic = generic_blocks(self.model, self.plan.generic, x) if self.plan.generic else {}
        for parameter in self.layout.parameters:
            if parameter.name in structured:
                yield parameter, structured_block(self.model, structured[parameter.name], calls, gradients)
            elif parameter.name in generic:
                yield parameter, generic[parameter.name]


def probed_forward(model: nn.Module, plan: JacobianPlan, x: Tensor) -> tuple[Tensor, list[ProbeCall]]:
    """One forward pass with probes in place: mean (B, K) and the calls of the probed places."""
    parameters, batch = dict(model.named_parameters()), x.shape[0]  # len() would fix the size where this is traced
    with torch.enable_grad(), Probes(model, plan.paths, batch) as calls:
        bare = [_expanded(name, parameters[name], batch) for name in plan.expanded]
        given = {call.path: call.input + call.probe for call in bare}
        output = functional_call(model, given, (x,)) if given else model(x)
    return check_output(output, batch), [*bare, *calls]


def _expanded(name: str, parameter: Tensor, batch: int) -> ProbeCall:
    value = parameter.detach().expand(batch, *parameter.shape[1:])
    return ProbeCall(name, value, torch.zeros_like(value).requires_grad_())


def probe(model: nn.Module, plan: JacobianPlan, x: Tensor) -> tuple[Tensor, list[ProbeCall], list[Tensor]]:
    """One forward pass with probes and K backward passes, several at once where the plan allows.

    x (B, *input_shape) -> mean (B, K), the calls of the probed places, and for each call the gradients of the
    outputs in its probe, (B, K, *layer output).
    """
    mean, calls = probed_forward(model, plan, x)
    at_once = outputs_at_once(*mean.shape) if plan.batched_outputs else 1
    return mean.detach(), calls, probe_gradients(mean, calls, at_once)


def outputs_at_once(batch: int, outputs: int) -> int:
    """So many that at most `ROWS_AT_ONCE` rows go backwards at once, in passes of equal size."""
    passes = -(-batch * outputs // ROWS_AT_ONCE)
    return max(1, -(-outputs // passes))


def probe_gradients(outputs: Tensor, calls: list[ProbeCall], at_once: int) -> list[Tensor]:
    """For each call the gradients of `outputs` (B, K) in its probe, (B, K, *layer output).

    at_once: outputs that share a backward pass. A pass reads every weight of the network; for few examples that is
    most of what it costs.
    """
    probes = [call.probe for call in calls]
    batch, count = outputs.shape
    if not outputs.requires_grad:
        return [item.new_zeros(batch, count, *item.shape[1:]) for item in probes]

    def pulled(cotangents: Tensor) -> tuple[Tensor, ...]:
        return torch.autograd.grad(
            outputs, probes, cotangents, retain_graph=True, allow_unused=True, materialize_grads=True
        )

    one_hot = torch.eye(count, dtype=outputs.dtype, device=outputs.device).unsqueeze(1).expand(count, batch, count)
    if at_once == 1:
        return [torch.stack(parts, dim=1) for parts in zip(*map(pulled, one_hot), strict=True)]
    return [part.transpose(0, 1) for part in vmap(pulled, chunk_size=at_once)(one_hot)]


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


def example_jacobian(model: nn.Module, chosen: tuple[Chosen, ...]) -> Callable[[Tensor], Tensor]:
    """x (*input_shape) -> (K, n): reverse-mode derivatives of one example's outputs in the touched tensors only."""
    parameters = dict(model.named_parameters())
    touched = {c.parameter.name: parameters[c.parameter.name].detach() for c in chosen}

    def jacobian(x: Tensor) -> Tensor:
        def outputs(tensors: dict[str, Tensor]) -> Tensor:
            result: Tensor = functional_call(model, tensors, (x.unsqueeze(0),))
            return result[0]

        value, pullback = vjp(outputs, touched)[:2]
        (full,) = vmap(pullback)(torch.eye(len(value), dtype=value.dtype, device=value.device))
        return torch.cat([full[c.parameter.name].flatten(1)[:, c.positions] for c in chosen], dim=1)

    return jacobian


def generic_blocks(model: nn.Module, chosen: tuple[Chosen, ...], x: Tensor) -> dict[str, Tensor]:
    """(B, K, n) for each parameter of the generic route; one example at a time where `vmap` knows no rule."""
    jacobian = example_jacobian(model, chosen)
    try:
        joined = vmap(jacobian)(x)
    except (RuntimeError, ValueError):
        joined = torch.stack([jacobian(example) for example in x])
    parts = torch.split(joined.detach(), [len(c.positions) for c in chosen], dim=2)
    return {c.parameter.name: part for c, part in zip(chosen, parts, strict=True)}
