"""A network from an ONNX file: everything before its last linear layer in onnxruntime, and that layer in torch.

So the posterior is over the last layer and the added weights, whatever operators come before. While the network is
exported, one operator stands for them, and the file's own nodes take its place in the bundle's graph.
"""

from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from onnxscript import ir, optimizer
from torch import Tensor, library, nn

from probity.offline.network.unsupported import UnsupportedModelError, one_line
from probity.offline.runtime.arrays import Array, to_numpy
from probity.offline.runtime.quiet import quiet_exporter
from probity.service.inference.onnx_runtime import onnxruntime

DOMAIN, FEATURES = "probity", "probity_features"
# Of the end of a classifier: the outputs before it are the logits.
LINKS = frozenset({"Softmax", "LogSoftmax", "Sigmoid"})
PASSING = frozenset({"Identity", "Cast"})
TYPES = {
    onnx.TensorProto.FLOAT: "float",
    onnx.TensorProto.INT64: "int64",
    onnx.TensorProto.INT32: "int32",
    onnx.TensorProto.BOOL: "bool",
}
IR_VERSION = 10  # of files; the newest that onnx writes is newer than onnxruntime reads
ONNX_OPSET = 20  # what torch's exporter writes


class OnnxBody(nn.Module):
    """Inputs (B, ...) each -> features (B, F), by onnxruntime, in float32; no derivative passes through it.

    model: with the features as its one output; names: of its inputs, in order; width: F.
    """

    def __init__(self, model: onnx.ModelProto, names: Sequence[str], width: int) -> None:
        super().__init__()
        self.model, self.names, self.width = model, tuple(names), width
        content = model.SerializeToString(deterministic=True)
        self.name = f"body_{sha256(content).hexdigest()[:16]}"
        self.register_buffer("digest", torch.tensor(list(sha256(content).digest()), dtype=torch.uint8))
        self.kinds = {value.name: value.type.tensor_type.elem_type for value in model.graph.input}
        self._register(content)

    def _register(self, content: bytes) -> None:
        """As an operator of torch, which its tracer takes as it is: torch keeps these, one for each content."""
        if hasattr(getattr(torch.ops, DOMAIN), self.name):
            return
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4  # what fails is raised
        options.intra_op_num_threads = torch.get_num_threads()
        session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        names, kinds, width = self.names, self.kinds, self.width

        def run(inputs: Sequence[Tensor]) -> Tensor:
            given = {
                name: to_numpy(x).astype(onnx.helper.tensor_dtype_to_np_dtype(kinds[name]))
                for name, x in zip(names, inputs, strict=True)
            }
            try:
                (found,) = session.run(None, given)
            except Exception as error:  # of onnxruntime's own kinds; a network of torch raises this one
                raise RuntimeError(one_line(error)) from error
            return torch.from_numpy(np.ascontiguousarray(found, np.float32)).to(inputs[0].device)

        operator = library.custom_op(
            f"{DOMAIN}::{self.name}", run, mutates_args=(), schema="(Tensor[] inputs) -> Tensor"
        )
        operator.register_fake(
            lambda inputs: torch.empty((inputs[0].shape[0], width), dtype=torch.float32, device=inputs[0].device)
        )

    @property
    def operator(self) -> Any:
        """torch's, that stands for all of it."""
        return getattr(getattr(torch.ops, DOMAIN), self.name)

    def inputs(self) -> dict[str, str]:
        """The type of each input, by name, as ONNX writes it."""
        return {name: f"tensor({TYPES[self.kinds[name]]})" for name in self.names}

    def __deepcopy__(self, memo: dict[int, Any]) -> "OnnxBody":
        return OnnxBody(self.model, self.names, self.width)

    def forward(self, *inputs: Tensor, **named: Tensor) -> Tensor:
        """In order, or by name."""
        given = [*inputs, *(named[name] for name in self.names[len(inputs) :])]
        floats = [x.dtype for x in given if x.is_floating_point()]
        found: Tensor = self.operator([x.float() if x.is_floating_point() else x for x in given])
        return found.to(floats[0] if floats else torch.get_default_dtype())

    def function(self, opset: int) -> ir.Function:
        """The same in this version of ONNX, to be put in the place of the operator."""
        graph = ir.serde.deserialize_model(onnx.version_converter.convert_version(self.model, opset)).graph
        for name, value in list(graph.initializers.items()):
            constant = ir.node("Constant", [], attributes={"value": value.const_value}, outputs=[ir.Value(name=name)])
            graph.insert_before(graph[0], constant)
            value.replace_all_uses_with(constant.outputs[0])
        graph.initializers.clear()
        return ir.Function(DOMAIN, self.name, graph=graph, attributes=())


class OnnxNetwork(nn.Module):
    """The body's features through a linear layer."""

    def __init__(self, body: OnnxBody, head: nn.Linear) -> None:
        super().__init__()
        self.body, self.head = body, head

    @property
    def input_names(self) -> tuple[str, ...]:
        """Of the file's inputs."""
        return tuple(self.body.names)

    def forward(self, *inputs: Tensor, **named: Tensor) -> Tensor:
        """Outputs (B, K): logits, or the means of a regression."""
        outputs: Tensor = self.head(self.body(*inputs, **named))
        return outputs


def load_onnx(source: str | Path | onnx.ModelProto) -> OnnxNetwork:
    """The network of an ONNX file. A softmax, its logarithm or a sigmoid at the end is left out.

    Raises `UnsupportedModelError` for a file that is none, or whose outputs do not come from a linear layer.
    """
    where = "the ONNX model" if isinstance(source, onnx.ModelProto) else str(source)
    model = _read(source, where)
    graph = model.graph
    makers = {name: node for node in graph.node for name in node.output}
    constants = {tensor.name: tensor for tensor in graph.initializer}
    output = _output_of(graph, where)
    maker = _through(makers.get(output), makers)
    if maker is not None and maker.op_type in LINKS:
        maker = _through(makers.get(maker.input[0]), makers)
    features, weight, bias = _linear(maker, makers, constants, where)
    head = nn.Linear(weight.shape[1], weight.shape[0])
    with torch.no_grad():
        head.weight.copy_(torch.from_numpy(weight.copy()))
        head.bias.copy_(torch.from_numpy(bias.copy()))
    names = [value.name for value in graph.input]
    return OnnxNetwork(OnnxBody(_cut(model, features, weight.shape[1]), names, weight.shape[1]), head).eval()


def _read(source: str | Path | onnx.ModelProto, where: str) -> onnx.ModelProto:
    """In the exporter's version of ONNX, constants folded; its first axis for any number of examples."""
    try:
        model = source if isinstance(source, onnx.ModelProto) else onnx.load(str(source))
        onnx.checker.check_model(model)
    except Exception as error:  # of protobuf, of onnx, or of the file system
        raise UnsupportedModelError(f"model: {where}: found {one_line(error)}, expected a readable ONNX file") from None
    try:
        model = onnx.version_converter.convert_version(model, ONNX_OPSET)
    except Exception as error:  # the converter knows not every operator of every version
        raise UnsupportedModelError(
            f"model: {where}: found {one_line(error)}, expected operators that can be brought to version {ONNX_OPSET} "
            "of ONNX; export the network again, with this opset"
        ) from None
    known = {tensor.name for tensor in model.graph.initializer}
    kept = [value for value in model.graph.input if value.name not in known]
    del model.graph.input[:], model.graph.value_info[:]
    model.graph.input.extend(kept)
    for value in (*model.graph.input, *model.graph.output):
        axes = value.type.tensor_type.shape.dim
        if axes:
            axes[0].dim_param = "batch"
    representation = ir.serde.deserialize_model(model)
    with quiet_exporter():
        optimizer.inline(representation)
        optimizer.fold_constants(representation)
    ir.passes.common.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(representation)
    ir.passes.common.RemoveUnusedNodesPass()(representation)
    representation.ir_version = IR_VERSION
    return ir.serde.serialize_model(representation)


def _output_of(graph: onnx.GraphProto, where: str) -> str:
    """The one called "logits", or the first of numbers."""
    floats = [value.name for value in graph.output if value.type.tensor_type.elem_type == onnx.TensorProto.FLOAT]
    if not floats:
        found = ", ".join(value.name for value in graph.output)
        raise UnsupportedModelError(f"model: {where}: found the outputs {found}, expected one of float32 numbers")
    return "logits" if "logits" in floats else floats[0]


def _through(node: onnx.NodeProto | None, makers: dict[str, onnx.NodeProto]) -> onnx.NodeProto | None:
    while node is not None and node.op_type in PASSING:
        node = makers.get(node.input[0])
    return node


def _linear(
    node: onnx.NodeProto | None,
    makers: dict[str, onnx.NodeProto],
    constants: dict[str, onnx.TensorProto],
    where: str,
) -> tuple[str, Array, Array]:
    """The name of the features, and weight (K, F) and bias (K,) of the last layer."""
    if node is not None and node.op_type == "Gemm" and node.input[1] in constants:
        options = {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute}
        if not options.get("transA"):
            weight = numpy_helper.to_array(constants[node.input[1]]) * options.get("alpha", 1.0)
            weight = weight if options.get("transB") else weight.T
            bias = np.zeros(len(weight))
            if len(node.input) > 2 and node.input[2] in constants:
                bias = bias + options.get("beta", 1.0) * numpy_helper.to_array(constants[node.input[2]]).reshape(-1)
            return node.input[0], weight.astype(np.float32), bias.astype(np.float32)
    added: Array | None = None
    if node is not None and node.op_type == "Add":
        for one, other in (node.input, list(node.input)[::-1]):
            product = makers.get(one)
            if other in constants and product is not None and product.op_type == "MatMul":
                added, node = numpy_helper.to_array(constants[other]).reshape(-1), product
                break
    if node is not None and node.op_type == "MatMul" and node.input[1] in constants:
        weight = numpy_helper.to_array(constants[node.input[1]]).T
        bias = np.zeros(len(weight)) if added is None else np.broadcast_to(added, (len(weight),))
        return node.input[0], weight.astype(np.float32), bias.astype(np.float32)
    raise UnsupportedModelError(
        f"model: {where}: found outputs of the operator {node.op_type if node is not None else 'none'}, expected those "
        "of a linear layer (Gemm, or MatMul and Add, of constant weights), with or without a softmax or sigmoid behind"
    )


def _cut(model: onnx.ModelProto, features: str, width: int) -> onnx.ModelProto:
    """The part up to the features, which are an output of their own: of a linear model they are an input."""
    body = onnx.ModelProto()
    body.CopyFrom(model)
    body.graph.node.append(onnx.helper.make_node("Identity", [features], [FEATURES]))
    del body.graph.output[:]
    body.graph.output.append(onnx.helper.make_tensor_value_info(FEATURES, onnx.TensorProto.FLOAT, ["batch", width]))
    representation = ir.serde.deserialize_model(body)
    ir.passes.common.RemoveUnusedNodesPass()(representation)
    found: onnx.ModelProto = ir.serde.serialize_model(representation)
    return found
