"""What stands behind the last linear layer of an ONNX network, folded into its weights or left out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import onnx
from onnx import numpy_helper

from ..runtime.arrays import Array
from .unsupported import UnsupportedModelError

# Of the end of a classifier: the outputs before it are the logits.
LINKS = frozenset({"Softmax", "LogSoftmax", "Sigmoid"})
PASSING = frozenset({"Identity", "Cast", "Dropout"})
RESHAPING = frozenset({"Squeeze", "Unsqueeze", "Reshape", "Flatten"})
AFFINE = frozenset({"Add", "Sub", "Mul", "Div"})
Made = Literal["rows", "odds"]  # probabilities of classes, or each by itself
EXPECTED = (
    "one number, or a row of at most 4,096, for each example; where a tensor before it is that, cut the file there: "
    "onnx.utils.extract_model(file, other_file, inputs, [tensor])"
)


@dataclass(frozen=True)
class Network:
    """The nodes of a graph by their outputs, and its constants; where: what to call the file in errors."""

    makers: Mapping[str, onnx.NodeProto]
    constants: Mapping[str, onnx.TensorProto]
    where: str

    @classmethod
    def of(cls, graph: onnx.GraphProto, where: str) -> "Network":
        makers = {name: node for node in graph.node for name in node.output}
        return cls(makers, {tensor.name: tensor for tensor in graph.initializer}, where)

    def constant(self, name: str) -> Array | None:
        """Its values, float64; None for anything that is computed."""
        found = self.constants.get(name)
        return None if found is None else np.asarray(numpy_helper.to_array(found), np.float64)

    def refuse(self, found: str) -> UnsupportedModelError:
        """The error for outputs like these."""
        return UnsupportedModelError(f"model: {self.where}: found {found}, expected {EXPECTED}")


@dataclass(frozen=True)
class LastLayer:
    """The network's outputs from its features (B, F): features @ weight.T + bias; weight (K, F), bias (K,) float32.

    left_out: a softmax or sigmoid behind it. changes_nothing: a part of the features are the outputs, or the logits of
    what these are `made`. read: the tensor that the other features are; None: there are none. gives: the tensor of the
    file that it must give; "" where its operators leave no doubt.
    """

    features: str
    weight: Array
    bias: Array
    left_out: bool = False
    changes_nothing: bool = False
    made: Made | None = None
    read: str | None = None
    gives: str = ""


@dataclass(frozen=True)
class _Tail:
    """outputs = scale * x[chosen] + shift, of the tensor x (B, K) that `name` is; chosen None: all of it.

    single: a shape was changed, which only one output survives.
    """

    name: str
    scale: Array
    shift: Array
    chosen: Array | None = None
    single: bool = False

    @property
    def is_identity(self) -> bool:
        return bool((self.scale == 1).all() and (self.shift == 0).all())

    def fits(self, count: int) -> bool:
        """Whether the chosen are among so many columns: a choice along another axis may be of more."""
        return self.chosen is None or bool(((-count <= self.chosen) & (self.chosen < count)).all())

    def times(self, factor: Array, name: str) -> "_Tail":
        """The same of x, where this one is of factor * x."""
        return replace(self, name=name, scale=self.scale * self._of_chosen(factor))

    def plus(self, term: Array, name: str) -> "_Tail":
        """The same of x, where this one is of x + term."""
        return replace(self, name=name, shift=self.shift + self.scale * self._of_chosen(term))

    def _of_chosen(self, values: Array) -> Array:
        flat = values.reshape(-1)
        return flat if self.chosen is None or len(flat) == 1 else flat[self.chosen]


def last_layer(output: str, network: Network, links: bool = True) -> LastLayer | None:
    """The last linear layer before `output`, with what stands behind it in its weights; None for outputs that come from
    anything else.

    links: a softmax, its logarithm or a sigmoid is left out. So is the shape of a single output.
    """
    tail, linked, gives = _Tail(output, np.ones(1), np.zeros(1)), not links, output
    while True:
        node = network.makers.get(tail.name)
        if node is None:
            return None
        logits = logits_before(node, network)
        if logits is not None and not linked and tail.is_identity and tail.chosen is None:
            linked, tail, gives = True, replace(tail, name=logits), logits
            continue
        before = _before(node, tail, network)
        if before is None:
            folded = _folded(node, tail, network)
            sure = node.op_type == "Gemm" and tail.chosen is None and not tail.single
            return None if folded is None else replace(folded, left_out=links and linked, gives="" if sure else gives)
        tail = before


def logits_before(node: onnx.NodeProto, network: Network) -> str | None:
    """What an operator makes probabilities of, None for another one. A softmax over the examples makes none of an
    example; around one of an old version, onnx puts a Flatten and a Reshape back."""
    if node.op_type == "Reshape":
        link, shape = (network.makers.get(name) for name in node.input)
        inner = None if link is None else logits_before(link, network)
        flat = None if inner is None else network.makers.get(inner)
        if flat is None or shape is None or (flat.op_type, shape.op_type) != ("Flatten", "Shape"):
            return None
        return str(flat.input[0]) if shape.input[0] == flat.input[0] else None
    axis = next((onnx.helper.get_attribute_value(each) for each in node.attribute if each.name == "axis"), -1)
    return str(node.input[0]) if node.op_type in LINKS and axis not in (0, -2) else None


def _before(node: onnx.NodeProto, tail: _Tail, network: Network) -> _Tail | None:
    """The tail with one more node in it; None for one that is no part of a tail."""
    if node.op_type in PASSING:
        return replace(tail, name=node.input[0])
    if node.op_type in RESHAPING and tail.chosen is None:
        return replace(tail, name=node.input[0], single=tail.single or node.op_type != "Flatten")
    if node.op_type == "Gather":
        chosen = network.constant(node.input[1])
        axis = next((onnx.helper.get_attribute_value(each) for each in node.attribute if each.name == "axis"), 0)
        if chosen is None or axis not in (1, -1) or tail.chosen is not None or tail.single:
            return None
        return replace(tail, name=node.input[0], chosen=chosen.reshape(-1).astype(int))
    if node.op_type in AFFINE:
        return _affine(node, tail, network)
    return None


def _affine(node: onnx.NodeProto, tail: _Tail, network: Network) -> _Tail | None:
    """With a sum, difference, product or quotient of x and a constant in it."""
    left, right = (network.constant(name) for name in node.input)
    if (left is None) == (right is None):
        return None
    name = node.input[0] if left is None else node.input[1]
    value = right if left is None else left
    assert value is not None
    if value.size > 1 and (value.size != value.shape[-1] or not tail.fits(value.size)):  # not one of each column
        return None
    if node.op_type == "Add":
        return tail.plus(value, name)
    if node.op_type == "Mul":
        return tail.times(value, name)
    if node.op_type == "Sub":
        return tail.plus(-value, name) if left is None else tail.plus(value, name).times(-np.ones(1), name)
    return tail.times(1 / value, name) if left is None else None


def _folded(node: onnx.NodeProto, tail: _Tail, network: Network) -> LastLayer | None:
    """The linear layer `node` with its tail in it; None for anything else."""
    linear = _linear(node, network)
    if linear is None:
        return None
    weight, bias = linear
    if not tail.fits(len(weight)):
        return None
    chosen = slice(None) if tail.chosen is None else tail.chosen
    weight, bias = weight[chosen], bias[chosen]
    if (tail.single and len(weight) != 1) or {len(tail.scale), len(tail.shift)} - {1, len(weight)}:
        return None
    bias = tail.scale * bias + tail.shift
    return LastLayer(node.input[0], (tail.scale[:, np.newaxis] * weight).astype(np.float32), bias.astype(np.float32))


def _linear(node: onnx.NodeProto, network: Network) -> tuple[Array, Array] | None:
    """Weight (K, F) and bias (K,), float64; None for an operator that is no linear layer."""
    weight = network.constant(node.input[1]) if node.op_type in ("Gemm", "MatMul") else None
    if weight is None or weight.ndim != 2:
        return None
    if node.op_type == "MatMul":
        return weight.T, np.zeros(weight.shape[1])
    options = {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute}
    bias = network.constant(node.input[2]) if _has_third(node.input) else np.zeros(1)
    if options.get("transA") or bias is None:
        return None
    weight = options.get("alpha", 1.0) * (weight if options.get("transB") else weight.T)
    return weight, np.broadcast_to(options.get("beta", 1.0) * bias.reshape(-1), (len(weight),))


def _has_third(inputs: Sequence[str]) -> bool:
    return len(inputs) > 2 and bool(inputs[2])
