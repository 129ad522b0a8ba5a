"""The modules that become the graph: inputs (B, *input_shape) -> the mean and the variance.

The structured part runs a forward pass on B rows and a backward pass on B * K rows, one output each, so that its size
does not grow with K (`demur.offline.export.split_graph`); layers whose features reach the head separately need a
backward pass on B rows, the head's own weights none. All are traced by `make_fx` with symbolic shapes, because
`torch.export` cannot see through a backward pass; parameters of the generic route become an ONNX Scan over the
examples. What these parts compute twice, the forward pass, is merged when the graph is simplified.
"""

import torch
from torch import Tensor, nn
from torch._higher_order_ops.scan import scan
from torch.func import functionalize

from ..features.added_weights import AddedWeights
from ..jacobian.jacobian import SubnetworkJacobian, example_products, structured_block
from ..jacobian.mixtures import EveryOutput, Mixed
from ..jacobian.probes import ProbeCall, ProbedForward, probed_forward
from ..laplace.served_factor import StructuredFactor, WholeFactor
from ..network.outputs import check_output
from .split_graph import repeated, split, traced


class AddedWeightsGraph(nn.Module):
    """x (B, *shape) -> mean and variance (B, K), of both posteriors behind the gate, its part of added weights (B,),
    the feature scores (B, M), and, where the noise depends on the input, its scale (B, K), float32.

    The forward pass that the activations need is that of `graph`, which gives mean and variance: what both compute is
    merged when the graph is simplified.
    """

    share: Tensor | None

    def __init__(
        self, graph: nn.Module, model: nn.Module, added: AddedWeights, rows: Tensor, share: Tensor | None = None
    ) -> None:
        """share (K,): r_k^2, as for the gate."""
        super().__init__()
        self.register_buffer("share", None if share is None else share.to(rows.device, torch.float32))
        self.inner, self.gate = graph, added.gate
        served = added.gated().to(torch.zeros((), dtype=torch.float32, device=rows.device))
        self.noise = served.noise
        with torch.no_grad():
            self.added = traced(lambda x: served.of(model, x), rows, symbolic=True)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        mean, subnetwork = self.inner(x)
        scores, psi = self.added(x)
        other, features = scores.split([1, scores.shape[1] - 1], dim=1)
        variance, part, _, passed = self.gate(subnetwork, other, self.share)
        noise = () if self.noise is None else (self.noise(psi, mean, passed),)
        return mean, variance, part.squeeze(1), features, *noise


class WithoutSubnetwork(nn.Module):
    """x (B, *shape) -> mean (B, K) and no variance (1, K), where the gate leaves the chosen weights out."""

    def __init__(self, model: nn.Module, rows: Tensor) -> None:
        super().__init__()
        with torch.no_grad():
            self.plain = traced(lambda x: check_output(model(x), x.shape[0]), rows, symbolic=True)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        mean = self.plain(x)
        return mean, mean.new_zeros(1, mean.shape[1])


class StructuredGraph(nn.Module):
    """x (B, *shape) -> mean (B, K) and the structured entries (B, M, n): forward on B rows, backward on B * M."""

    def __init__(self, jacobian: SubnetworkJacobian, rows: Tensor, mixed: Mixed) -> None:
        super().__init__()
        self.plan, self.model, self.mixed = jacobian.plan, jacobian.model, mixed
        self.paths: list[str] = []
        ones = torch.ones(len(rows), mixed.outputs, device=rows.device)
        graph = traced(lambda x, c: self._forward_and_backward(x, c), rows, ones, symbolic=True)
        parts = split(graph, 1 + len(self.paths))
        self.first, self.second, self.kept, self.layouts = parts.forward, parts.backward, parts.kept, parts.layouts

    def _forward_and_backward(self, x: Tensor, cotangents: Tensor) -> tuple[Tensor, ...]:
        forward = probed_forward(self.model, self.plan, x)
        calls = forward.of([*self.plan.paths, *self.plan.expanded])
        self.paths = [call.path for call in calls]
        probes = [call.probe for call in calls]
        gradients = torch.autograd.grad(forward.mean, probes, cotangents, allow_unused=True, materialize_grads=True)
        return (forward.mean.detach(), *(call.input for call in calls), *gradients)

    def forward(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        mean, *rest = self.first(x)
        inputs, saved = rest[: self.kept - 1], rest[self.kept - 1 :]
        cotangents = self.mixed.cotangents(mean)
        batch, m = x.shape[0], cotangents.shape[1]
        gradients = self.second(
            cotangents.reshape(batch * m, -1), *(repeated(s, at, m) for s, at in zip(saved, self.layouts, strict=True))
        )
        calls = [ProbeCall(path, a, a) for path, a in zip(self.paths, inputs, strict=True)]
        grouped = [gradient.reshape(batch, m, *gradient.shape[1:]) for gradient in gradients]
        return mean, [structured_block(self.model, item, calls, grouped) for item in self.plan.structured]


class HeadGraph(nn.Module):
    """x (B, *shape) -> mean (B, K), the head's input (B, F), and the entries (B, M, n) of separate layers."""

    def __init__(self, jacobian: SubnetworkJacobian, rows: Tensor, mixed: Mixed) -> None:
        super().__init__()
        self.plan, self.model, self.mixed = jacobian.plan, jacobian.model, mixed
        assert self.plan.head is not None
        self.head = self.plan.head.layer(self.model)
        if not self.plan.by_feature:
            self.plain = traced(lambda x: _mean_and_features(self._forward(x)), rows, symbolic=True)
            return
        ones = torch.ones(len(rows), self.head.in_features, device=rows.device)
        graph = traced(lambda x, c: self._forward_and_backward(x, c), rows, ones, symbolic=True)
        parts = split(graph, 2 + len(self.plan.feature_paths))
        self.first, self.second, self.kept = parts.forward, parts.backward, parts.kept

    def _forward(self, x: Tensor) -> ProbedForward:
        return probed_forward(self.model, self.plan, x)

    def _forward_and_backward(self, x: Tensor, cotangents: Tensor) -> tuple[Tensor, ...]:
        forward = self._forward(x)
        calls = {call.path: call for call in forward.of(self.plan.feature_paths)}
        ordered = [calls[path] for path in self.plan.feature_paths]
        assert forward.features is not None
        gradients = torch.autograd.grad(forward.features, [call.probe for call in ordered], cotangents)
        return (*_mean_and_features(forward), *(call.input for call in ordered), *gradients)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, list[Tensor]]:
        if not self.plan.by_feature:
            return (*self.plain(x), [])
        mean, h, *rest = self.first(x)
        inputs, saved = rest[: self.kept - 2], rest[self.kept - 2 :]
        gradients = self.second(torch.ones_like(h), *saved)
        places = {path: place for place, path in enumerate(self.plan.feature_paths)}
        blocks = []
        for item in self.plan.by_feature:
            layer, place = self.model.get_submodule(item.path), places[item.path]
            blocks.append(item.block(self.head, layer, inputs[place], gradients[place], self.mixed))
        return mean, h, blocks


def _mean_and_features(forward: ProbedForward) -> tuple[Tensor, Tensor]:
    assert forward.features is not None
    return forward.mean.detach(), forward.features.detach()


class JacobianParts(nn.Module):
    """x (B, *shape) -> mean (B, K), the head's input (B, F) or None, and the entries (B, M, n) of parameters outside
    the head, in the order of the plan's `outside_head`; M: K, or as many as there are mixtures of the outputs."""

    def __init__(self, jacobian: SubnetworkJacobian, rows: Tensor, mixed: Mixed) -> None:
        super().__init__()
        plan, model, self.mixed = jacobian.plan, jacobian.model, mixed
        self.head = HeadGraph(jacobian, rows, mixed) if plan.head else None
        self.structured = StructuredGraph(jacobian, rows, mixed) if plan.structured else None
        self.generic = self.plain = None
        if plan.generic:
            (cotangents,) = mixed.cotangents(torch.ones(1, mixed.outputs, device=rows.device))
            products = functionalize(example_products(model, plan.generic))
            self.generic = traced(products, rows[0], cotangents, symbolic=False)
        if self.head is None and self.structured is None:
            self.plain = traced(lambda x: check_output(model(x), x.shape[0]), rows, symbolic=True)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor | None, list[Tensor]]:
        mean, h, blocks = self._closed(x)
        if self.structured is not None:
            mean, structured = self.structured(x)
            blocks = [*blocks, *structured]
        if self.generic is not None:
            blocks = [*blocks, _scanned(self.generic, x, self.mixed.cotangents(mean))]
        return mean, h, blocks

    def _closed(self, x: Tensor) -> tuple[Tensor, Tensor | None, list[Tensor]]:
        if self.head is not None:
            found: tuple[Tensor, Tensor, list[Tensor]] = self.head(x)
            return found
        return (x if self.plain is None else self.plain(x)), None, []


def _scanned(generic: nn.Module, x: Tensor, cotangents: Tensor) -> Tensor:
    def step(carry: Tensor, example: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        return carry.clone(), generic(*example)

    stacked: Tensor = scan(step, torch.zeros(1, device=x.device), (x, cotangents))[1]
    return stacked


class JacobianGraph(nn.Module):
    """x (B, *shape) -> mean (B, K) and jacobian (B, M, S), in the order of the indices."""

    def __init__(self, jacobian: SubnetworkJacobian, rows: Tensor, mixed: Mixed) -> None:
        super().__init__()
        self.parts, self.in_head, self.mixed = JacobianParts(jacobian, rows, mixed), jacobian.plan.in_head, mixed
        names, ranks = [item.parameter.name for item in self.in_head], jacobian.ranks()
        places = torch.cat([ranks[name] for name in (*jacobian.plan.outside_head, *names)])
        self.order: Tensor | None
        self.register_buffer("order", None if bool((places.diff() > 0).all()) else torch.argsort(places))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        mean, h, blocks = self.parts(x)
        if h is not None:
            blocks = [*blocks, *(item.block(h, self.mixed) for item in self.in_head)]
        jacobian = joined(blocks)
        return mean, jacobian if self.order is None else jacobian[:, :, self.order]


def joined(blocks: list[Tensor]) -> Tensor:
    """(B, K, n) side by side."""
    return torch.cat(blocks, dim=2) if len(blocks) > 1 else blocks[0]


class WholeVarianceGraph(nn.Module):
    """x (B, *shape) -> mean (B, K) and variance (B, K) from the Jacobian, by the whole factor."""

    def __init__(self, jacobian: SubnetworkJacobian, rows: Tensor, outputs: int, factor: WholeFactor) -> None:
        super().__init__()
        self.derivatives = JacobianGraph(jacobian, rows, EveryOutput(outputs))
        self.factor = factor.float().to(rows.device)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        mean, derivatives = self.derivatives(x)
        return mean, self.factor.variance(derivatives)


class StructuredVarianceGraph(nn.Module):
    """x (B, *shape) -> mean (B, K) and variance (B, K) from the parts of the Jacobian."""

    def __init__(self, jacobian: SubnetworkJacobian, rows: Tensor, outputs: int, factor: StructuredFactor) -> None:
        super().__init__()
        self.parts = JacobianParts(jacobian, rows, EveryOutput(outputs))
        self.factor = factor.float().to(rows.device)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        mean, h, blocks = self.parts(x)
        return mean, self.factor.variance(joined(blocks) if blocks else None, h)
