"""The ONNX graph of real networks in onnxruntime, against plain differentiation in float64; any batch size."""

import functools

import numpy as np
import onnx
import pytest
import torch
from onnxscript import ir
from torch import nn

from demur.offline.export.errors import ExportError
from demur.offline.export.graph import export_jacobian, fold
from demur.offline.jacobian.find_head import find_head
from demur.offline.jacobian.mixtures import EveryOutput
from demur.offline.jacobian.plan import CHECK_OUTPUTS, few_mixtures, make_jacobian
from demur.offline.network.model_copy import private_copy
from demur.offline.network.weights import WeightLayout
from demur.service.inference.onnx_runtime import onnxruntime
from tests import reference
from tests.support.heads import HEADS, build_head
from tests.support.networks import NETWORKS, build
from tests.support.tiers import quick_among

pytestmark = pytest.mark.filterwarnings("ignore")  # the exporter's own deprecations are not ours to mend

EXPORTED = sorted(set(NETWORKS) - {"called-twice", "shared-linears", "groups-all"})
WITH_HEAD = {f"{name}, with a head": name for name in sorted(HEADS)}  # two have the name of another network


def load_check(model: bytes) -> onnx.ModelProto:
    """Parse the serialised model and run ONNX's own checker on it."""
    proto = onnx.load_from_string(model)
    onnx.checker.check_model(proto)
    return proto


def export(name: str) -> tuple[bytes, int]:
    network, inputs, indices = build(name)
    layout = WeightLayout.of(network)
    jacobian = make_jacobian(private_copy(network, torch.device("cpu")), layout, indices, inputs)
    return export_jacobian(jacobian, inputs, EveryOutput(jacobian(inputs)[0].shape[1]))


@pytest.mark.parametrize("name", ["tied", "scalar-scaled", "transposed", "residual"])
def test_onnxruntime_equals_plain_differentiation(name: str) -> None:
    model, _ = export(name)
    load_check(model)
    check_answers(model, name)


@pytest.mark.parametrize("name", quick_among([*EXPORTED, *WITH_HEAD], {"tied", "scaled", "perceptron, with a head"}))
def test_of_mixtures_of_the_outputs(name: str) -> None:
    """Every route: backward passes, closed forms, bare parameters, the generic one."""
    network, inputs = build_head(WITH_HEAD[name]) if name in WITH_HEAD else build(name)[:2]
    layout, copied = WeightLayout.of(network), private_copy(network, torch.device("cpu"))
    jacobian = make_jacobian(copied, layout, torch.arange(layout.total), inputs, find_head(copied, inputs))
    mean, truth = reference.full_jacobian(network, inputs)
    mixed = few_mixtures(torch.as_tensor(mean, dtype=torch.float32))
    model, _ = export_jacobian(jacobian, inputs, mixed)
    load_check(model)
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    coefficients = mixed.cotangents(torch.ones(len(inputs), mean.shape[1])).numpy()
    assert coefficients.shape[1] == min(CHECK_OUTPUTS, mean.shape[1])
    for batch, rows in ((inputs, slice(None)), (inputs[:1], slice(1))):
        found_mean, found = session.run(["mean", "jacobian"], {"inputs": batch.numpy()})
        np.testing.assert_allclose(found_mean, mean[rows], rtol=1e-4, atol=1e-6)
        expected = coefficients[rows] @ truth[rows]
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=4e-6 * np.abs(expected).max())


def check_answers(model: bytes, name: str) -> None:
    network, inputs, indices = build(name)
    mean, truth = reference.full_jacobian(network, inputs)
    expected = truth[:, :, indices.numpy()]
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    for batch in (inputs, inputs[:1], inputs[1:3]):
        start = 1 if len(batch) == 2 else 0
        found_mean, found = session.run(["mean", "jacobian"], {"inputs": batch.numpy()})
        rows = slice(start, start + len(batch))
        np.testing.assert_allclose(found_mean, mean[rows], rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(found, expected[rows], rtol=1e-4, atol=2e-6 * np.abs(expected).max())


def test_a_large_graph_is_folded_too() -> None:
    """Time with the square of the nodes would end this in minutes, as for a recurrent network of many steps."""
    steps, total = [], "x"
    for k in range(4_000):
        steps += [onnx.helper.make_node("Add", ["one", "one"], [f"two{k}"])]
        steps += [onnx.helper.make_node("Add", [total, f"two{k}"], [f"total{k}"])]
        total = f"total{k}"
    vector = functools.partial(onnx.helper.make_tensor_value_info, elem_type=onnx.TensorProto.FLOAT, shape=[1])
    one = onnx.helper.make_tensor("one", onnx.TensorProto.FLOAT, [1], [1.0])
    graph = onnx.helper.make_graph(steps, "sums", [vector("x")], [vector(total)], [one])
    model = ir.serde.deserialize_model(onnx.helper.make_model(graph))
    fold(model)
    assert len(list(model.graph)) == 4_000
    assert len(model.graph.initializers) == 1


def test_the_graph_tells_nothing_of_the_machine_and_is_the_same_again() -> None:
    model, opset = export("called-twice")
    proto = load_check(model)
    assert not proto.doc_string
    assert not proto.metadata_props
    assert all(not node.metadata_props and not node.doc_string for node in proto.graph.node)
    assert b"site-packages" not in model
    assert b".py" not in model
    assert export("called-twice") == (model, opset)


def test_an_operator_without_onnx_equivalent_is_named() -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.head = nn.Linear(4, 4), nn.Linear(4, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(torch.special.bessel_j0(self.inner(x).detach()) + self.inner(x))

    network = Odd()
    layout = WeightLayout.of(network)
    inputs = torch.randn(2, 4)
    indices = torch.arange(layout.total)
    jacobian = make_jacobian(private_copy(network, torch.device("cpu")), layout, indices, inputs)
    with pytest.raises(ExportError, match=r"bessel_j0.*remedy"):
        export_jacobian(jacobian, inputs, EveryOutput(2))
