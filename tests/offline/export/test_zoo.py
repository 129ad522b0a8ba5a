"""Real architectures in miniature: Jacobians of weights anywhere, their ONNX graphs, and whole bundles.

Every parameter tensor has some chosen entries, among them one on which the outputs depend where there is any.
"""

import functools
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import Tensor, nn

from benchmarks.fit.networks.zoo import FULL, MINIATURE, network_spec
from demur.offline import FitConfig, fit_bundle
from demur.offline.export.graph import export_jacobian
from demur.offline.jacobian.mixtures import EveryOutput
from demur.offline.jacobian.plan import make_jacobian
from demur.offline.network.model_copy import private_copy
from demur.offline.network.weights import WeightLayout
from demur.service import Predictor, read_bundle
from demur.service.inference.onnx_runtime import onnxruntime
from tests import reference
from tests.support.tiers import quick_among

# torch warns of its own accord about kernels that vmap handles slowly, and the exporter about its own deprecations.
pytestmark = pytest.mark.filterwarnings("ignore")

NEEDS_TRANSFORMERS = ("vit", "bert", "mobilevit", "llama", "efficientnet", "mobilenet-v2", "convnext", "swin")
BATCH = 3
TESTED = sorted(set(MINIATURE) - {"wrn-28-10"})  # in miniature it is wrn-16-4 again, only wider
FULL_SIZE_ONLY = ("unet-encoder", "mobilevit", "mobilenet-v2")  # exported by `python -m benchmarks bundles`
BUNDLED = ("conv1d", "lstm")  # a whole fit each, in which the graph is verified too


@dataclass(frozen=True)
class Truth:
    """A miniature, its inputs, the chosen indices and what float64 differentiation says of them."""

    model: nn.Module
    layout: WeightLayout
    inputs: Tensor
    indices: Tensor
    mean: npt.NDArray[np.float64]
    jacobian: npt.NDArray[np.float64]


@functools.cache
def truth(name: str) -> Truth:
    if name in NEEDS_TRANSFORMERS:
        pytest.importorskip("transformers", reason="transformers is not installed (make test installs it)")
    network = network_spec(name, "miniature")
    model, (inputs, _) = network.model(), network.data(BATCH)
    mean, jacobian = reference.full_jacobian(model, inputs)
    layout = WeightLayout.of(model)
    indices = choose(layout, np.abs(jacobian).max((0, 1)))
    return Truth(model, layout, inputs, indices, mean, jacobian[:, :, indices.numpy()])


def choose(layout: WeightLayout, reach: npt.NDArray[np.float64]) -> Tensor:
    """A third of each tensor, at most five entries, and its most influential one."""
    generator = np.random.default_rng(0)
    chosen = []
    for parameter in layout.parameters:
        inside = generator.choice(parameter.size, min(5, -(-parameter.size // 3)), replace=False)
        strongest = np.argmax(reach[parameter.offset : parameter.offset + parameter.size])
        chosen.append(parameter.offset + np.union1d(inside, strongest))
    return torch.as_tensor(np.concatenate(chosen))


def assert_close(case: Truth, found: npt.NDArray[np.floating], rows: slice, tolerance: float) -> None:
    """Each entry, relative to itself and to the largest of its parameter tensor: norms and biases count as much.

    The floor is for tensors that no output depends on, such as a key's bias in attention: nothing but rounding.
    """
    expected = case.jacobian[rows]
    assert found.shape == expected.shape
    start = 0
    for parameter, positions in case.layout.locate(case.indices):
        part = slice(start, start + len(positions))
        start = part.stop
        scale = max(np.abs(expected[:, :, part]).max(), 2e-3 * np.abs(expected).max())
        np.testing.assert_allclose(
            found[:, :, part], expected[:, :, part], rtol=tolerance, atol=tolerance * scale, err_msg=parameter.name
        )


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("name", TESTED)
def test_jacobian_equals_plain_differentiation(name: str, dtype: torch.dtype) -> None:
    case = truth(name)
    network = private_copy(case.model, torch.device("cpu"), dtype)
    inputs = case.inputs.to(dtype) if case.inputs.is_floating_point() else case.inputs
    mean, found = make_jacobian(network, case.layout, case.indices, inputs)(inputs)
    tolerance = 1e-5 if dtype == torch.float64 else 1e-4
    np.testing.assert_allclose(mean.numpy(), case.mean, rtol=tolerance, atol=tolerance)
    assert_close(case, found.numpy(), slice(None), tolerance)


@pytest.mark.parametrize("name", quick_among(sorted(set(TESTED) - {*BUNDLED, *FULL_SIZE_ONLY}), {"mlp", "small-cnn"}))
def test_onnxruntime_equals_plain_differentiation(name: str) -> None:
    case = truth(name)
    jacobian = make_jacobian(private_copy(case.model, torch.device("cpu")), case.layout, case.indices, case.inputs)
    model, _ = export_jacobian(jacobian, case.inputs, EveryOutput(case.mean.shape[1]))
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    for rows in (slice(0, BATCH), slice(1, 2)):
        mean, found = session.run(["mean", "jacobian"], {"inputs": case.inputs[rows].numpy()})
        np.testing.assert_allclose(mean, case.mean[rows], rtol=1e-4, atol=1e-4)
        assert_close(case, found, rows, 1e-4)


def test_full_sizes() -> None:
    """The number of weights of the networks that are raced: D of the literature, heads for ten classes."""
    expected = {"lenet": 61_706, "resnet18": 11_173_962, "resnet50": 23_520_842, "wrn-28-10": 36_479_194}
    for name, count in expected.items():
        with torch.device("meta"):
            model = FULL[name].build(FULL[name].outputs)
        assert sum(p.numel() for p in model.parameters()) == count, name


def test_the_same_seed_gives_the_same_network_and_leaves_the_generator() -> None:
    state = torch.get_rng_state()
    first, second = (network_spec("resnet18", "miniature").model(seed=4).state_dict() for _ in range(2))
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(first[key], second[key]) for key in first)


def test_an_unknown_network_is_refused_with_the_names_there_are() -> None:
    with pytest.raises(ValueError, match=r"found 'resnet19', expected one of mlp, lenet"):
        network_spec("resnet19")


@pytest.mark.slow
@pytest.mark.usefixtures("short_fits")
@pytest.mark.parametrize("name", BUNDLED)
def test_a_verified_bundle(name: str, tmp_path: Path) -> None:
    network = network_spec(name, "miniature")
    inputs, targets = network.data(60)
    batches = list(zip(inputs.split(20), targets.split(20), strict=True))
    config = FitConfig(subnetwork_size=60, selection="random", prior_precision=10.0, seed=2)
    fit_bundle(network.model(), batches[:1], tmp_path / "bundle", calibration_loader=batches[1:], config=config)
    verification = read_bundle(tmp_path / "bundle").manifest.verification
    assert verification is not None
    # Its 20 examples lie nearly within their leading directions: what lies outside is a difference of numbers that are
    # alike, and torch's own float32 is off by more than 4e-4.
    assert verification.variance_error <= (2e-4 if name == "conv1d" else 1e-4)
    answer = Predictor.load(tmp_path / "bundle").predict(inputs[:BATCH].numpy())
    expected = reference.full_jacobian(network.model(), inputs[:BATCH])[0]
    np.testing.assert_allclose(answer.mean, expected, rtol=1e-4, atol=1e-5)
