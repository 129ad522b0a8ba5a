"""Probes: zeros added to the outputs of layers, whose gradients are those of the outputs or of the head's input."""

from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call

from ..network.outputs import check_output
from .batched import batched
from .linear_head import HeadInput
from .routes import JacobianPlan

# More rows than these in a backward pass are no faster on a CPU: they leave the caches.
ROWS_AT_ONCE = 32


@dataclass(frozen=True)
class ProbeCall:
    """One call of a probed layer: its path, its input, and the zero probe that was added to its output.

    For a bare parameter: its name, itself, and the probe that was added to it.
    """

    path: str
    input: Tensor
    probe: Tensor


@dataclass(frozen=True)
class ProbedForward:
    """One forward pass with probes: mean (B, K), the head's input `features` (B, F) where some weights need it, and the
    calls of the probed places."""

    mean: Tensor
    features: Tensor | None
    calls: tuple[ProbeCall, ...]

    def of(self, paths: Iterable[str]) -> list[ProbeCall]:
        """The calls of some of the places."""
        wanted = set(paths)
        return [call for call in self.calls if call.path in wanted]


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
        # Before the user's own hooks: a rule knows what the layer itself gives.
        self.handles = [
            layer.register_forward_hook(self._record, with_kwargs=True, prepend=True) for layer in self.layers
        ]
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


def probed_forward(model: nn.Module, plan: JacobianPlan, x: Tensor) -> ProbedForward:
    """One forward pass with probes in place."""
    parameters, batch = dict(model.named_parameters()), x.shape[0]  # len() would fix the size where this is traced
    paths = sorted({*plan.paths, *plan.feature_paths})
    head = nullcontext() if plan.head is None else HeadInput(model, plan.head)
    with torch.enable_grad(), Probes(model, paths, batch) as calls, head as reached:
        bare = [_expanded(name, parameters[name], batch) for name in plan.expanded]
        given = {call.path: call.input + call.probe for call in bare}
        output = functional_call(model, given, (x,)) if given else model(x)
    features = None if reached is None else reached.features
    return ProbedForward(check_output(output, batch), features, (*bare, *calls))


def _expanded(name: str, parameter: Tensor, batch: int) -> ProbeCall:
    value = parameter.detach().expand(batch, *parameter.shape[1:])
    return ProbeCall(name, value, torch.zeros_like(value).requires_grad_())


def feature_gradients(features: Tensor, calls: list[ProbeCall]) -> list[Tensor]:
    """For each call the gradient of sum_j h_j in its probe, (B, *layer output); features h (B, F)."""
    if not calls:
        return []
    return list(torch.autograd.grad(features.sum(), [call.probe for call in calls], retain_graph=True))


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
    if not probes:
        return []
    if not outputs.requires_grad:
        return [item.new_zeros(batch, count, *item.shape[1:]) for item in probes]

    def pulled(cotangents: Tensor) -> tuple[Tensor, ...]:
        return torch.autograd.grad(
            outputs, probes, cotangents, retain_graph=True, allow_unused=True, materialize_grads=True
        )

    one_hot = torch.eye(count, dtype=outputs.dtype, device=outputs.device).unsqueeze(1).expand(count, batch, count)
    if at_once == 1:
        return [torch.stack(parts, dim=1) for parts in zip(*map(pulled, one_hot), strict=True)]
    return [part.transpose(0, 1) for part in batched(pulled, chunk_size=at_once)(one_hot)]
