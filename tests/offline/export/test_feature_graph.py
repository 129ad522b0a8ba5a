"""Feature scores in the exported graph: those of torch, from one forward pass."""

from collections import Counter

import numpy as np
import onnx
import pytest
import torch
from torch import Tensor, nn

from offline.export.graph import export_jacobian, export_variance
from offline.features.layers import feature_layers
from offline.features.scores import FeatureFit, FeatureScores
from offline.jacobian.find_head import find_head
from offline.jacobian.jacobian import SubnetworkJacobian
from offline.jacobian.plan import make_jacobian
from offline.laplace.served_factor import served_factor
from offline.network.model_copy import private_copy
from offline.network.weights import WeightLayout
from service.inference.onnx_runtime import onnxruntime
from service.maths.posterior_factor import CholeskyPosterior

pytestmark = pytest.mark.filterwarnings("ignore")  # the exporter's own deprecations are not ours to mend

OUTPUTS = 3
# Those of the network; a backward pass takes linear layers, activations and pooling of its own.
FORWARD = {
    "head": {"Conv": 2, "BatchNormalization": 1, "MaxPool": 1, "Gemm": 2, "Relu": 3},
    "jacobian": {"Conv": 2, "BatchNormalization": 1},
}


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        *(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Conv2d(4, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(54, 40), nn.ReLU(), nn.Linear(40, OUTPUTS)),
    ).eval()


def scores_of(model: nn.Module, inputs: Tensor) -> FeatureScores:
    layers, labels = feature_layers(model, find_head(model, inputs), inputs), torch.arange(len(inputs)) % OUTPUTS
    with torch.no_grad():
        features = layers.read(model, inputs)
        widths = {name: sum(part.shape[1] for part in parts) for name, parts in features.items()}
        fit = FeatureFit(layers, widths, OUTPUTS, inputs.device)
        fit.add(features, labels)
    return fit.scores()


def jacobian_of(model: nn.Module, inputs: Tensor, places: Tensor) -> SubnetworkJacobian:
    return make_jacobian(model, WeightLayout.of(network()), places, inputs, find_head(model, inputs))


def exported(kind: str) -> tuple[bytes, nn.Module, FeatureScores]:
    """The variances by weights of the head, in closed form, or the Jacobian of weights of every layer."""
    model = private_copy(network(), torch.device("cpu"))
    inputs = torch.randn(30, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    total = WeightLayout.of(network()).total
    places = torch.arange(total - 20, total) if kind == "head" else torch.arange(0, total, total // 20)
    jacobian, scores = jacobian_of(model, inputs[:2], places), scores_of(model, inputs)
    if kind == "jacobian":
        return export_jacobian(jacobian, inputs[:1], OUTPUTS, scores)[0], model, scores
    factor = served_factor(jacobian, CholeskyPosterior(np.eye(len(places))), OUTPUTS, 2**20)
    assert factor is not None
    return export_variance(jacobian, inputs[:1], OUTPUTS, factor, scores)[0], model, scores


@pytest.mark.parametrize("kind", ["head", "jacobian"])
def test_one_forward_pass_gives_them(kind: str) -> None:
    graph, model, scores = exported(kind)
    found = onnx.load_model_from_string(graph).graph
    assert [output.name for output in found.output][2:] == ["feature_scores"]
    nodes = Counter(node.op_type for node in found.node)
    assert {name: nodes[name] for name in FORWARD[kind]} == FORWARD[kind]
    session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
    asked = torch.randn(5, 1, 8, 8, generator=torch.Generator().manual_seed(2))
    served = [session.run(["feature_scores"], {"inputs": part.numpy()})[0] for part in (asked, *asked.split(1))]
    assert served[0].dtype == np.float32
    np.testing.assert_allclose(np.concatenate(served[1:]), served[0], rtol=1e-4)
    expected = scores.of(model.double(), asked.double())
    np.testing.assert_allclose(served[0], expected, rtol=1e-4)


def test_only_those_that_are_asked_for() -> None:
    model, inputs = network(), torch.randn(20, 1, 8, 8)
    scores = scores_of(model, inputs)
    assert scores.names == ("mahalanobis", "nearest_neighbours", "residual", "middle_mahalanobis")
    one = scores.only(("middle_mahalanobis",))
    assert one.names == ("middle_mahalanobis",)
    torch.testing.assert_close(one.of(model, inputs), scores.of(model, inputs)[:, 3:])
    found = scores.of_all(model, inputs, 7)
    np.testing.assert_allclose(found["middle_mahalanobis"], one.of(model, inputs)[:, 0].detach())
