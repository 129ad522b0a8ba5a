"""The end of an ONNX network that is no linear layer: trees, a quantised or recurrent end, anything that computes.

A layer that changes nothing is put behind it: outputs = [z, f] [0, I]^T, with its outputs f and, where there is one,
the last tensor z before them that holds more of an example. So the posterior is over what a linear layer there could
add, and the added weights read z; of a table's trees, the columns.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import onnx
from onnx import helper, numpy_helper

from ..runtime.arrays import Array
from .onnx_batch import TRIED, trial
from .onnx_tail import PASSING, LastLayer, Made, Network, logits_before
from .unsupported import UnsupportedModelError

MOST_READ = 4096  # numbers of an example
# Of probabilities: what trees vote for is impossible only as far as they have seen, and rounded to 1e-7. What a network
# computes has digits as long as it has any, but for the odds of what is next to 1.
LEAST_VOTE, LEAST_COMPUTED, LEAST_ODDS = 1e-3, 1e-30, 1e-6
ROUNDED = 1e-5  # sums of votes
CLOSE = 1e-2  # to a layer's outputs, which may be in float16
VOTING = {"TreeEnsemble", "TreeEnsembleClassifier", "TreeEnsembleRegressor", "ArrayFeatureExtractor"}  # of neighbours
FLAT, PROBABLE, LOGARITHM, OTHER, LOGITS, READ, JOINED = (
    f"demur_{name}" for name in ("flat", "probable", "logarithm", "other", "logits", "read", "joined")
)


def layer_behind(
    model: onnx.ModelProto, output: str, network: Network, links: bool = True, made: Made | None = None
) -> LastLayer:
    """The layer that changes nothing behind `output`, whose features become part of the model's graph.

    links: a softmax, its logarithm or a sigmoid is left out. made: what the outputs are, which become logits. Raises
    `UnsupportedModelError` for a model that cannot be tried, and for outputs that are no row of numbers.
    """
    name = before_link(output, network) if links else output
    read = _read(model.graph, name, network)
    outputs, *inner = trial(model, [name, *([] if read is None else [read])], network.where)
    count = outputs[0].size if outputs.ndim else 0
    if outputs.shape[:1] != (TRIED,) or not 0 < count <= MOST_READ or sum(size > 1 for size in outputs.shape[1:]) > 1:
        raise network.refuse(f"the output {output!r} of shape {outputs.shape} for {TRIED} examples")
    width = inner[0][0].size if inner and inner[0].shape[:1] == (TRIED,) else 0
    if not count < width <= MOST_READ:
        read, width = None, 0
    graph = model.graph
    features = _flat(graph, name, FLAT)
    if made is not None:
        makers = [network.makers[each] for each in (name, *_ancestors(name, network)) if each in network.makers]
        features = _logits(graph, made, makers, network)
    if read is not None:
        graph.node.append(helper.make_node("Concat", [_flat(graph, read, READ), features], [JOINED], axis=1))
        features = JOINED
    weight = np.concatenate([np.zeros((count, width)), np.eye(count)], axis=1).astype(np.float32)
    return LastLayer(features, weight, np.zeros(count, np.float32), name != output, True, made, read)


def agrees(model: onnx.ModelProto, layer: LastLayer, where: str) -> bool:
    """Whether the layer gives what the file has there, for some inputs: the operators do not say which axes it is on.
    True where the file cannot be run on these, or makes no numbers of them."""
    try:
        gives, features = trial(model, [layer.gives, layer.features], where)
    except UnsupportedModelError:
        return True
    if features.shape != (TRIED, layer.weight.shape[1]) or gives.size != TRIED * len(layer.weight):
        return False
    found, expected = features @ layer.weight.T + layer.bias, gives.reshape(TRIED, -1)
    room = CLOSE * float(np.abs(expected).max())
    return not np.isfinite(room) or np.allclose(found, expected, rtol=CLOSE, atol=room)


def probabilities_in(outputs: Array, labels: bool) -> Made | None:
    """What outputs (B, K) of examples of the user's are, as far as their values tell; None: logits.

    Of classes the logarithm of what is between 0 and 1 keeps their order, whatever it is. labels: of which an example
    may have several.
    """
    if not bool(((outputs >= -ROUNDED) & (outputs <= 1 + ROUNDED)).all()):
        return None
    return "odds" if labels or outputs.shape[1] == 1 else "rows"


def _flat(graph: onnx.GraphProto, name: str, flat: str) -> str:
    """(B, n) float32."""
    graph.node.append(helper.make_node("Flatten", [name], [f"{flat}_own"], axis=1))
    graph.node.append(helper.make_node("Cast", [f"{flat}_own"], [flat], to=onnx.TensorProto.FLOAT))
    return flat


def before_link(output: str, network: Network) -> str:
    """What goes into the softmax or sigmoid at the end, or the output itself."""
    name = output
    while (node := network.makers.get(name)) is not None:
        if (logits := logits_before(node, network)) is not None:
            return logits
        if node.op_type not in PASSING:
            break
        name = node.input[0]
    return output


def _logits(graph: onnx.GraphProto, made: Made, makers: Sequence[onnx.NodeProto], network: Network) -> str:
    """log p less its mean over the classes, or log(p / (1 - p)), of what `makers` have made, the nearest first."""
    classic = any(node.domain == "ai.onnx.ml" for node in makers)
    least = LEAST_COMPUTED if made == "rows" and not classic else LEAST_ODDS
    least = LEAST_VOTE if any(map(_votes, makers)) else least
    last = next((node for node in makers if node.op_type not in PASSING), None)
    if last is not None and last.op_type == "DequantizeLinear":  # 0 is all that rounds to it
        step = network.constant(last.input[1])
        least = LEAST_VOTE if step is None else float(step.max()) / 2
    constants = {"least": np.float32(least), "most": np.float32(1 - least), "one": np.float32(1), "axis": np.array([1])}
    names = {name: f"{PROBABLE}_{name}" for name in constants}
    graph.initializer.extend(numpy_helper.from_array(np.asarray(constants[name]), names[name]) for name in constants)
    bounds = [names["least"], *([names["most"]] if made == "odds" else [])]
    graph.node.append(helper.make_node("Clip", [FLAT, *bounds], [PROBABLE]))
    graph.node.append(helper.make_node("Log", [PROBABLE], [LOGARITHM]))
    if made == "rows":
        graph.node.append(helper.make_node("ReduceMean", [LOGARITHM, names["axis"]], [OTHER]))
    else:
        graph.node.append(helper.make_node("Sub", [names["one"], PROBABLE], [f"{OTHER}_odds"]))
        graph.node.append(helper.make_node("Log", [f"{OTHER}_odds"], [OTHER]))
    graph.node.append(helper.make_node("Sub", [LOGARITHM, OTHER], [LOGITS]))
    return LOGITS


def _votes(node: onnx.NodeProto) -> bool:
    """Whether it counts or averages, and does not end in a function of a sum, as boosted trees do."""
    linked = any(each.name == "post_transform" and each.s != b"NONE" for each in node.attribute)
    return node.domain == "ai.onnx.ml" and node.op_type in VOTING and not linked


def _read(graph: onnx.GraphProto, output: str, network: Network) -> str | None:
    """The last tensor of floating-point numbers before the output with the batch in front and more numbers of an
    example than it has, as far as its shape is known; None: only the inputs themselves."""
    known = {value.name: value for value in (*graph.value_info, *graph.output)}
    least = _size(known.get(output)) or 1
    for name in _ancestors(output, network):
        size = _size(known.get(name))
        if name != output and size is not None and least < size <= MOST_READ:
            return name
    return None


def _size(value: onnx.ValueInfoProto | None) -> int | None:
    """How many numbers an example has; None where that, or whether it is one example a row, is not known."""
    if value is None or value.type.tensor_type.elem_type != onnx.TensorProto.FLOAT:
        return None
    first, *rest = value.type.tensor_type.shape.dim or [None]
    if first is None or first.dim_value or not rest or not all(axis.dim_value for axis in rest):
        return None
    return int(np.prod([axis.dim_value for axis in rest]))


def _ancestors(output: str, network: Network) -> Iterator[str]:
    """The tensors that a node makes and that the output depends on, nearest first."""
    seen, waiting = {output}, [output]
    while waiting:
        node = network.makers.get(waiting.pop(0))
        if node is None:
            continue
        for name in node.input:
            if name and name not in seen and name in network.makers:
                seen.add(name)
                waiting.append(name)
                yield name
