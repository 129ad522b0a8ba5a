"""Obvious foreigners: deterministic, finite, what their names say, and never a change to what was given."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from demur.offline.data.changes import kind_of
from demur.offline.data.foreigners import is_judged, obvious_foreigners

NAMES = {
    "images": {"noise", "constant", "inverted", "scaled-by-10", "scaled-by-255", "shuffled-pixels"},
    "table": {"column-noise", "scaled-by-10", "scaled-by-100", "zeros", "reversed-columns"},
    "tokens": {"random-tokens", "constant-token"},
    "other": {"noise", "constant", "scaled-by-10", "scaled-by-100"},
}


def batch(kind: str, count: int = 6) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    if kind == "tokens":
        return torch.randint(3, 19, (count, 9), generator=generator)
    shape = {"images": (3, 8, 7), "table": (5,), "other": (4, 7)}[kind]
    return torch.randn(count, *shape, generator=generator)


@pytest.mark.parametrize("kind", NAMES)
def test_every_kind_has_its_foreigners(kind: str) -> None:
    inputs = batch(kind)
    before = inputs.clone()
    foreigners = obvious_foreigners(inputs, 0)
    assert kind_of(inputs) == kind
    assert foreigners.keys() == NAMES[kind]
    assert torch.equal(inputs, before), "what was given is not changed"
    for foreign in foreigners.values():
        assert foreign.shape == inputs.shape
        assert foreign.dtype == inputs.dtype
        assert foreign.device == inputs.device
        assert torch.isfinite(foreign).all()
        assert not torch.equal(foreign, inputs)


@pytest.mark.parametrize("kind", NAMES)
def test_the_seed_decides(kind: str) -> None:
    inputs = batch(kind)
    first, again, other = (obvious_foreigners(inputs, seed) for seed in (3, 3, 4))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert any(not torch.equal(first[name], other[name]) for name in first)


def test_global_random_numbers_are_left_alone() -> None:
    before = torch.get_rng_state()
    obvious_foreigners(batch("images"), 0)
    assert torch.equal(torch.get_rng_state(), before)


def test_images() -> None:
    inputs = batch("images")
    low, high = inputs.amin((0, 2, 3)), inputs.amax((0, 2, 3))
    found = obvious_foreigners(inputs, 0)
    assert ((found["noise"].amin((0, 2, 3)) >= low) & (found["noise"].amax((0, 2, 3)) <= high)).all()
    for third, level in enumerate((low, (low + high) / 2, high)):
        expected = level.reshape(1, 3, 1, 1).expand(2, 3, 8, 7)
        torch.testing.assert_close(found["constant"][2 * third : 2 * third + 2], expected)
    torch.testing.assert_close(found["inverted"], (low + high).reshape(1, 3, 1, 1) - inputs)
    torch.testing.assert_close(found["scaled-by-255"], 255 * inputs)


def test_pixels_move_with_all_their_channels_in_an_order_of_each_image() -> None:
    """Each pixel holds its own number in every channel."""
    numbers = torch.arange(20.0).reshape(1, 1, 4, 5).expand(3, 2, 4, 5) * torch.tensor([1.0, -1.0]).reshape(1, 2, 1, 1)
    shuffled = obvious_foreigners(numbers.clone(), 0)["shuffled-pixels"]
    assert torch.equal(shuffled[:, 0], -shuffled[:, 1])
    assert torch.equal(shuffled[:, 0].flatten(1).sort(dim=1).values, numbers[:, 0].flatten(1))
    assert not torch.equal(shuffled[0], shuffled[1])


def test_tables() -> None:
    inputs = batch("table")
    found = obvious_foreigners(inputs, 0)
    torch.testing.assert_close(found["scaled-by-100"], 100 * inputs)
    assert not found["zeros"].any()
    assert torch.equal(found["reversed-columns"], inputs.flip(1))
    noise = found["column-noise"]
    assert ((noise >= inputs.amin(0)) & (noise <= inputs.amax(0))).all()


def test_tokens_stay_in_the_vocabulary_of_their_place() -> None:
    inputs = torch.stack([torch.arange(6), 100 + torch.arange(6) % 3], dim=1)
    for foreign in obvious_foreigners(inputs, 0).values():
        assert ((foreign >= inputs.amin(0)) & (foreign <= inputs.amax(0))).all()
    text = batch("tokens", 1000)
    assert torch.equal(obvious_foreigners(text, 0)["constant-token"], text[:, :1].expand_as(text))


def test_what_is_ordinary_for_the_shape_is_left_out() -> None:
    assert obvious_foreigners(torch.randn(4, 3, 1, 1), 0).keys() == {"scaled-by-10", "scaled-by-255"}
    assert obvious_foreigners(torch.randn(4, 1), 0).keys() == NAMES["table"] - {"reversed-columns"}
    assert obvious_foreigners(torch.arange(4).reshape(4, 1), 0) == {}
    assert obvious_foreigners(torch.randn(4), 0).keys() == {"scaled-by-10", "scaled-by-100"}


def test_what_may_be_an_ordinary_row_is_not_judged() -> None:
    judged = {name for names in NAMES.values() for name in names if is_judged(name)}
    assert judged == set().union(*NAMES.values()) - {"column-noise", "zeros", "reversed-columns"}


@given(
    st.sampled_from([(1,), (4,), (1, 1, 1), (3, 1, 5), (1, 6, 4), (2, 3)]),
    st.integers(1, 4),
    st.sampled_from([0.0, 1.0, 1e-30, 3e38]),
    st.integers(0, 2**63 - 1),
)
def test_any_shape_and_size_gives_finite_inputs(shape: tuple[int, ...], count: int, scale: float, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed % 1000)
    inputs = scale * (2 * torch.rand(count, *shape, generator=generator) - 1)
    for foreign in obvious_foreigners(inputs, seed).values():
        assert foreign.shape == inputs.shape
        assert torch.isfinite(foreign).all()


def test_an_empty_batch_is_refused() -> None:
    with pytest.raises(ValueError, match=r"found inputs of shape \(0, 4\), expected at least one value"):
        obvious_foreigners(torch.zeros(0, 4), 0)
