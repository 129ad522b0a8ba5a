"""Layers of torch.nn, and functions that networks call: exported and equal to plain differentiation, or refused.

Of every kind some are tried here, and all that once failed; `python -m benchmarks layers` tries the whole list.
"""

import inspect
import re

import pytest
from torch import nn

from benchmarks.fit.layer_cases import FUNCTIONS, LAYERS, network
from benchmarks.fit.layers import CASES, TOLERANCE, export, relative_error
from probity.offline.export.errors import ExportError
from tests import reference
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
KINDS = {
    "activations": "SiLU Mish Hardswish RReLU GLU Softmax",
    "normalisation": "GroupNorm RMSNorm LocalResponseNorm",
    "pooling": "AdaptiveMaxPool2d MaxUnpool1d adaptive_avg_pool2d-channels-last",
    "padding": "ReplicationPad2d ReflectionPad1d",
    "resolution": "PixelShuffle UpsamplingBilinear2d",
    "weights": "Bilinear",
    "recurrent": "GRUCell",
    "attention": "MultiheadAttention scaled_dot_product_attention scaled_dot_product_attention-grouped",
    "functions": "std var prod median fft nan_to_num index-examples",
}
TRIED = [name for names in KINDS.values() for name in names.split()]
QUICK = [names.split()[0] for names in KINDS.values()]
REFUSED = ["CrossMapLRN2d", "FractionalMaxPool2d", "if"]


def test_every_layer_of_torch_has_a_case() -> None:
    """A layer that a later torch adds fails here until it has one."""
    layers = {
        name
        for name, kind in inspect.getmembers(nn, inspect.isclass)
        if issubclass(kind, nn.Module) and kind.__module__ != "torch.nn.modules.loss" and not name.startswith("Lazy")
    }
    assert layers - NO_LAYERS == set(LAYERS)
    assert not set(LAYERS) & set(FUNCTIONS)


@pytest.mark.parametrize("name", quick_among(TRIED, QUICK))
def test_a_layer_is_served_as_plain_differentiation_has_it(name: str) -> None:
    assert relative_error(CASES[name], reference.full_jacobian) < TOLERANCE


@pytest.mark.parametrize("name", REFUSED)
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
