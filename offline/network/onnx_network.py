"""A network from an ONNX file: everything before its last linear layer in onnxruntime, and that layer in torch.

So the posterior is over the last layer and the added weights, whatever operators come before. While the network is
exported, one operator stands for them, and the file's own nodes take its place in the bundle's graph.
"""

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.inliner
import torch
from onnxscript import ir, optimizer
from torch import Tensor, library, nn

from demur.service.format.manifest import Task
from demur.service.inference.onnx_runtime import onnxruntime

from ..runtime.arrays import to_numpy
from ..runtime.quiet import quiet_exporter
from .onnx_batch import freed
from .onnx_end import agrees, before_link, layer_behind, probabilities_in
from .onnx_tail import LastLayer, Made, Network, last_layer
from .unsupported import UnsupportedModelError, one_line

DOMAIN, FEATURES = "demur", "demur_features"
TYPES = {
    onnx.TensorProto.FLOAT: "float",
    onnx.TensorProto.INT64: "int64",
    onnx.TensorProto.BOOL: "bool",
}
TORCH = {onnx.TensorProto.FLOAT: torch.float32, onnx.TensorProto.INT64: torch.int64, onnx.TensorProto.BOOL: torch.bool}
# By the type of a file's input: what it takes in the bundle, and is cast from there.
_KIND = onnx.TensorProto
TAKEN_AS = {
    **dict.fromkeys((_KIND.DOUBLE, _KIND.FLOAT16, _KIND.BFLOAT16, _KIND.UINT8), _KIND.FLOAT),
    **dict.fromkeys((_KIND.INT8, _KIND.INT16, _KIND.INT32, _KIND.UINT16, _KIND.UINT32, _KIND.UINT64), _KIND.INT64),
}
OWN, BOUNDED = "own_type", "bounded"
MULTIPLYING = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul", "LSTM", "GRU", "RNN"})
FLOATS = (onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE, onnx.TensorProto.FLOAT16)
IR_VERSION = 10  # of files; the newest that onnx writes is newer than onnxruntime reads
ONNX_OPSET = 20  # what torch's exporter writes
EXPORT_AGAIN = (
    "the file was exported for {} examples at a time; export it again for any number, with torch "
    "dynamic_shapes=({{0: torch.export.Dim('batch')}},), an entry an input: "
)


class OnnxBody(nn.Module):
    """Inputs (B, ...) each -> features (B, F), by onnxruntime, in float32; no derivative passes through it.

    model: with the features as its one output; names: of its inputs, in order; width: F; batch: the number of examples
    that the file was exported for, None for any.
    """

    def __init__(self, model: onnx.ModelProto, names: Sequence[str], width: int, batch: int | None = None) -> None:
        super().__init__()
        self.model, self.names, self.width, self.batch = model, tuple(names), width, batch
        content = model.SerializeToString(deterministic=True)
        self.name = f"body_{sha256(content).hexdigest()[:16]}"
        self.register_buffer("digest", torch.tensor(list(sha256(content).digest()), dtype=torch.uint8))
        self.kinds = {value.name: value.type.tensor_type.elem_type for value in model.graph.input}
        casts = {node.output[0]: node.attribute[0].i for node in model.graph.node if node.op_type == "Cast"}
        self.bounds = {name: _bounds(casts.get(f"{name}_{OWN}", kind)) for name, kind in self.kinds.items()}
        self._register(content)

    def _register(self, content: bytes) -> None:
        """As an operator of torch, which its tracer takes as it is: torch keeps these, one for each content."""
        if hasattr(getattr(torch.ops, DOMAIN), self.name):
            return
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4  # what fails is raised
        options.intra_op_num_threads = torch.get_num_threads()
        try:
            session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # of onnxruntime's own kinds
            raise UnsupportedModelError(f"model: found that onnxruntime cannot load it: {one_line(error)}") from None
        names, kinds, width = self.names, self.kinds, self.width
        hint = "" if self.batch is None else EXPORT_AGAIN.format(self.batch)

        def run(inputs: Sequence[Tensor]) -> Tensor:
            given = {
                name: to_numpy(x).astype(onnx.helper.tensor_dtype_to_np_dtype(kinds[name]))
                for name, x in zip(names, inputs, strict=True)
            }
            try:
                (found,) = session.run(None, given)
            except Exception as error:  # of onnxruntime's own kinds; a network of torch raises this one
                raise RuntimeError(f"{hint}{one_line(error)}") from error
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

    def multiply_adds(self, shape: Sequence[int]) -> int:
        """Of its matrices and convolutions, for one example, as far as shapes are known; shape: of its first input."""
        sized = copy.deepcopy(self.model)
        for axis, size in zip(sized.graph.input[0].type.tensor_type.shape.dim[1:], shape, strict=False):
            axis.dim_value = size
        known = onnx.shape_inference.infer_shapes(sized, data_prop=True).graph
        shapes = {value.name: value.type.tensor_type.shape.dim for value in (*known.value_info, *known.output)}
        weights = {tensor.name: tensor for tensor in known.initializer if len(tensor.dims) > 1}
        found = 0
        for node in known.node:
            if (weight := next((weights[name] for name in node.input if name in weights), None)) is not None:
                numbers = math.prod(axis.dim_value or 1 for axis in shapes.get(node.output[0], ())[1:])
                produced = weight.dims[0] if node.op_type == "Conv" else weight.dims[-1]
                found += math.prod(weight.dims) * max(1, numbers // produced) * (node.op_type in MULTIPLYING)
        return found

    def inputs(self) -> dict[str, str]:
        """The type of each input, by name, as ONNX writes it."""
        return {name: f"tensor({TYPES[self.kinds[name]]})" for name in self.names}

    def __deepcopy__(self, memo: dict[int, Any]) -> "OnnxBody":
        return OnnxBody(self.model, self.names, self.width, self.batch)

    def forward(self, *inputs: Tensor, **named: Tensor) -> Tensor:
        """In order, or by name."""
        if len(inputs) + len(named) != len(self.names) or not set(named) <= set(self.names[len(inputs) :]):
            found = ", ".join(map(repr, named)) if named else f"{len(inputs)} without names"
            expected = f"{', '.join(map(repr, self.names))}, in a dict by these names or a tuple in this order"
            raise ValueError(f"found the inputs {found}, expected {expected}")
        given = [*inputs, *(named[name] for name in self.names[len(inputs) :])]
        floats = [x.dtype for x in given if x.is_floating_point()]
        own = [x.to(TORCH[self.kinds[name]]) for name, x in zip(self.names, given, strict=True)]
        features: Tensor = self.operator(own)
        return features.to(floats[0] if floats else torch.get_default_dtype())

    def function(self, opset: int) -> ir.Function:
        """The same in this version of ONNX, to be put in the place of the operator."""
        graph = ir.serde.deserialize_model(onnx.version_converter.convert_version(self.model, opset)).graph
        for name, value in list(graph.initializers.items()):
            constant = ir.node("Constant", [], attributes={"value": value.const_value}, outputs=[ir.Value(name=name)])
            graph.insert_before(graph[0], constant)
            value.replace_all_uses_with(constant.outputs[0])
        graph.initializers.clear()
        return ir.Function(DOMAIN, self.name, graph=graph, attributes=())


@dataclass(frozen=True)
class OnnxFile:
    """A file that was read: its graph, the number of examples that it was exported for, its output that is taken and
    the others that might be, and the names of classes that it has."""

    model: onnx.ModelProto
    batch: int | None
    output: str
    others: tuple[str, ...]
    class_names: tuple[str, ...]
    where: str

    def __deepcopy__(self, memo: dict[int, Any]) -> "OnnxFile":
        return self  # nobody changes it

    def network(self, links: bool = True, made: Made | None = None) -> "OnnxNetwork":
        """As `load_onnx` has it. made: what the outputs are that come from no linear layer (`layer_behind`)."""
        model, network = self.model, Network.of(self.model.graph, self.where)
        layer = last_layer(self.output, network, links)
        if layer is None or (layer.gives and not agrees(model, layer, self.where)):
            model = onnx.shape_inference.infer_shapes(model)
            layer = layer_behind(model, self.output, network, links, made)
        outputs, width = layer.weight.shape
        head = nn.Linear(width, outputs)
        with torch.no_grad():
            head.weight.copy_(torch.from_numpy(layer.weight.copy()))
            head.bias.copy_(torch.from_numpy(layer.bias.copy()))
        names = [value.name for value in model.graph.input]
        body = OnnxBody(_cut(model, layer.features, width), names, width, self.batch)
        return OnnxNetwork(body, head, self, layer).eval()


class OnnxNetwork(nn.Module):
    """The body's features through a linear layer. reads_outputs: the features are the outputs, and no more."""

    def __init__(self, body: OnnxBody, head: nn.Linear, file: OnnxFile, layer: LastLayer) -> None:
        super().__init__()
        self.body, self.head, self.file, self.layer = body, head, file, layer
        self.reads_outputs = layer.changes_nothing and layer.read is None

    def suited(self, task: Task, args: Sequence[Tensor], kwargs: Mapping[str, Tensor], labels: bool) -> "OnnxNetwork":
        """The same network for targets of this kind: of a regression nothing is left out; otherwise probabilities
        become logits, which the outputs for these examples tell. labels: an example may have several."""
        for name, x in [*zip(self.input_names, args, strict=False), *kwargs.items()]:
            if (bounds := self.body.bounds.get(name)) is None:
                continue
            numbers, (low, high) = x.double().flatten(), bounds
            if len(odd := numbers[(numbers != numbers.trunc()) | (numbers < low) | (numbers > high)]):
                ends = "" if low < -(2**62) else f" from {low} to {high}"
                raise ValueError(
                    f"inputs: found {float(odd[0]):g} in {name!r}, expected whole numbers{ends}, as the file takes"
                )
        if task == "regression":
            return self.file.network(links=False) if self.layer.left_out else self
        if self.layer.left_out or not self.layer.changes_nothing:
            return self
        with torch.no_grad():
            made = probabilities_in(to_numpy(self(*args, **kwargs)), labels or task == "multilabel")
        return self if made is None else self.file.network(made=made)

    @property
    def input_names(self) -> tuple[str, ...]:
        """Of the file's inputs."""
        return tuple(self.body.names)

    @property
    def input_length(self) -> int | None:
        """The one length of the rows (B, L) that all inputs are, of which the file takes no others; None: there is no
        such."""
        axes = [value.type.tensor_type.shape.dim for value in self.body.model.graph.input]
        sizes = {dims[1].dim_value if len(dims) == 2 else 0 for dims in axes}
        return sizes.pop() or None if len(sizes) == 1 else None

    def forward(self, *inputs: Tensor, **named: Tensor) -> Tensor:
        """Outputs (B, K): logits, or the means of a regression."""
        outputs: Tensor = self.head(self.body(*inputs, **named))
        return outputs


def load_onnx(source: str | Path | onnx.ModelProto) -> OnnxNetwork:
    """The network of an ONNX file. A softmax, its logarithm or a sigmoid at the end is left out; a scale and a shift go
    into the last layer. Where the outputs come from anything else, a layer that changes nothing is put behind
    (`demur.offline.network.onnx_end`).

    Raises `UnsupportedModelError` for a file that is none, or that cannot be run.
    """
    where = "the ONNX model" if isinstance(source, onnx.ModelProto) else str(source)
    model, batch, names = _read(source, where)
    output, *others = _outputs_of(model.graph, where)
    return OnnxFile(model, batch, output, tuple(others), names, where).network()


def _read(source: str | Path | onnx.ModelProto, where: str) -> tuple[onnx.ModelProto, int | None, tuple[str, ...]]:
    """In the exporter's version of ONNX, constants folded; its first axis for any number of examples. And the number of
    examples that it was exported for, None for any; and the names of classes."""
    try:
        model = copy.deepcopy(source) if isinstance(source, onnx.ModelProto) else onnx.load(str(source))
        onnx.checker.check_model(model)
    except Exception as error:  # of protobuf, of onnx, or of the file system
        raise UnsupportedModelError(f"model: {where}: found {one_line(error)}, expected a readable ONNX file") from None
    try:
        if not any(each.domain in ("", "ai.onnx") for each in model.opset_import):
            model.opset_import.append(onnx.helper.make_opsetid("", ONNX_OPSET))
        if model.functions:  # which the converter would lose
            model = onnx.inliner.inline_local_functions(model, convert_version=True)
        model = onnx.version_converter.convert_version(model, ONNX_OPSET)
    except Exception as error:  # the converter knows not every operator of every version
        raise UnsupportedModelError(
            f"model: {where}: found {one_line(error)}, expected operators that onnx.version_converter can bring to "
            f"version {ONNX_OPSET} of ONNX"
        ) from None
    if not model.graph.input:
        raise UnsupportedModelError(f"model: {where}: found no inputs, expected at least one")
    names = _class_names(model.graph)
    _without_maps(model.graph)
    known = {tensor.name for tensor in model.graph.initializer}
    kept = [value for value in model.graph.input if value.name not in known]
    del model.graph.input[:], model.graph.value_info[:]
    model.graph.input.extend(kept)
    _take_plain_types(model.graph, where)
    batch = _free_axes(model.graph)
    try:
        representation = ir.serde.deserialize_model(model)
    except ir.serde.SerdeError as error:
        raise UnsupportedModelError(
            f"model: {where}: found {one_line(error)}, expected inputs and outputs that are tensors"
        ) from None
    with quiet_exporter():
        optimizer.inline(representation)
        optimizer.fold_constants(representation)
    ir.passes.common.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(representation)
    ir.passes.common.RemoveUnusedNodesPass()(representation)
    representation.ir_version = IR_VERSION
    folded: onnx.ModelProto = ir.serde.serialize_model(representation)
    return (folded if batch is None else freed(folded, batch)), batch, names


def _take_plain_types(graph: onnx.GraphProto, where: str) -> None:
    """Inputs of another type than a network of torch has are cast to it behind inputs of float32 or int64; what is
    beyond the type becomes the nearest number that it has."""
    casts = []
    for value in graph.input:
        kind = value.type.tensor_type.elem_type
        if kind in TYPES:
            continue
        if kind not in TAKEN_AS:
            raise UnsupportedModelError(
                f"model: {where}: found the input {value.name!r} of type {onnx.TensorProto.DataType.Name(kind)}, "
                "expected numbers"
            )
        own = f"{value.name}_{OWN}"
        _rename(graph, value.name, own)
        inside, taken = value.name, TAKEN_AS[kind]
        if (bounds := _bounds(kind)) is not None:
            inside, ends = f"{value.name}_{BOUNDED}", [f"{value.name}_{end}" for end in ("least", "most")]
            dtype = onnx.helper.tensor_dtype_to_np_dtype(taken)
            graph.initializer.extend(
                onnx.numpy_helper.from_array(np.array(end, dtype), name) for end, name in zip(bounds, ends, strict=True)
            )
            casts.append(onnx.helper.make_node("Clip", [value.name, *ends], [inside]))
        casts.append(onnx.helper.make_node("Cast", [inside], [own], to=kind))
        value.type.tensor_type.elem_type = taken
    nodes = [*casts, *graph.node]
    del graph.node[:]
    graph.node.extend(nodes)


def _bounds(kind: int) -> tuple[int, int] | None:
    """The least and the most that numbers of this type are, as far as int64 goes; None: they are no whole numbers."""
    dtype = onnx.helper.tensor_dtype_to_np_dtype(kind)
    if dtype.kind == "b":
        return 0, 1
    return (int(np.iinfo(dtype).min), int(min(np.iinfo(dtype).max, 2**63 - 1))) if dtype.kind in "iu" else None


def _rename(graph: onnx.GraphProto, name: str, other: str) -> None:
    """Wherever nodes read it, in the graphs inside nodes too."""
    for node in graph.node:
        node.input[:] = [other if each == name else each for each in node.input]
        for attribute in node.attribute:
            for inner in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                _rename(inner, name, other)


def _without_maps(graph: onnx.GraphProto) -> None:
    """The probabilities themselves where the file gives a mapping of each class to its own, as skl2onnx does."""
    values = {node.output[0]: node.input[0] for node in graph.node if node.op_type == "ZipMap"}
    for output in graph.output:
        if output.name in values:
            name = values[output.name]
            output.CopyFrom(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["batch", None]))


def _class_names(graph: onnx.GraphProto) -> tuple[str, ...]:
    """Of what gives labels, a classifier or the mapping of classes to probabilities; none for the numbers 0, 1, ..."""
    known = {tensor.name: tensor for tensor in graph.initializer}
    for node in reversed(graph.node):
        lists = [[*each.strings, *each.ints] for each in node.attribute if each.name.startswith("classlabels")]
        if node.op_type == "ArrayFeatureExtractor" and node.input[0] in known:  # labels by the place of one
            lists.append(onnx.numpy_helper.to_array(known[node.input[0]]).ravel().tolist())
        for found in filter(None, lists):
            if found == [*range(len(found))] or not all(isinstance(each, bytes | str | int) for each in found):
                return ()
            return tuple(each.decode("utf-8", "replace") if isinstance(each, bytes) else str(each) for each in found)
    return ()


def _free_axes(graph: onnx.GraphProto) -> int | None:
    """Let the first axis of inputs and outputs be of any length, and those whose length is negative. The number of
    examples that the inputs were of; None for any."""
    sizes = {dims[0].dim_value for value in graph.input if (dims := value.type.tensor_type.shape.dim)}
    for value in (*graph.input, *graph.output):
        for place, axis in enumerate(value.type.tensor_type.shape.dim):
            if axis.dim_value < 0:
                axis.Clear()
            if place == 0:
                axis.dim_param = "batch"
    return sizes.pop() if len(sizes) == 1 and min(sizes) > 0 else None


def _outputs_of(graph: onnx.GraphProto, where: str) -> list[str]:
    """Those of numbers, or what an ArgMax chooses from; first the one called "logits", or else one that comes from a
    linear layer, or whose end makes probabilities."""
    floats = [value.name for value in graph.output if value.type.tensor_type.elem_type in FLOATS]
    floats = floats or [node.input[0] for node in graph.node if node.op_type == "ArgMax"][-1:]
    if not floats:
        found = ", ".join(value.name for value in graph.output)
        raise UnsupportedModelError(f"model: {where}: found the outputs {found}, expected one of float32 numbers")
    network = Network.of(graph, where)

    def rank(name: str) -> tuple[bool, bool, bool]:
        return name != "logits", last_layer(name, network) is None, before_link(name, network) == name

    return sorted(floats, key=rank)


def _cut(model: onnx.ModelProto, features: str, width: int) -> onnx.ModelProto:
    """The part up to the features, which are an output of their own: of a linear model they are an input."""
    body = onnx.ModelProto()
    body.CopyFrom(model)
    body.graph.node.append(onnx.helper.make_node("Cast", [features], [FEATURES], to=onnx.TensorProto.FLOAT))
    del body.graph.output[:]
    body.graph.output.append(onnx.helper.make_tensor_value_info(FEATURES, onnx.TensorProto.FLOAT, ["batch", width]))
    representation = ir.serde.deserialize_model(body)
    ir.passes.common.RemoveUnusedNodesPass()(representation)
    found: onnx.ModelProto = ir.serde.serialize_model(representation)
    return found
