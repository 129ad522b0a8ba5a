"""The graph with added weights: what it costs beside the network, and inputs that are far off."""

from collections import Counter

import numpy as np
import onnx
import onnx.utils
import pytest
import torch
from torch import nn

from demur.offline.data.changes import kind_of
from demur.offline.export.graph import export_variance
from demur.offline.features.activations import read_activations
from demur.offline.features.added_weights import AddedWeights
from demur.offline.features.gate import Gate
from demur.offline.features.layers import choose_layers
from demur.offline.jacobian.find_head import find_head
from demur.offline.jacobian.plan import make_jacobian
from demur.offline.laplace.served_factor import served_factor
from demur.offline.network.model_copy import private_copy
from demur.offline.network.weights import WeightLayout
from demur.service.inference.onnx_runtime import onnxruntime
from demur.service.maths.posterior_factor import CholeskyPosterior

pytestmark = pytest.mark.filterwarnings("ignore")  # the exporter's own deprecations are not ours to mend

MOST_NODES = 62  # 136 before both variances were computed side by side, 71 before small operators were merged
GATE = Gate(2.0, 5.0, 1.0)


def network() -> nn.Sequential:
    """That of the digits."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(512, 10),
    )
    model.eval()
    return model


@pytest.fixture(scope="module")
def exported() -> tuple[bytes, nn.Sequential, AddedWeights]:
    model, x = network(), torch.rand(300, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    layers = choose_layers(model, x[:2], kind_of(x))
    assert layers is not None
    with torch.no_grad():
        read = dict(zip(layers.paths, read_activations(model, layers.paths, x), strict=True))
    fitted = AddedWeights.fit(layers, read, seed=0)
    added = AddedWeights(layers, fitted.variances, GATE)
    layout = WeightLayout.of(model)
    chosen = layout.total - 1 - torch.randperm(5130, generator=torch.Generator().manual_seed(2))[:100].sort().values
    copied = private_copy(model, torch.device("cpu"))
    jacobian = make_jacobian(copied, layout, chosen.sort().values, x[:1], find_head(copied, x[:1]))
    factor = served_factor(jacobian, CholeskyPosterior(0.1 * np.eye(100)), 10, 2**20)
    return export_variance(jacobian, x[:1], 10, factor, added)[0], model, added


def test_it_adds_few_operators(exported: tuple[bytes, nn.Sequential, AddedWeights]) -> None:
    model = onnx.load_model_from_string(exported[0])
    alone = onnx.utils.Extractor(model).extract_model(["inputs"], ["mean"])
    whole, plain = (Counter(node.op_type for node in each.graph.node) for each in (model, alone))
    assert (whole - plain).total() <= MOST_NODES
    assert whole["Cos"] == whole["Log"] == 1
    assert "Shape" not in whole


@pytest.mark.parametrize("factor", [0.0, 1e-20, 1.0, 1e3, 1e10, 1e18])
def test_it_answers_as_torch_does_however_far_an_input_is(
    factor: float, exported: tuple[bytes, nn.Sequential, AddedWeights]
) -> None:
    model, network, added = exported
    x = factor * torch.rand(5, 1, 8, 8, generator=torch.Generator().manual_seed(3))
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    variance, part, distance = session.run(["variance", "added_variance", "feature_scores"], {"inputs": x.numpy()})
    assert np.isfinite(distance).all()
    assert np.isfinite(part).all()
    if factor <= 1e10:  # the squares of others have no sum in float32
        _, far, _ = added.of_all(network.double(), x.double(), rows=5)
        network.float()
        np.testing.assert_allclose(distance, far, atol=2e-5)
        assert np.isfinite(variance).all()
