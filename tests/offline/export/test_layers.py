"""Layers of torch.nn, and functions that networks call: exported and equal to plain differentiation, or refused.

All are tried among the slow tests, one of every kind among the others. Those that take the same shape are exported in
one network: an export of one layer spends more on what is around it than on the layer.
"""

import inspect
import re
from collections.abc import Sequence
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
from tests.support.layer_cases import (
    CASES,
    FUNCTIONS,
    LAYERS,
    OUTPUTS,
    Beside,
    Case,
    network,
    networks_beside,
    side_by_side,
)
from tests.support.tiers import quick_among
from tests.support.together import try_together

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
# Each is a part of nn.Transformer, made with the same arguments, and so of its case.
IN_TRANSFORMER = {"TransformerEncoderLayer", "TransformerEncoder", "TransformerDecoderLayer", "TransformerDecoder"}
SERVED = [name for name, case in CASES.items() if case.refusal is None and name not in IN_TRANSFORMER]
REFUSED = [name for name, case in CASES.items() if case.refusal is not None]
TOLERANCE = 1e-4
# The largest derivative of a transformer is some ten times that of a layer by itself, to which its own case was held.
TOLERANCES = {"Transformer": 5e-6}
CHOSEN = 4  # entries of each parameter, and of the head's weights for each layer
MOST = 12  # layers in one network


def export(model: nn.Module, inputs: Tensor, outputs: int = OUTPUTS) -> tuple[bytes, np.ndarray[Any, Any]]:
    """The graph and the positions of the chosen weights; raises as a fit does."""
    copied = private_copy(model, torch.device("cpu"))
    check_private(model, copied, inputs)
    layout, generator = WeightLayout.of(model), np.random.default_rng(0)
    chosen = []
    for parameter in layout.parameters:
        among = [np.arange(parameter.size)]
        if isinstance(model, Beside) and parameter.name == "head.weight":
            among = [places.numpy() for places in model.own_weights()]
        elif isinstance(model, Beside) and parameter.name == "head.bias":
            among = np.split(among[0], len(model.widths))
        parts = [np.sort(generator.choice(places, min(CHOSEN, len(places)), replace=False)) for places in among]
        chosen += [parameter.offset + part for part in parts]
    indices = np.concatenate(chosen)
    graph, _ = export_jacobian(
        make_jacobian(copied, layout, torch.as_tensor(indices), inputs), inputs, EveryOutput(outputs)
    )
    return graph, indices


def relative_errors(names: Sequence[str]) -> dict[str, float]:
    """For each layer, the largest of mean and Jacobian, with three examples and with one; relative to the largest entry
    of its outputs.

    Weights of a Linear below the layers, of the layers themselves, on which the outputs of others do not depend, and of
    a Linear above.
    """
    model, inputs = networks_beside(names)
    graph, indices = export(model, inputs, OUTPUTS * len(names))
    mean, jacobian = reference.full_jacobian(model, inputs)
    expected = {"mean": mean, "jacobian": jacobian[:, :, indices]}
    session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
    errors = dict.fromkeys(names, 0.0)
    for rows in (slice(0, 3), slice(1, 2)):
        found = session.run(list(expected), {"inputs": inputs[rows].numpy()})
        for f, e in zip(found, expected.values(), strict=True):
            assert f.shape == e[rows].shape
            for at, name in enumerate(names):
                own = slice(at * OUTPUTS, (at + 1) * OUTPUTS)
                error = np.abs(f[:, own] - e[rows, own]).max() / np.abs(e[:, own]).max()
                errors[name] = float(np.maximum(errors[name], error))  # which keeps NaN
    return errors


def check(names: Sequence[str]) -> None:
    errors = relative_errors(names)
    wrong = {name: error for name, error in errors.items() if not error < TOLERANCES.get(name, TOLERANCE)}
    assert not wrong, wrong


def test_every_layer_of_torch_has_a_case() -> None:
    """A layer that a later torch adds fails here until it has one."""
    layers = {
        name
        for name, kind in inspect.getmembers(nn, inspect.isclass)
        if issubclass(kind, nn.Module) and kind.__module__ != "torch.nn.modules.loss" and not name.startswith("Lazy")
    }
    assert layers - NO_LAYERS == set(LAYERS)
    assert not set(LAYERS) & set(FUNCTIONS)


def groups() -> list[Any]:
    """Layers to be exported together, named by all of them: the quick ones, and the others among the slow tests."""
    quick = [pytest.param(names, id=" ".join(names)) for names in side_by_side(QUICK, MOST)]
    others = side_by_side([name for name in SERVED if name not in QUICK], MOST)
    return [*quick, *(pytest.param(names, id=" ".join(names), marks=pytest.mark.slow) for names in others)]


@pytest.mark.parametrize("names", groups())
def test_layers_are_served_as_plain_differentiation_has_them(names: tuple[str, ...]) -> None:
    try_together(check, names)


def test_a_transformer_holds_the_layers_that_have_no_export_of_their_own() -> None:
    held = {type(layer).__name__: layer for layer in CASES["Transformer"].build().modules()}
    for name in IN_TRANSFORMER:
        own, inside = CASES[name].build(), held[name]
        assert str(getattr(own, "layers", own)) == str(getattr(inside, "layers", inside))


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
