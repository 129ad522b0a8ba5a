"""One ONNX graph: inputs -> "mean" (B, K) and "jacobian" (B, K, S), the batch dimension dynamic.

The structured part runs a forward graph on B rows and a backward graph on B * K rows, one output each, so that its size
does not grow with K (`offline.export.split_graph`). Both are traced by `make_fx` with symbolic shapes, because
`torch.export` cannot see through a backward pass; parameters of the generic route become an ONNX Scan over the
examples.
"""

import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import onnx
import torch
from onnxscript import ir, optimizer
from torch import Tensor, nn
from torch._higher_order_ops.scan import scan
from torch.func import functionalize
from torch.nn.attention import SDPBackend, sdpa_kernel

from offline.export.errors import ExportError, export_error, first_cause, operator_of
from offline.export.failing_layer import failing_layer
from offline.export.split_graph import repeated, split, traced
from offline.jacobian.jacobian import (
    Chosen,
    JacobianPlan,
    ProbeCall,
    SubnetworkJacobian,
    example_jacobian,
    probed_forward,
    structured_block,
)
from offline.network.model_copy import check_output

# The exporter names inner values after operators ("mean" for a mean), so the public names are given afterwards.
NAMES = {"probity_inputs": "inputs", "probity_mean": "mean", "probity_jacobian": "jacobian"}
# How many examples to trace with: sizes that are equal while tracing are taken for the same symbol, so it must be none
# of the input's other sizes (nor 1, to which shapes would be specialised).
TRACE_ROWS = (11, 13, 17, 19, 23, 29, 31, 37)
PROTOBUF_LIMIT = 2**31


def export_onnx(jacobian: SubnetworkJacobian, example: Tensor, outputs: int) -> tuple[bytes, int]:
    """The serialised ONNX model and its opset. `example` (1, *input_shape); raises `ExportError`."""
    count = next(number for number in TRACE_ROWS if number not in example.shape[1:])
    rows = example[:1].expand(count, *example.shape[1:]).contiguous()
    try:
        with _quiet(), _plain_kernels():
            model = _convert(_trace(jacobian, rows, outputs))
    except Exception as error:  # tracing and conversion raise a wide family of errors
        raise _explained(error, jacobian, rows) from error
    _strip(model)
    if model.ByteSize() >= PROTOBUF_LIMIT:
        raise ExportError(f"the ONNX graph has {model.ByteSize()} bytes, expected less than {PROTOBUF_LIMIT}")
    opset = next(entry.version for entry in model.opset_import if entry.domain == "")
    return model.SerializeToString(deterministic=True), opset


def _convert(program: torch.export.ExportedProgram) -> onnx.ModelProto:
    names = list(NAMES)
    exported = torch.onnx.export(
        program, (), dynamo=True, input_names=names[:1], output_names=names[1:], verbose=False, optimize=False
    )
    assert exported is not None
    assert exported.model is not None
    fold(exported.model)
    return exported.model_proto


def fold(model: ir.Model) -> None:
    """Compute what depends on constants alone, and what is computed twice only once.

    The exporter's own optimiser does this too, and then compares every node with patterns to be fused: that takes time
    with the square of the nodes, and onnxruntime fuses what it loads anyhow.
    """
    optimizer.inline(model)
    optimizer.fold_constants(model)
    passes = ir.passes.common
    for tidy in (
        passes.RemoveUnusedNodesPass(),
        passes.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0),
        passes.LiftSubgraphInitializersToMainGraphPass(),
        passes.DeduplicateInitializersPass(),
        passes.CommonSubexpressionEliminationPass(),
        passes.OutputFixPass(),
        passes.NameFixPass(),
    ):
        tidy(model)


def _explained(error: BaseException, jacobian: SubnetworkJacobian, rows: Tensor) -> ExportError:
    """The same error with the layer at fault, found by exporting one layer after the other."""
    cause = first_cause(error)

    def same(other: BaseException) -> bool:
        other_cause = first_cause(other)
        return operator_of(other_cause) == operator_of(cause) and type(other_cause) is type(cause)

    with _quiet(), _plain_kernels():
        layer = failing_layer(jacobian.model, rows, _attempt, same)
    return export_error(cause, layer, _touched(jacobian.plan))


def _attempt(function: Callable[..., tuple[Tensor, ...]], tensors: list[Tensor]) -> BaseException | None:
    """Why this function cannot be exported for any number of examples, None where it can."""
    batch = tensors[0].shape[0]
    dynamic = tuple({0: torch.export.Dim.DYNAMIC} if t.dim() and t.shape[0] == batch else None for t in tensors)
    try:
        graph = traced(function, *tensors, symbolic=True)
        program = torch.export.export(graph, tuple(tensors), dynamic_shapes=dynamic)
        torch.onnx.export(program, (), dynamo=True, verbose=False, optimize=False)
    except Exception as error:  # as in `export_onnx`
        return error
    return None


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
