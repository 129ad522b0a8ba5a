"""One ONNX graph: inputs -> "mean" (B, K) and "variance" (B, K); any batch size.

With added weights also their part of each variance, "added_variance" (B,), and "feature_scores" (B, 1), the distance;
where the noise of a regression depends on the input, "noise_scale" (B, K).
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import onnx
import torch
from onnxscript import ir, optimizer
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from demur.service.maths.posterior_factor import CholeskyPosterior

from ..features.added_weights import AddedWeights
from ..jacobian.jacobian import SubnetworkJacobian
from ..jacobian.mixtures import Mixed
from ..jacobian.routes import JacobianPlan
from ..laplace.served_factor import StructuredFactor, WholeFactor, least_size, served_factor
from ..runtime.quiet import quiet_exporter
from .errors import ExportError, export_error, first_cause, operator_of
from .failing_layer import failing_layer
from .jacobian_graph import (
    AddedWeightsGraph,
    JacobianGraph,
    StructuredVarianceGraph,
    WholeVarianceGraph,
    WithoutSubnetwork,
)
from .onnx_bodies import put_back, translations
from .split_graph import traced

# The exporter names inner values after operators ("mean" for a mean), so the public names are given afterwards.
NAMES = {"demur_inputs": "inputs", "demur_mean": "mean"}
RESULTS = {
    "demur_jacobian": "jacobian",
    "demur_variance": "variance",
    "demur_added_variance": "added_variance",
    "demur_feature_scores": "feature_scores",
    "demur_noise_scale": "noise_scale",
}
# How many examples to trace with: sizes that are equal while tracing are taken for the same symbol, so it must be none
# of the input's other sizes (nor 1, to which shapes would be specialised).
TRACE_ROWS = (11, 13, 17, 19, 23, 29, 31, 37)
PROTOBUF_LIMIT = 2**31
FLOAT32 = 4
LARGEST_FACTOR = 2**30  # bytes of the posterior's factor, so that the graph keeps to the limit


def check_size(jacobian: SubnetworkJacobian, outputs: int) -> None:
    """`ExportError` where the factor of all S weights is too large for the graph."""
    if (size := FLOAT32 * least_size(jacobian, outputs)) > LARGEST_FACTOR:
        raise ExportError(
            f"subnetwork_size: found a posterior over {jacobian.size} weights, whose factor takes {size} bytes, "
            f"expected at most {LARGEST_FACTOR}, since it becomes a part of the graph; give a smaller subnetwork_size"
        )


def graph_factor(
    jacobian: SubnetworkJacobian, posterior: CholeskyPosterior, outputs: int
) -> StructuredFactor | WholeFactor:
    """What becomes a part of the graph, in float64, once `check_size` has passed."""
    return served_factor(jacobian, posterior, outputs, LARGEST_FACTOR // FLOAT32)


def export_jacobian(jacobian: SubnetworkJacobian, example: Tensor, mixed: Mixed) -> tuple[bytes, int]:
    """The ONNX model with mean and Jacobian, serialised, and its opset: it is not served, but shows whether a network
    can be exported, and whether its derivatives are right.

    `example` (1, *input_shape); mixed: of which outputs or mixtures. Raises `ExportError`.
    """
    return _export(jacobian, example, lambda rows: JacobianGraph(jacobian, rows, mixed), ["demur_jacobian"])


def export_variance(
    jacobian: SubnetworkJacobian,
    example: Tensor,
    outputs: int,
    factor: StructuredFactor | WholeFactor,
    added: AddedWeights | None = None,
    share: Tensor | None = None,
) -> tuple[bytes, int]:
    """The ONNX model with mean, variance and, if there are any, added weights, serialised, and its opset; `factor` as
    `graph_factor` gives it.

    `example` (1, *input_shape); share: as for `AddedWeightsGraph`. Raises `ExportError`.
    """

    def graph(rows: Tensor) -> nn.Module:
        parts: nn.Module
        if added is not None and not added.gate.subnetwork:
            parts = WithoutSubnetwork(jacobian.model, rows)
        elif isinstance(factor, StructuredFactor):
            parts = StructuredVarianceGraph(jacobian, rows, outputs, factor)
        else:
            parts = WholeVarianceGraph(jacobian, rows, outputs, factor)
        return parts if added is None else AddedWeightsGraph(parts, jacobian.model, added, rows, share)

    extra = [] if added is None else ["demur_added_variance", "demur_feature_scores"]
    extra += [] if added is None or added.noise is None else ["demur_noise_scale"]
    return _export(jacobian, example, graph, ["demur_variance", *extra])


def _export(
    jacobian: SubnetworkJacobian, example: Tensor, graph: Callable[[Tensor], nn.Module], results: list[str]
) -> tuple[bytes, int]:
    count = next(number for number in TRACE_ROWS if number not in example.shape[1:])
    rows = example[:1].expand(count, *example.shape[1:]).contiguous()
    try:
        with quiet_exporter(), _plain_kernels():
            dynamic = ({0: torch.export.Dim.DYNAMIC},)
            program = torch.export.export(graph(rows), (rows,), dynamic_shapes=dynamic)
            model = _convert(program, results, jacobian.model)
    except Exception as error:  # tracing and conversion raise a wide family of errors
        raise _explained(error, jacobian, rows) from error
    _strip(model)
    if model.ByteSize() >= PROTOBUF_LIMIT:
        raise ExportError(f"the ONNX graph has {model.ByteSize()} bytes, expected less than {PROTOBUF_LIMIT}")
    opset = next(entry.version for entry in model.opset_import if entry.domain == "")
    return model.SerializeToString(deterministic=True), opset


def _convert(program: torch.export.ExportedProgram, results: list[str], network: nn.Module) -> onnx.ModelProto:
    inputs, mean = NAMES
    exported = torch.onnx.export(
        program,
        (),
        dynamo=True,
        input_names=[inputs],
        output_names=[mean, *results],
        verbose=False,
        optimize=False,
        custom_translation_table=translations(network),
    )
    assert exported is not None
    assert exported.model is not None
    put_back(exported.model, network)
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
        passes.DeduplicateInitializersPass(size_limit=PROTOBUF_LIMIT),
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

    with quiet_exporter(), _plain_kernels():
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
    except Exception as error:  # as in `export_jacobian`
        return error
    return None


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
    model.graph.name = "demur"
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "batch"


def _rename(graph: onnx.GraphProto) -> None:
    """Give the public names to the graph's inputs and outputs, and other names to inner values that had them."""
    public = NAMES | RESULTS
    mapping = public | {name: f"{name}_inner" for name in public.values()}
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
