"""One ONNX graph: inputs -> "mean" (B, K) and "jacobian" (B, K, S), the batch dimension dynamic.

The structured part runs a forward graph on B rows and a backward graph on B * K rows, one output each, so that its size
does not grow with K (`offline.split_graph`). Both are traced by `make_fx` with symbolic shapes, because `torch.export`
cannot see through a backward pass; parameters of the generic route become an ONNX Scan over the examples.
"""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import onnx
import torch
from torch import Tensor, nn
from torch._higher_order_ops.scan import scan
from torch.func import functionalize
from torch.nn.attention import SDPBackend, sdpa_kernel

from offline.jacobians import (
    Chosen,
    JacobianPlan,
    ProbeCall,
    SubnetworkJacobian,
    check_output,
    example_jacobian,
    probed_forward,
    structured_block,
)
from offline.split_graph import repeated, split, traced

# The exporter names inner values after operators ("mean" for a mean), so the public names are given afterwards.
NAMES = {"probity_inputs": "inputs", "probity_mean": "mean", "probity_jacobian": "jacobian"}
# How many examples to trace with: sizes that are equal while tracing are taken for the same symbol, so it must be none
# of the input's other sizes (nor 1, to which shapes would be specialised).
TRACE_ROWS = (11, 13, 17, 19, 23, 29, 31, 37)
PROTOBUF_LIMIT = 2**31
# The exporter's optimiser takes more than linear time: hours for a recurrent network unrolled over 50 steps. Larger
# graphs are left to onnxruntime, which optimises what it loads anyhow.
OPTIMISED_NODES = 5_000


class ExportError(RuntimeError):
    """The model, or its backward pass, cannot be expressed in ONNX."""


def export_onnx(jacobian: SubnetworkJacobian, example: Tensor, outputs: int) -> tuple[bytes, int]:
    """The serialised ONNX model and its opset. `example` (1, *input_shape); raises `ExportError`."""
    names = list(NAMES)
    count = next(number for number in TRACE_ROWS if number not in example.shape[1:])
    rows = example[:1].expand(count, *example.shape[1:]).contiguous()
    try:
        with _quiet(), _plain_kernels():
            program = _trace(jacobian, rows, outputs)
            exported = torch.onnx.export(
                program, (), dynamo=True, input_names=names[:1], output_names=names[1:], verbose=False, optimize=False
            )
            assert exported is not None
            if _nodes(exported.model_proto.graph) <= OPTIMISED_NODES:
                exported.optimize()
        model = exported.model_proto
    except Exception as error:  # tracing and conversion raise a wide family of errors
        raise ExportError(
            f"the model could not be exported to ONNX: {_first_cause(error)} (remedy: choose weights of Linear and "
            f"Conv2d layers only, or replace the layer named above; touched parameters: {_touched(jacobian.plan)})"
        ) from error
    _strip(model)
    if model.ByteSize() >= PROTOBUF_LIMIT:
        raise ExportError(f"the ONNX graph has {model.ByteSize()} bytes, expected less than {PROTOBUF_LIMIT}")
    opset = next(entry.version for entry in model.opset_import if entry.domain == "")
    return model.SerializeToString(deterministic=True), opset


def _nodes(graph: onnx.GraphProto) -> int:
    """Nodes of a graph and of those inside it."""
    inner = (attribute.g for node in graph.node for attribute in node.attribute if attribute.HasField("g"))
    return len(graph.node) + sum(map(_nodes, inner))


def _trace(jacobian: SubnetworkJacobian, rows: Tensor, outputs: int) -> torch.export.ExportedProgram:
    plan, model = jacobian.plan, jacobian.model
    structured = StructuredGraph(jacobian, rows, outputs) if plan.structured else None
    generic = None
    if plan.generic:
        generic = traced(functionalize(example_jacobian(model, plan.generic)), rows[0], symbolic=False)
    plain = None if structured else traced(lambda x: check_output(model(x), x.shape[0]), rows, symbolic=True)
    graph = Graph(structured, generic, plain, _final_order(jacobian))
    dynamic = ({0: torch.export.Dim.DYNAMIC},)
    return torch.export.export(graph, (rows,), dynamic_shapes=dynamic)


class StructuredGraph(nn.Module):
    """x (B, *shape) -> mean (B, K) and the structured entries (B, K, n): forward on B rows, backward on B * K."""

    def __init__(self, jacobian: SubnetworkJacobian, rows: Tensor, outputs: int) -> None:
        super().__init__()
        self.plan, self.outputs, self.model = jacobian.plan, outputs, jacobian.model
        self.paths: list[str] = []
        ones = torch.ones(len(rows), outputs, device=rows.device)
        graph = traced(lambda x, c: self._forward_and_backward(x, c), rows, ones, symbolic=True)
        parts = split(graph, 1 + len(self.paths))
        self.first, self.second, self.kept, self.layouts = parts.forward, parts.backward, parts.kept, parts.layouts

    def _forward_and_backward(self, x: Tensor, cotangents: Tensor) -> tuple[Tensor, ...]:
        out, calls = probed_forward(self.model, self.plan, x)
        self.paths = [call.path for call in calls]
        probes = [call.probe for call in calls]
        gradients = torch.autograd.grad(out, probes, cotangents, allow_unused=True, materialize_grads=True)
        return (out.detach(), *(call.input for call in calls), *gradients)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        batch, k = x.shape[0], self.outputs
        mean, *rest = self.first(x)
        inputs, saved = rest[: self.kept - 1], rest[self.kept - 1 :]
        cotangents = torch.eye(k, device=x.device).repeat(batch, 1)
        gradients = self.second(cotangents, *(repeated(s, at, k) for s, at in zip(saved, self.layouts, strict=True)))
        calls = [ProbeCall(path, a, a) for path, a in zip(self.paths, inputs, strict=True)]
        grouped = [gradient.reshape(batch, k, *gradient.shape[1:]) for gradient in gradients]
        blocks = [structured_block(self.model, item, calls, grouped) for item in self.plan.structured]
        return mean, torch.cat(blocks, dim=2)


class Graph(nn.Module):
    """Structured entries, then generic ones by a scan over the examples, then the order of the indices."""

    def __init__(
        self, structured: nn.Module | None, generic: nn.Module | None, plain: nn.Module | None, order: Tensor | None
    ) -> None:
        super().__init__()
        self.structured, self.generic, self.plain = structured, generic, plain
        self.order: Tensor | None
        self.register_buffer("order", order)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        mean, parts = self._structured(x)
        if self.generic is not None:
            generic = self.generic

            def step(carry: Tensor, example: Tensor) -> tuple[Tensor, Tensor]:
                return carry.clone(), generic(example)

            parts = [*parts, scan(step, torch.zeros(1, device=x.device), x)[1]]
        jacobian = torch.cat(parts, dim=2) if len(parts) > 1 else parts[0]
        return mean, jacobian if self.order is None else jacobian[:, :, self.order]

    def _structured(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        if self.structured is None:
            assert self.plain is not None
            return self.plain(x), []
        mean, block = self.structured(x)
        return mean, [block]


def _final_order(jacobian: SubnetworkJacobian) -> Tensor | None:
    """Where each index stands after concatenating structured and generic blocks; None when in order already."""
    plan = jacobian.plan
    if not plan.structured or not plan.generic:
        return None
    generic = {chosen.parameter.name for chosen in plan.generic}
    located = [Chosen(parameter, positions) for parameter, positions in jacobian.layout.locate(jacobian.indices)]
    joined = [c for c in located if c.parameter.name not in generic] + list(plan.generic)
    return torch.argsort(torch.cat([c.positions + c.parameter.offset for c in joined]))


def _strip(model: onnx.ModelProto) -> None:
    """Remove traces of the machine it was made on (file names, stack traces), and name the batch dimension."""
    model.producer_version = ""
    model.doc_string = ""
    del model.metadata_props[:]
    for graph in _graphs(model.graph):
        graph.doc_string = ""
        del graph.metadata_props[:], graph.value_info[:]
        for value in (*graph.node, *graph.input, *graph.output, *graph.initializer):
            value.doc_string = ""
            del value.metadata_props[:]
        _rename(graph)
    model.graph.name = "probity"
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "batch"


def _rename(graph: onnx.GraphProto) -> None:
    """Give the public names to the graph's inputs and outputs, and other names to inner values that had them."""
    mapping = NAMES | {name: f"{name}_inner" for name in NAMES.values()}
    for node in graph.node:
        node.input[:] = [mapping.get(name, name) for name in node.input]
        node.output[:] = [mapping.get(name, name) for name in node.output]
    for value in (*graph.input, *graph.output, *graph.initializer):
        value.name = mapping.get(value.name, value.name)


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """The graph and every graph nested in it (loop bodies)."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _graphs(attribute.g)


def _first_cause(error: BaseException) -> str:
    """The innermost error: the exporter wraps the operator at fault in pages of advice."""
    while (inner := error.__cause__ or error.__context__) is not None:
        error = inner
    return " ".join(str(error).split())[:500]


def _touched(plan: JacobianPlan) -> str:
    names = [item.parameter.name for item in plan.structured] + [f"{c.parameter.name} (generic)" for c in plan.generic]
    return ", ".join(names)[:500]


@contextmanager
def _plain_kernels() -> Iterator[None]:
    """Trace attention and recurrent layers as ordinary operators, not as fused kernels that ONNX does not know."""
    with sdpa_kernel(SDPBackend.MATH), torch.backends.mkldnn.flags(enabled=False):
        yield


@contextmanager
def _quiet() -> Iterator[None]:
    """The exporter reports every optional operator it skips; none of that concerns the user."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
