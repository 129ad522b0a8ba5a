"""Add nodes to an ONNX graph, all of standard operators since opset 18."""

from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import TensorProto
from onnxscript import ir

Array = npt.NDArray[Any]
Operand = ir.Value | Array | np.float32 | float
MIN_OPSET = 18  # the first in which reductions take their axes as an input
LAST = np.array([-1], np.int64)


class NodeBuilder:
    """Adds nodes to a graph. Operands that are not values of the graph become constants, floats in float64."""

    def __init__(self, graph: ir.Graph) -> None:
        self._tape, self._count = ir.tape.Tape(graph), 0

    def __call__(self, operator: str, *operands: Operand, **attributes: Any) -> ir.Value:
        """The output of a new node."""
        inputs = [operand if isinstance(operand, ir.Value) else self._constant(operand) for operand in operands]
        name = self._name(operator)
        value = self._tape.op(operator, inputs, attributes, name=name)
        value.name = name
        return value

    def cast(self, value: ir.Value, dtype: int) -> ir.Value:
        """The value in another type, one of `onnx.TensorProto`."""
        return self("Cast", value, to=dtype)

    def float64(self, value: ir.Value) -> ir.Value:
        """The value in float64."""
        return self.cast(value, TensorProto.DOUBLE)

    def _constant(self, operand: Array | np.float32 | float) -> ir.Value:
        return self._tape.initializer(ir.tensor(np.asarray(operand)), self._name("constant"))

    def _name(self, kind: str) -> str:
        """A name that no value of the network has, not even inside a loop: exporters write no colons."""
        self._count += 1
        return f"decision:{kind}:{self._count}"
