"""Named mistakes: against the definition, and what must hold whatever the data are."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from demur.offline.data.changes import stream, value_range
from demur.offline.features.mistakes import (
    LEAST_EXAMPLES,
    TABLES,
    Mistakes,
    _auroc,
    _discriminant,
    image_mistakes,
    possible_mistakes,
)
from demur.service.maths.score_distribution import ScoreDistribution
from demur.service.maths.scores import MistakeName
from tests.reference import mistakes as reference

NOTHING = nn.Identity()
Defined = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]


def rows(count: int, seed: int = 0) -> Tensor:
    """A table whose columns have means and deviations of their own."""
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(count, 4, generator=draw) * torch.tensor([1.0, 0.2, 3.0, 1.0]) + torch.tensor([4.0, -3, 9, 20])


def images(count: int, channels: int = 3) -> Tensor:
    return torch.rand(count, channels, 5, 4, generator=torch.Generator().manual_seed(1)) ** 2


def read(x: Tensor) -> Tensor:
    return x.flatten(1).double()


def fitted(inputs: Tensor, network: nn.Module = NOTHING) -> Mistakes | None:
    return Mistakes.fit(read, network, inputs, possible_mistakes(inputs, None), seed=0, rows=64)


def test_the_discriminant_is_that_of_the_definition() -> None:
    ordinary, mistaken = rows(30).double(), rows(30, 1).flip(1).double()
    ordinary[:, 1] = 2.0  # without any deviation
    expected = reference.discriminant(ordinary.numpy(), mistaken.numpy())
    np.testing.assert_allclose(_discriminant(ordinary, mistaken).numpy(), expected, rtol=1e-9)


def test_the_auroc_is_that_of_the_definition() -> None:
    usual, wrong = (torch.randint(low, 9, (20,), generator=stream(0, low)).double() for low in (0, 3))
    assert _auroc(usual, wrong) == pytest.approx(reference.auroc(usual.numpy(), wrong.numpy()))


@pytest.mark.parametrize(
    ("name", "defined"), [("solarised", reference.solarised), ("channels-swapped", reference.swapped)]
)
def test_images_with_a_mistake_are_those_of_the_definition(name: MistakeName, defined: Defined) -> None:
    x = images(6).double() * torch.tensor([1.0, 2.0, 5.0]).reshape(3, 1, 1) - 1
    make, (low, high) = image_mistakes(*value_range(x))[name], (end.flatten().numpy() for end in value_range(x))
    expected = [defined(image, low, high) for image in x.numpy()]
    found = make(x, torch.Generator())
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-12, atol=1e-12)
    if name == "channels-swapped":
        torch.testing.assert_close(make(found, torch.Generator()), x)


def test_rows_with_a_mistake() -> None:
    x = rows(200)
    exchanged = TABLES["columns-exchanged"](x, stream(0, 1))
    assert ((exchanged != x).sum(1) == 2).all()
    torch.testing.assert_close(exchanged.sort(1).values, x.sort(1).values)
    for name, factor in (("column-times-10", 10.0), ("column-by-10", 0.1)):
        scaled = TABLES[name](x, stream(0, 1))  # type: ignore[index]
        ratios = scaled / x
        other = ~torch.isclose(ratios, torch.ones(()), atol=1e-4)
        assert (other.sum(1) == 1).all()
        torch.testing.assert_close(ratios[other], torch.full((200,), factor), rtol=1e-4, atol=0)


def test_what_inputs_allow() -> None:
    names = {"inverted", "upside-down", "solarised"}
    assert possible_mistakes(images(LEAST_EXAMPLES), None).keys() == names | {"channels-swapped"}
    assert possible_mistakes(images(LEAST_EXAMPLES, 1), None).keys() == names
    assert possible_mistakes(rows(LEAST_EXAMPLES), None) == TABLES
    few, counts = rows(LEAST_EXAMPLES - 1), torch.zeros(LEAST_EXAMPLES, 4, dtype=torch.int64)
    for other in (few, counts, images(LEAST_EXAMPLES, 2), rows(LEAST_EXAMPLES)[:, :1], images(LEAST_EXAMPLES)[0]):
        assert not possible_mistakes(other, None)


@pytest.mark.parametrize("count", [LEAST_EXAMPLES, 1000])
def test_what_can_be_told_is_told_and_ordinary_inputs_are_not_named(count: int) -> None:
    found = fitted(rows(count))
    assert found is not None
    assert "columns-reversed" in found.names
    new = rows(4000, 2)
    assert float((found(read(new)) > 0).any(1).double().mean()) < 0.012  # three times what is meant
    likeness = found(read(new.flip(1)))
    first = [found.names[place] for place in likeness.argmax(1).tolist()]
    assert first.count("columns-reversed") + first.count("columns-exchanged") > len(first) / 2
    assert float((likeness > 0).any(1).double().mean()) > 0.99
    torch.testing.assert_close(found(read(new[:1])), found(read(new))[:1])


def test_what_cannot_be_told_has_no_discriminant() -> None:
    alike = torch.randn(400, 4, generator=stream(0, 0))
    told = fitted(alike)
    assert told is None or not {"columns-reversed", "columns-exchanged", "column-by-10"} & {*told.names}
    grey = fitted(images(400, 1).expand(-1, 3, -1, -1).contiguous())
    assert grey is None or "channels-swapped" not in grey.names
    assert fitted(torch.ones(400, 4)) is None


class Table(nn.Module):
    """Looks values up, and ends where there are none."""

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = torch.arange(60.0)[x.long()]
        return found


def test_a_network_that_refuses_a_mistake_is_not_taught_it() -> None:
    x = rows(400).abs()
    found, sturdy = fitted(x, Table()), fitted(x)
    assert found is not None
    assert sturdy is not None
    assert "column-times-10" in sturdy.names
    assert "column-times-10" not in found.names


@pytest.mark.parametrize("shape", [0.0, 0.4])
def test_a_score_of_a_surprise_is_the_inverse(shape: float) -> None:
    distribution = ScoreDistribution(np.array([0.0, 2.0]), np.array([0.0, math.log(10)]), 0.3, shape)
    for surprise in (0.0, 1.0, math.log(10), 4.0, 9.0):
        value = distribution.value_at(surprise)
        assert float(distribution.surprise_at(np.array([value]))[0]) == pytest.approx(surprise)
