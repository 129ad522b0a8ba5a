"""tests/TRAPS.md tells the truth, and the traps that no other test holds."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from demur.offline.data.likelihood import likelihood_of
from demur.offline.jacobian.plan import make_jacobian
from demur.offline.laplace.ggn import accumulate_ggn
from demur.offline.network.model_copy import private_copy
from demur.offline.network.weights import WeightLayout
from demur.service.maths.predictive import link_approx, softmax
from tests.support.cases import CASES, Case

TESTS = Path(__file__).parent


def test_every_test_that_the_table_names_exists() -> None:
    defined = {name for file in TESTS.rglob("test_*.py") for name in re.findall(r"def (test_\w+)\(", file.read_text())}
    named = set(re.findall(r"`(test_\w+)`", (TESTS / "TRAPS.md").read_text()))
    assert len(named) > 20
    assert named <= defined, sorted(named - defined)


def test_label_and_map_label_may_differ() -> None:
    """Each logit is scaled by its own variance: the surest class may win over the largest logit."""
    mean, variance = np.array([[2.0, 1.9]]), np.array([[30.0, 0.0]])
    assert softmax(mean).argmax() == 0
    assert link_approx(mean, variance).argmax() == 1
    assert not np.allclose(link_approx(mean + 5, variance), link_approx(mean, variance))


def test_frozen_parameters_are_never_chosen() -> None:
    """To leave out norms and biases, as the paper's code does, freeze them: they count neither in D nor in S."""
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(72, 3))
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name.endswith("weight") and not name.startswith("1."))
    layout = WeightLayout.of(model)
    assert [parameter.name for parameter in layout.parameters] == ["0.weight", "3.weight"]
    assert layout.total == 18 + 216


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU; none can be used here")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_gpu_equals_cpu(case: Case) -> None:
    results = []
    for name in ("cpu", "cuda"):
        device, model = torch.device(name), case.model()
        layout = WeightLayout.of(model)
        inputs, targets = (part.to(device) for part in case.data(12))
        indices = torch.arange(0, layout.total, 3)
        jacobian = make_jacobian(private_copy(model, device), layout, indices, inputs)
        results.append(accumulate_ggn(jacobian, [(inputs, targets)], likelihood_of(case.likelihood, case.outputs)).ggn)
    scale = float(results[0].abs().max())
    torch.testing.assert_close(results[1], results[0], rtol=1e-4, atol=1e-5 * scale)
