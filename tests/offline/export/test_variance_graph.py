"""The variances in the graph, in blocks or by the whole factor, in onnxruntime."""

import numpy as np
import pytest
import torch
from torch import nn

from demur.offline.export.graph import export_variance
from demur.offline.jacobian.find_head import find_head
from demur.offline.jacobian.plan import make_jacobian
from demur.offline.laplace.block_factor import BlockFactor
from demur.offline.laplace.served_factor import HeadFactor, WholeFactor, served_factor
from demur.offline.network.model_copy import private_copy
from demur.offline.network.weights import WeightLayout
from demur.service.inference.onnx_runtime import onnxruntime
from demur.service.maths.posterior_factor import CholeskyPosterior
from tests import reference
from tests.support.heads import build_head
from tests.support.networks import NETWORKS, build

pytestmark = pytest.mark.filterwarnings("ignore")  # the exporter's own deprecations are not ours to mend

MOST = 2**20


def posterior_of(size: int) -> tuple[CholeskyPosterior, np.ndarray]:
    """The posterior, and its precision."""
    generator = np.random.default_rng(size)
    vectors = np.linalg.qr(generator.normal(size=(size, size)))[0]
    values = np.zeros(size)
    rank = max(1, size // 3)
    values[:rank] = generator.uniform(0.5, 20, size=rank)
    precision = vectors @ np.diag(values + 0.3) @ vectors.T
    return CholeskyPosterior(np.linalg.cholesky(np.linalg.inv(precision))), precision


def run(model: bytes, inputs: torch.Tensor) -> np.ndarray:
    """The variances of all examples, which are those of each alone."""
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    batches = [inputs, *inputs.split(1)]
    joint, *alone = [session.run(["variance"], {"inputs": batch.numpy()})[0] for batch in batches]
    np.testing.assert_allclose(np.concatenate(alone), joint, rtol=1e-4)
    found: np.ndarray = joint
    return found


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("residual", marks=pytest.mark.slow),
        "perceptron",
        "normalised-together",
        pytest.param("attention", marks=pytest.mark.slow),
        pytest.param("scaled", marks=pytest.mark.slow),
        pytest.param("other-use", marks=pytest.mark.slow),
    ],
)
def test_by_the_whole_factor(name: str) -> None:
    network, inputs = build_head(name) if name not in NETWORKS else build(name)[:2]
    layout = WeightLayout.of(network)
    indices = (
        torch.randperm(layout.total, generator=torch.Generator().manual_seed(3))[: layout.total // 2].sort().values
    )
    copied = private_copy(network, torch.device("cpu"))
    jacobian = make_jacobian(copied, layout, indices, inputs, find_head(copied, inputs))
    posterior, precision = posterior_of(len(indices))
    mean, truth = reference.full_jacobian(network, inputs)
    factor = served_factor(jacobian, posterior, mean.shape[1], most=0)
    assert isinstance(factor, WholeFactor)
    found = run(export_variance(jacobian, inputs, mean.shape[1], factor)[0], inputs)
    expected = reference.variance(truth[:, :, indices.numpy()], precision)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6 * expected.max())


@pytest.mark.parametrize("width", [6, 230])
def test_whole_head(width: int) -> None:
    """In one panel, and in several."""
    torch.manual_seed(0)
    network, inputs = nn.Sequential(nn.Linear(5, width), nn.Tanh(), nn.Linear(width, 2)), torch.randn(4, 5)
    layout = WeightLayout.of(network)
    copied, indices = (
        private_copy(network, torch.device("cpu")),
        torch.arange(layout.total - 2 * (width + 1), layout.total),
    )
    jacobian = make_jacobian(copied, layout, indices, inputs, find_head(copied, inputs))
    posterior, precision = posterior_of(len(indices))
    factor = served_factor(jacobian, posterior, 2, MOST)
    assert isinstance(factor, HeadFactor)
    found = run(export_variance(jacobian, inputs, 2, factor)[0], inputs)
    expected = reference.variance(reference.full_jacobian(network, inputs)[1][:, :, indices.numpy()], precision)
    np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_in_blocks_where_these_have_few_numbers_and_as_it_is_otherwise() -> None:
    network, inputs = build_head("perceptron")
    copied, layout = private_copy(network, torch.device("cpu")), WeightLayout.of(network)
    posterior, _ = posterior_of(layout.total)
    every = make_jacobian(copied, layout, torch.arange(layout.total), inputs, find_head(copied, inputs))
    assert isinstance(served_factor(every, posterior, 3, MOST), BlockFactor)
    assert isinstance(served_factor(every, posterior, 3, 10), WholeFactor)
