"""The noise that a network tells: against the definition, for each reading."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from demur.offline.features.told_noise import ToldNoise
from demur.offline.network.outputs import OutputForm, output_form
from tests import reference

READINGS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "log variance": lambda v: np.log(v),
    "variance": lambda v: v,
    "standard deviation": np.sqrt,
    "another": lambda v: 1 / v,  # the larger, the less noise
}


class Told(nn.Module):
    """Gives its inputs beside the means."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return torch.zeros_like(x), x


@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("reading", READINGS)
def test_equals_the_definition(reading: str, outputs: int) -> None:
    rng = np.random.default_rng(0)
    variance = np.exp(rng.normal(size=(300, outputs)))
    squares = variance * np.square(rng.normal(size=variance.shape))
    squares /= squares.mean(axis=0)
    values = torch.from_numpy(READINGS[reading](variance))
    network, form = Told(), output_form(Told()(values), 300, classification=False, targets=outputs)
    form.install(network)
    expected, found = reference.told_noise(values.numpy(), squares), ToldNoise.fit(form, network, values, squares)
    if reading == "another":
        assert expected is None
        assert found is None
        return
    assert expected is not None
    assert found is not None
    told, noise, scale = found
    assert told.reading == expected[0] == reading
    np.testing.assert_allclose(scale, expected[1], rtol=1e-9)
    near = torch.zeros(1, 1).double()
    np.testing.assert_allclose(noise(told(network, values), torch.zeros_like(values), near), scale, rtol=1e-9)
    far = noise(told(network, 1e3 * values - 1e5), torch.zeros_like(values), near).numpy()
    assert (far >= scale.min(axis=0) * (1 - 1e-9)).all()
    assert (far <= scale.max(axis=0) * (1 + 1e-9)).all()


@pytest.mark.parametrize(
    "values", [np.full(300, 0.3), np.random.default_rng(1).normal(0, 0.05, 300)], ids=["one", "random"]
)
def test_what_gains_no_more_than_chance_explains_is_not_taken(values: np.ndarray) -> None:
    squares = np.square(np.random.default_rng(2).normal(size=(300, 1)))
    squares /= squares.mean()
    told = torch.from_numpy(values).unsqueeze(1)
    form = output_form(Told()(told), 300, classification=False, targets=1)
    network = Told()
    form.install(network)
    assert reference.told_noise(told.numpy(), squares) is None
    assert ToldNoise.fit(form, network, told, squares) is None


def test_means_alone_tell_no_noise() -> None:
    network = nn.Linear(2, 1)
    assert ToldNoise.fit(OutputForm(), network, torch.zeros(3, 2), np.ones((3, 1))) is None
