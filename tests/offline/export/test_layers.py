"""Layers of torch.nn, and functions that networks call: exported and equal to plain differentiation, or refused.

All are tried among the slow tests, one of every kind among the others.
"""

import inspect
import re
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from demur.offline.export.errors import ExportError
from demur.offline.export.graph import export_jacobian
from demur.offline.jacobian.mixtures import EveryOutput
from demur.offline.jacobian.plan import make_jacobian
from demur.offline.network.model_check import check_private
from demur.offline.network.model_copy import private_copy
from demur.offline.network.weights import WeightLayout
from demur.service.inference.onnx_runtime import onnxruntime
from tests import reference
from tests.support.layer_cases import FUNCTIONS, LAYERS, OUTPUTS, Case, network
from tests.support.tiers import quick_among

pytestmark = pytest.mark.filterwarnings("ignore")  # the exporter's own deprecations are not ours to mend

# What is no layer with one tensor in and one out, or becomes another layer when it is first called.
NO_LAYERS = {
    "Module",
    "Container",
    "Sequential",
    "ModuleList",
    "ModuleDict",
    "ParameterList",
    "ParameterDict",
    "DataParallel",
    "RNNBase",
    "RNNCellBase",
}
QUICK = [
    *("SiLU", "GroupNorm", "AdaptiveMaxPool2d", "ReplicationPad2d", "PixelShuffle", "Bilinear", "GRUCell"),
    *("MultiheadAttention", "std"),
]
CASES = {**LAYERS, **FUNCTIONS}
SERVED = [name for name, case in CASES.items() if case.refusal is None]
REFUSED = [name for name, case in CASES.items() if case.refusal is not None]
TOLERANCE = 1e-4
CHOSEN = 4  # entries of each parameter


def export(model: nn.Module, inputs: Tensor) -> tuple[bytes, np.ndarray[Any, Any]]:
    """The graph and the positions of the chosen weights; raises as a fit does."""
    copied = private_copy(model, torch.device("cpu"))
    check_private(model, copied, inputs)
    layout, generator = WeightLayout.of(model), np.random.default_rng(0)
    chosen = [
        parameter.offset + np.sort(generator.choice(parameter.size, min(CHOSEN, parameter.size), replace=False))
        for parameter in layout.parameters
    ]
    indices = np.concatenate(chosen)
    graph, _ = export_jacobian(
        make_jacobian(copied, layout, torch.as_tensor(indices), inputs), inputs, EveryOutput(OUTPUTS)
    )
    return graph, indices


def relative_error(case: Case) -> float:
    """The largest of mean and Jacobian, with three examples and with one; relative to the largest entry.

    Weights of a Linear below the layer, of the layer itself and of a Linear above.
    """
    model, inputs = network(case)
    graph, indices = export(model, inputs)
    mean, jacobian = reference.full_jacobian(model, inputs)
    expected = {"mean": mean, "jacobian": jacobian[:, :, indices]}
    session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
    errors = []
    for rows in (slice(0, 3), slice(1, 2)):
        found = session.run(list(expected), {"inputs": inputs[rows].numpy()})
        errors += [np.abs(f - e[rows]).max() / np.abs(e).max() for f, e in zip(found, expected.values(), strict=True)]
    return float(np.max(errors))


def test_every_layer_of_torch_has_a_case() -> None:
    """A layer that a later torch adds fails here until it has one."""
    layers = {
        name
        for name, kind in inspect.getmembers(nn, inspect.isclass)
        if issubclass(kind, nn.Module) and kind.__module__ != "torch.nn.modules.loss" and not name.startswith("Lazy")
    }
    assert layers - NO_LAYERS == set(LAYERS)
    assert not set(LAYERS) & set(FUNCTIONS)


@pytest.mark.parametrize("name", quick_among(SERVED, QUICK))
def test_a_layer_is_served_as_plain_differentiation_has_it(name: str) -> None:
    assert relative_error(CASES[name]) < TOLERANCE


@pytest.mark.parametrize("name", quick_among(REFUSED, ["CrossMapLRN2d", "FractionalMaxPool2d", "if"]))
def test_what_cannot_be_served_is_refused_by_name_with_a_remedy(name: str) -> None:
    """As a fit does it: the check of the copy first, then the export."""
    case = CASES[name]
    assert case.refusal is not None
    with pytest.raises((ExportError, ValueError), match=case.refusal) as caught:
        export(*network(case))
    assert re.search(r"layer 'layer' \(\w+\)", str(caught.value))
    if isinstance(caught.value, ExportError):
        assert (caught.value.layer, caught.value.kind) == ("layer", type(case.build()).__name__)
        assert caught.value.remedy


def test_a_parametrised_layer_is_made_permanent() -> None:
    case = Case(lambda: nn.utils.parametrizations.orthogonal(nn.Linear(6, 6)), (6,))
    with pytest.raises(ExportError, match=r"'layer' computes of its weight permanent: .*\(layer, 'weight'\)"):
        export(*network(case))
