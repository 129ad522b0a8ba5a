"""What an ONNX file turned out to be, in lines for people: `demur check` prints them, and a fit begins with them."""

from collections.abc import Mapping, Sequence

import onnx
import torch
from torch import Tensor

from .onnx_network import OWN, OnnxNetwork
from .onnx_tail import LastLayer

SHOWN = 10  # names of classes
DYNAMIC = ", since DynamicQuantizeLinear scales by the whole batch: quantise the network statically"
LOGITS = {"rows": ", with log p as logits", "odds": ", with log(p / (1 - p)) as logits", None: ""}


def file_lines(network: OnnxNetwork, args: Sequence[Tensor], kwargs: Mapping[str, Tensor]) -> list[str]:
    """Inputs, outputs, what the posterior would be over, and what one forward pass shows of these examples.

    Raises `RuntimeError` where the file cannot be run on them.
    """
    file, graph = network.file, network.body.model.graph
    outputs, width = network.head.weight.shape
    number = "any number of examples" if file.batch is None else f"exported for {file.batch}, made for any number"
    shown = ", ".join(file.class_names[:SHOWN]) + ", ..." * (len(file.class_names) > SHOWN)
    output = [f"output: {file.output!r}, {outputs:,} for each example{f' ({shown})' if shown else ''}"]
    if file.others:
        output.append(f"the file has several outputs: {file.output!r} is taken, not {', '.join(file.others)}")
    if network.layer.left_out:
        output.append("the softmax or sigmoid behind the last layer is left out")
    first, *_ = (*args, *kwargs.values())
    work = network.body.multiply_adds(first.shape[1:])
    return [
        f"inputs: {'; '.join(_input(value, graph) for value in graph.input)}; {number}",
        "; ".join(output),
        f"last layer: {_last(network.layer, file.output, width)}",
        *_alone(network, args, kwargs),
        *([f"work: {work:,} multiplications an example in matrices and convolutions"] if work else []),
    ]


def _input(value: onnx.ValueInfoProto, graph: onnx.GraphProto) -> str:
    """Its name, shape and type, and what it is cast to."""
    tensor = value.type.tensor_type
    axes = ", ".join(axis.dim_param or str(axis.dim_value or "?") for axis in tensor.shape.dim)
    own = f"{value.name}_{OWN}"
    cast = next((each.attribute[0].i for each in graph.node if list(each.output) == [own]), None)
    return f"{value.name} ({axes}) {_kind(tensor.elem_type)}{'' if cast is None else f', cast to {_kind(cast)}'}"


def _kind(number: int) -> str:
    """As NumPy calls it."""
    return str(onnx.helper.tensor_dtype_to_np_dtype(number))


def _last(layer: LastLayer, output: str, width: int) -> str:
    if not layer.changes_nothing:
        return f"linear, of {width:,} features: the posterior is over it and the added weights, which read these"
    read = "the inputs" if layer.read is None else f"the tensor {layer.read!r}"
    return (
        f"the output {output!r} comes from no linear layer: the posterior is over a layer behind it that changes "
        f"nothing{LOGITS[layer.made]}, and over the added weights, which read {read}"
    )


def _alone(network: OnnxNetwork, args: Sequence[Tensor], kwargs: Mapping[str, Tensor]) -> list[str]:
    with torch.no_grad():
        joint = network(*args, **kwargs)
        each = [
            network(*(x[place : place + 1] for x in args), **{name: x[place : place + 1] for name, x in kwargs.items()})
            for place in range(len(joint))
        ]
    difference = float((torch.cat(each) - joint).abs().max() / joint.abs().max().clamp_min(1e-30))
    why = DYNAMIC * any(node.op_type == "DynamicQuantizeLinear" for node in network.body.model.graph.node)
    return [f"alone and among {len(joint)} examples: outputs differ by {difference:.1g} of the largest{why}"]
