"""An ONNX network that was exported for a fixed number of examples, for any number."""

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import numpy_helper

from demur.service.inference.onnx_runtime import onnxruntime

from ..runtime.arrays import Array
from .unsupported import UnsupportedModelError, one_line

TOLERANCE = 1e-4
TRIED = 8  # examples
SHORT, LONG = (64, 96), (2048, 3072)  # entries along an axis of any length


def freed(model: onnx.ModelProto, batch: int) -> onnx.ModelProto:
    """The model with the first entry of every constant shape that is `batch` left to the input's own.

    That is what exporters write for x.flatten(1) and x.reshape(len(x), -1). The model is given as it is unless twice as
    many examples get the same outputs as these and these again.
    """
    free = onnx.ModelProto()
    free.CopyFrom(model)
    shapes: dict[str, list[onnx.NodeProto]] = {}
    for node in free.graph.node:
        if node.op_type == "Reshape":
            shapes.setdefault(node.input[1], []).append(node)
    changed = False
    for tensor in free.graph.initializer:
        values = numpy_helper.to_array(tensor).copy() if tensor.name in shapes else np.zeros(0)
        if values.ndim == 1 and len(values) and values[0] == batch and (values != 0).all():
            values[0], changed = 0, True  # 0: as in the input
            tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
            for node in shapes[tensor.name]:
                _let_zero_copy(node)
    return free if changed and _same(model, free, batch) else model


def trial(model: onnx.ModelProto, names: Sequence[str], where: str) -> list[Array]:
    """The values of these tensors for some inputs of several examples.

    Raises `UnsupportedModelError` for a model that cannot be run on them, and where the first tensor's shape depends on
    how long the inputs are.
    """
    tried = onnx.ModelProto()
    tried.CopyFrom(model)
    del tried.graph.output[:]
    tried.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    _, found, longer = _of_two_lengths(tried, where)
    first, other = found[0], longer[0]
    if first.shape != other.shape:
        raise UnsupportedModelError(
            f"model: {where}: found {names[0]!r} of shape {first.shape} for {TRIED} examples, and of {other.shape} "
            "where inputs are longer, expected one row an example, of one length"
        )
    return found


def _of_two_lengths(model: onnx.ModelProto, where: str) -> tuple[dict[str, Array], list[Array], list[Array]]:
    """Some inputs, the outputs for them, and those for longer ones."""
    problems = []
    for lengths in _lengths(model.graph):
        short, longer = ({value.name: _drawn(value, TRIED, free) for value in model.graph.input} for free in lengths)
        try:
            return short, _outputs(model, short), _outputs(model, longer)
        except Exception as error:  # as in `_same`
            problems.append(one_line(error))
    raise UnsupportedModelError(
        f"model: {where}: found that it cannot be run on {TRIED} examples of random numbers, expected any number of "
        f"them along the first axis of each input ({', '.join(map(_described, model.graph.input))}): {problems[0]}"
    )


def _lengths(graph: onnx.GraphProto) -> list[tuple[int, int]]:
    """Of sound the longer first: of too few samples some networks make windows of none, by which onnxruntime divides,
    and ends. Pictures are too dear for the longer."""
    kinds = [value.type.tensor_type for value in graph.input]
    sized = [(kind.elem_type, [axis.dim_value for axis in kind.shape.dim[1:]]) for kind in kinds]
    if any(shape.count(0) > 1 for _, shape in sized):
        return [SHORT]
    sound = any(kind == onnx.TensorProto.FLOAT and 0 in shape and max(shape) <= 1 for kind, shape in sized)
    return [LONG, SHORT] if sound else [SHORT, LONG]


def drawn(model: onnx.ModelProto, where: str) -> dict[str, Array]:
    """Some inputs of several examples, by name; raises as `trial`."""
    return _of_two_lengths(model, where)[0]


def _let_zero_copy(node: onnx.NodeProto) -> None:
    """A zero in the shape of this Reshape is the size that the input has there, and not a size of none."""
    kept = [each for each in node.attribute if each.name != "allowzero"]
    del node.attribute[:]
    node.attribute.extend(kept)


def _same(model: onnx.ModelProto, free: onnx.ModelProto, batch: int) -> bool:
    try:
        given = {value.name: _drawn(value, batch) for value in model.graph.input}
        expected = _outputs(model, given)
        found = _outputs(free, {name: np.concatenate([array, array]) for name, array in given.items()})
    except Exception:  # onnxruntime has many kinds; a free axis elsewhere has no size
        return False
    return all(
        np.allclose(twice, np.concatenate([once, once]), rtol=TOLERANCE, atol=TOLERANCE)
        for once, twice in zip(expected, found, strict=True)
    )


def _described(value: onnx.ValueInfoProto) -> str:
    """Its name and its shape."""
    axes = (axis.dim_param or str(axis.dim_value or "?") for axis in value.type.tensor_type.shape.dim)
    return f"{value.name} {' x '.join(axes) or 'without axes'}"


def _drawn(value: onnx.ValueInfoProto, batch: int, free: int = 0) -> Array:
    """Some input: standard normal numbers, or the whole numbers 0 and 1; free: entries along axes of any length."""
    tensor = value.type.tensor_type
    shape = (batch, *(axis.dim_value or free for axis in tensor.shape.dim[1:]))
    if 0 in shape:
        raise ValueError(f"{value.name}: found an axis without a size")
    kind, draw = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type), np.random.default_rng(0)
    if kind.kind != "f" and len(shape) == 1:  # as lengths are, by which some networks divide
        return np.ones(shape, kind)
    drawn: Array = draw.normal(size=shape) if kind.kind == "f" else draw.integers(0, 2, shape)
    return drawn.astype(kind)


def _outputs(model: onnx.ModelProto, given: dict[str, Array]) -> list[Array]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    found: list[Array] = session.run(None, given)
    return found
