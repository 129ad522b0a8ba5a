"""offline/network/outputs.py: what networks return is taken as outputs, or refused; one logit is served as two."""

from collections import namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from demur.offline import FitConfig, fit_bundle
from demur.offline.fit import dry_run
from demur.offline.jacobian.find_head import find_head
from demur.offline.network.outputs import OutputForm, output_form, refuse_sigmoid
from demur.service.inference.predictor import Prediction, Predictor
from tests import reference

# the exporter's own warnings
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("short_fits")]

Named = namedtuple("Named", ["auxiliary", "logits"])


@dataclass
class Answer:
    scores: Tensor


class Network(nn.Module):
    """Two layers whose outputs are packed by `pack`."""

    def __init__(self, outputs: int, pack: Callable[[Tensor], object] = lambda y: y) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body, self.last = nn.Sequential(nn.Linear(4, 6), nn.Tanh()), nn.Linear(6, outputs)
        self.pack = pack

    def forward(self, x: Tensor) -> object:
        return self.pack(self.last(self.body(x)))


class Two(nn.Module):
    """The two logits (0, f) of a network with one, as a user would write them."""

    def __init__(self, one: Network) -> None:
        super().__init__()
        self.body, self.last = one.body, one.last

    def forward(self, x: Tensor) -> Tensor:
        f = self.last(self.body(x))
        return torch.cat([torch.zeros_like(f), f], dim=1)


def data(count: int, seed: int, column: bool = True) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 4, generator=generator)
    y = (x[:, :1] + torch.randn(count, 1, generator=generator) > 0).float()
    return [(x, y if column else y.squeeze(1).long())]


def served(model: nn.Module, out: Path, x: Tensor, column: bool = True, **options: Any) -> Prediction:
    config = FitConfig.model_validate({"seed": 1, **options})
    folder = fit_bundle(model, data(60, 0, column), out, calibration_loader=data(120, 1, column), config=config)
    return Predictor.load(folder).predict(x.numpy())


ENTRIES: dict[str, tuple[Callable[[Tensor], object], str | int | None]] = {
    "tensor": (lambda y: y, None),
    "tuple": (lambda y: (y, [y]), 0),
    "list": (lambda y: [y], 0),
    "dict": (lambda y: {"hidden": [y], "logits": y}, "logits"),
    "only entry": (lambda y: {"scores": y}, "scores"),
    "named tuple": (lambda y: Named(y + 1, y), "logits"),
    "attribute": (lambda y: SimpleNamespace(logits=y), "logits"),
    "only field": (lambda y: Answer(y), "scores"),
}


@pytest.mark.parametrize(("pack", "entry"), ENTRIES.values(), ids=ENTRIES)
def test_the_outputs_are_found(pack: Callable[[Tensor], object], entry: str | int | None) -> None:
    y = torch.randn(3, 2)
    form = output_form(pack(y), 3, classification=True)
    assert form == OutputForm(entry)
    assert form.take(pack(y)) is y
    assert len(form.lines()) == (entry is not None)


REFUSED = {
    "None": (None, "found NoneType"),
    "empty tuple": ((), "found tuple"),
    "two entries": ({"a": torch.ones(3, 2), "b": torch.ones(3, 2)}, "found dict"),
    "a number": (torch.tensor(1.0), r"found \(\)"),
    "an image": (torch.ones(3, 2, 2), r"found \(3, 2, 2\), expected a tensor of shape \(3, outputs\)"),
    "one example": ((torch.ones(1, 2),), r"found \(1, 2\) as the first of them, expected"),
    "words": ({"logits": "yes"}, "found str as 'logits'"),
}


@pytest.mark.parametrize(("returned", "words"), REFUSED.values(), ids=REFUSED)
def test_other_things_are_refused(returned: object, words: str) -> None:
    with pytest.raises(ValueError, match=f"model output: {words}"):
        output_form(returned, 3, classification=True)


@pytest.mark.parametrize("shape", [(3,), (3, 1)])
def test_one_output_is_a_logit_of_a_classification_alone(shape: tuple[int, ...]) -> None:
    y = torch.arange(3.0).reshape(shape)
    assert output_form(y, 3, classification=False).take(y).tolist() == [[0], [1], [2]]
    assert output_form(y, 3, classification=True).take(y).tolist() == [[0, 0], [0, 1], [0, 2]]


PROBABILITIES: dict[str, nn.Module] = {
    "sigmoid": nn.Sequential(nn.Linear(4, 1), nn.Sigmoid()),
    "in place": Network(1, lambda y: y.sigmoid_()),
    "flat": Network(1, lambda y: torch.sigmoid(y).squeeze(-1)),
    "a dict": Network(1, lambda y: {"logits": torch.sigmoid(y)[:, 0]}),
    "softmax": Network(1, lambda y: y.softmax(1)),
    "kept off 0 and 1": Network(1, lambda y: torch.sigmoid(y).clamp(1e-7, 1 - 1e-7)),
    "of two heads": Network(2, lambda y: torch.cat([torch.sigmoid(y[:, :1]), torch.sigmoid(y[:, 1:])], 1)),
    "taken apart": Network(2, lambda y: torch.stack(y.sigmoid().unbind(1), 1)),
}


@pytest.mark.parametrize("network", PROBABILITIES.values(), ids=PROBABILITIES)
def test_a_probability_is_no_logit(network: nn.Module) -> None:
    with pytest.raises(ValueError, match=r"found an output that is a probability .* expected a logit"):
        refuse_sigmoid(network, torch.ones(2, 4), output_form(network(torch.ones(2, 4)), 2, classification=True))


@pytest.mark.parametrize("order", [lambda y: (y, y.softmax(1)), lambda y: {"probs": y.sigmoid(), "logits": y}])
def test_probabilities_beside_the_logits_are_no_output(order: Callable[[Tensor], object]) -> None:
    network = Network(3, order)
    refuse_sigmoid(network, torch.ones(2, 4), output_form(network(torch.ones(2, 4)), 2, classification=True))


def test_a_gate_before_the_last_layer_is_none() -> None:
    refuse_sigmoid(nn.Sequential(nn.Linear(4, 3), nn.Sigmoid(), nn.Linear(3, 1), nn.Flatten(0)), torch.ones(2, 4))


@pytest.mark.parametrize(
    "pack", [lambda y: y, lambda y: y.squeeze(-1), lambda y: y.squeeze()], ids=["column", "flat", "flat even alone"]
)
def test_one_logit_equals_the_oracle(pack: Callable[[Tensor], object], tmp_path: Path) -> None:
    """All weights, the Hessian of the binary cross-entropy and MacKay's probit approximation in float64."""
    network, x = Network(1, pack), data(8, 2)[0][0]
    options: dict[str, Any] = {
        "added_weights": False,
        "subnetwork_size": 1.0,
        "selection": "random",
        "prior_precision": 2.0,
    }
    found = served(network, tmp_path / "bundle", x, temperature=1.0, **options)
    mean, jacobian = reference.full_jacobian(Network(1), data(60, 0)[0][0])
    at_mean, at_jacobian = reference.full_jacobian(Network(1), x)
    expected = reference.binary_probabilities(mean[:, 0], jacobian[:, 0], 2.0, at=(at_mean[:, 0], at_jacobian[:, 0]))
    assert found.probabilities is not None
    np.testing.assert_allclose(found.probabilities[:, 1], expected, rtol=1e-5)
    np.testing.assert_allclose(found.mean[:, 1], at_mean[:, 0], rtol=1e-5, atol=1e-6)
    assert (found.variance[:, 0] == 0).all()


@pytest.mark.slow
def test_one_logit_answers_like_two_of_the_same_network(tmp_path: Path) -> None:
    """Fitted by defaults: with a column of zeros and ones, and with class numbers."""
    x = torch.cat([data(40, 2)[0][0], 30 * torch.ones(1, 4)])
    one = served(Network(1, lambda y: y.squeeze(-1)), tmp_path / "one", x)
    two = served(Two(Network(1)), tmp_path / "two", x, column=False)
    assert one.probabilities is not None
    assert two.probabilities is not None
    np.testing.assert_allclose(one.probabilities, two.probabilities, atol=1e-6)
    np.testing.assert_array_equal(one.rejected, two.rejected)
    assert one.rejected[-1]


def test_a_fit_says_what_it_takes_for_the_outputs(tmp_path: Path) -> None:
    network = Network(1, lambda y: (y.squeeze(-1), y))
    lines = dry_run(network, data(60, 0), FitConfig(), calibration_loader=data(120, 1))
    assert lines[0] == "the model returns several things: its outputs are the first of them"
    assert lines[1] == "the model has one logit, that of class 1: served as two, 0 and this one"


@pytest.mark.parametrize(("classification", "head"), [(False, "last"), (True, None)])
def test_a_flat_output_of_a_regression_keeps_its_linear_head(classification: bool, head: str | None) -> None:
    """And two logits that were made of one are no output of a linear layer."""
    network, x = Network(1, lambda y: y.squeeze(-1)).eval(), torch.ones(2, 4)
    output_form(network(x), 2, classification).install(network)
    found = find_head(network, x)
    assert (found and found.path) == head
