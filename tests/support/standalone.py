"""Graphs of a few nodes, run in onnxruntime; standalone models compared with the predictor."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnxscript import ir

from offline.export.standalone.decision_graph import MIN_OPSET, NodeBuilder
from offline.export.standalone.verify import open_model, run_standalone
from service.inference.onnx_runtime import onnxruntime
from service.inference.predictor import Prediction
from tests.support.bundles import IR_VERSION

Array = npt.NDArray[Any]
Build = Callable[..., dict[str, ir.Value]]


def run_nodes(build: Build, **inputs: Array) -> dict[str, Array]:
    """The values that `build` names, from a graph with the inputs of these names and any batch size."""
    values = [
        ir.val(name, dtype=ir.DataType.from_numpy(array.dtype), shape=["batch", *array.shape[1:]])
        for name, array in inputs.items()
    ]
    graph = ir.Graph(values, [], nodes=[], name="nodes", opset_imports={"": MIN_OPSET})
    add = NodeBuilder(graph)
    outputs = build(add, *values)
    for name, value in outputs.items():
        output = add("Identity", value)  # an input cannot be an output as well
        output.name = name
        graph.outputs.append(output)
    model = ir.to_proto(ir.Model(graph, ir_version=IR_VERSION))
    inferred = onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True)
    onnx.checker.check_model(inferred)
    session = open_model(inferred.SerializeToString())
    return dict(zip(outputs, session.run(list(outputs), inputs), strict=True))


def same_prediction(found: dict[str, Array], expected: Prediction, rtol: float = 1e-5) -> None:
    """The same values in the same types and shapes, and exactly the same decision.

    Entropies near 0 are compared absolutely: they are rounding errors.
    """
    fields = {name for name, values in vars(expected).items() if values is not None}
    assert fields - {"out_of_range"} == found.keys()
    for name, values in found.items():
        wanted = getattr(expected, name)
        assert (values.dtype, values.shape) == (wanted.dtype, wanted.shape), name
        exact = name in ("p_value", "rejected")
        tolerances = (0.0, 0.0) if exact else (rtol, 1e-12)
        np.testing.assert_allclose(values, wanted, *tolerances, equal_nan=True, err_msg=name)


def standalone_session(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    """The checked model in onnxruntime."""
    onnx.checker.check_model(model, full_check=True)
    return open_model(model.SerializeToString())


__all__ = ["run_nodes", "run_standalone", "same_prediction", "standalone_session"]
