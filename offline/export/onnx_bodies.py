"""The networks of ONNX files in a graph: while it is traced one operator stands for each, and its nodes come back."""

from collections.abc import Callable, Iterator
from typing import Any

from onnx import defs
from onnxscript import ir
from onnxscript.values import Op, Opset
from torch import nn

from ..network.onnx_network import DOMAIN, OnnxBody

VERSION = 1


def translations(model: nn.Module) -> dict[Callable[..., Any], Callable[..., Any]]:
    """For torch's exporter: what it writes in the place of each operator."""
    return {body.operator.default: _call(body) for body in _bodies(model)}


def _call(body: OnnxBody) -> Callable[..., Any]:
    inputs = [defs.OpSchema.FormalParameter(name, kind) for name, kind in body.inputs().items()]
    outputs = [defs.OpSchema.FormalParameter("features", "tensor(float)")]
    schema = defs.OpSchema(body.name, DOMAIN, VERSION, inputs=inputs, outputs=outputs)
    operator = Op(Opset(DOMAIN, VERSION), body.name, schema)

    def call(inputs: Any) -> Any:
        return operator(*inputs)

    return call


def put_back(exported: ir.Model, model: nn.Module) -> None:
    """As functions, which the graph's simplification puts in the place of their calls."""
    for body in _bodies(model):
        function = body.function(exported.opset_imports[""])
        exported.functions[function.identifier()] = function
        for domain, version in function.opset_imports.items():
            exported.opset_imports.setdefault(domain, version)
        exported.opset_imports[DOMAIN] = VERSION


def _bodies(model: nn.Module) -> Iterator[OnnxBody]:
    return (module for module in model.modules() if isinstance(module, OnnxBody))
