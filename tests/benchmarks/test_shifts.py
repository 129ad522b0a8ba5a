"""Synthetic shifts: deterministic, finite, free of units, and never a change to what was given."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from benchmarks.datasets.shifts import (
    rotate,
    synthetic_shifts,
)
from demur.offline.data.changes import kind_of

NAMES = {
    "images": {"noise", "blur", "rotation-45", "rotation-90", "inversion", "erasing"},
    "table": {"noise", "scaling", "permuted-columns", "widened-range"},
    "tokens": {"shuffled-order", "random-tokens"},
    "other": {"noise", "scaling", "inversion"},
}


def batch(kind: str, count: int = 6, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    if kind == "tokens":
        return torch.randint(3, 19, (count, 9), generator=generator)
    shape = {"images": (3, 8, 8), "table": (5,), "other": (4, 7)}[kind]
    return torch.randn(count, *shape, generator=generator)


@pytest.mark.parametrize("kind", NAMES)
def test_every_kind_has_its_shifts(kind: str) -> None:
    inputs = batch(kind)
    before = inputs.clone()
    shifts = synthetic_shifts(inputs, 0)
    assert kind_of(inputs) == kind
    assert shifts.keys() == NAMES[kind]
    assert torch.equal(inputs, before), "what was given is not changed"
    for shifted in shifts.values():
        assert shifted.shape == inputs.shape
        assert shifted.dtype == inputs.dtype
        assert torch.isfinite(shifted).all()
        assert not torch.equal(shifted, inputs)


@pytest.mark.parametrize("kind", NAMES)
def test_the_seed_decides(kind: str) -> None:
    inputs = batch(kind)
    first, again, other = (synthetic_shifts(inputs, seed) for seed in (3, 3, 4))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert any(not torch.equal(first[name], other[name]) for name in first)


def test_global_random_numbers_are_left_alone() -> None:
    before = torch.get_rng_state()
    synthetic_shifts(batch("images"), 0)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("kind", ["images", "table", "other"])
def test_units_do_not_matter(kind: str) -> None:
    """Shifting a x + b gives a times the shifted x plus b."""
    inputs = batch(kind).double()
    plain, changed = synthetic_shifts(inputs, 1), synthetic_shifts(250.0 * inputs + 40.0, 1)
    for name, shifted in plain.items():
        torch.testing.assert_close(changed[name], 250.0 * shifted + 40.0, rtol=1e-9, atol=1e-7)


def test_columns_may_have_units_of_their_own() -> None:
    inputs = batch("table").double()
    units, origins = torch.tensor([1e-3, 1.0, 50.0, 1e6, 2.0]).double(), torch.arange(5.0).double()
    plain, changed = synthetic_shifts(inputs, 1), synthetic_shifts(units * inputs + origins, 1)
    for name, shifted in plain.items():
        torch.testing.assert_close(changed[name], units * shifted + origins, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("kind", ["images", "table"])
def test_shifts_without_draws_do_not_depend_on_the_order(kind: str) -> None:
    inputs = batch(kind).double()
    order = torch.tensor([3, 1, 0, 5, 4, 2])
    plain, permuted = synthetic_shifts(inputs, 0), synthetic_shifts(inputs[order], 0)
    for name in {"blur", "rotation-45", "rotation-90", "inversion", "scaling", "permuted-columns"} & plain.keys():
        torch.testing.assert_close(permuted[name], plain[name][order])


@given(
    st.sampled_from([(1,), (4,), (1, 1, 1), (3, 1, 5), (1, 6, 4), (2, 3)]),
    st.integers(1, 4),
    st.sampled_from([0.0, 1.0, 1e-30, 3e38]),
    st.integers(0, 2**63 - 1),
)
def test_any_shape_and_size_gives_finite_shifts(shape: tuple[int, ...], count: int, scale: float, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed % 1000)
    inputs = scale * (2 * torch.rand(count, *shape, generator=generator) - 1)
    for shifted in synthetic_shifts(inputs, seed).values():
        assert shifted.shape == inputs.shape
        assert torch.isfinite(shifted).all()


def test_one_column_or_one_token_cannot_change_places() -> None:
    assert synthetic_shifts(torch.randn(4, 1), 0).keys() == NAMES["table"] - {"permuted-columns"}
    assert synthetic_shifts(torch.arange(4).reshape(4, 1), 0).keys() == {"random-tokens"}
    assert synthetic_shifts(torch.arange(4), 0).keys() == {"random-tokens"}


@pytest.mark.parametrize("kind", NAMES)
def test_each_shift_alone_is_the_same_as_among_all(kind: str) -> None:
    inputs = batch(kind, 5)
    for name, shifted in synthetic_shifts(inputs, 3).items():
        (alone,) = synthetic_shifts(inputs, 3, [name]).values()
        assert torch.equal(alone, shifted)


@pytest.mark.parametrize("names", [["fog"], ["permuted-columns", "noise"], []])
def test_a_shift_that_these_inputs_do_not_have_is_refused(names: list[str]) -> None:
    with pytest.raises(ValueError, match=r"shifts: found .* expected some of noise, blur, rotation-45"):
        synthetic_shifts(batch("images", 2), 0, names)


def test_an_empty_batch_is_refused() -> None:
    with pytest.raises(ValueError, match=r"found inputs of shape \(0, 3\), expected at least one value"):
        synthetic_shifts(torch.zeros(0, 3), 0)


# --------------------------------------------------------------------------- each shift


def test_image_shifts_stay_within_the_range_of_their_channel() -> None:
    inputs = batch("images")
    low, high = inputs.amin((0, 2, 3), keepdim=True), inputs.amax((0, 2, 3), keepdim=True)
    for name, shifted in synthetic_shifts(inputs, 0).items():
        assert (shifted >= low - 1e-5).all(), name
        assert (shifted <= high + 1e-5).all(), name


def test_noise_has_the_standard_deviation_of_the_batch() -> None:
    inputs = torch.randn(4000, 2, generator=torch.Generator().manual_seed(0)) * torch.tensor([1.0, 30.0])
    added = synthetic_shifts(inputs, 0)["noise"] - inputs
    torch.testing.assert_close(added.std(0), inputs.std(0), rtol=0.05, atol=0)


def test_inversion_twice_is_nothing() -> None:
    inputs = batch("images").double()
    torch.testing.assert_close(synthetic_shifts(synthetic_shifts(inputs, 0)["inversion"], 0)["inversion"], inputs)


def test_a_blur_takes_means_of_neighbours() -> None:
    """Side 8: a window of 3 by 3, the edge repeated."""
    image = batch("images", 1).double()
    blurred = synthetic_shifts(image, 0)["blur"][0, 0]
    for i in range(8):
        for j in range(8):
            window = [image[0, 0, min(max(i + a, 0), 7), min(max(j + b, 0), 7)] for a in (-1, 0, 1) for b in (-1, 0, 1)]
            assert blurred[i, j] == pytest.approx(float(sum(window)) / 9)


@pytest.mark.parametrize("degrees", [90.0, 180.0, -90.0])
def test_a_rotation_by_a_right_angle_moves_pixels(degrees: float) -> None:
    image = batch("images", 2).double()
    expected = torch.rot90(image, round(degrees / 90), (2, 3))
    torch.testing.assert_close(rotate(image, degrees), expected, rtol=0, atol=1e-9)


def test_an_oblong_image_is_turned_not_sheared() -> None:
    """A bright point two pixels right of the centre comes to stand two pixels above it."""
    image = torch.zeros(1, 1, 7, 13).double()
    image[0, 0, 3, 8] = 1
    turned = synthetic_shifts(image, 0)["rotation-90"]
    expected = torch.zeros_like(image)
    expected[0, 0, 1, 6] = 1
    torch.testing.assert_close(turned, expected, rtol=0, atol=1e-9)


def test_erasing_leaves_the_rest_and_has_a_place_of_its_own_in_each_example() -> None:
    inputs = batch("images", 12)
    changed = (synthetic_shifts(inputs, 0)["erasing"] != inputs).any(1)
    places = set()
    for mask in changed:
        rows, columns = mask.nonzero(as_tuple=True)
        top, left = int(rows.min()), int(columns.min())
        assert mask.sum() == mask[top : top + 4, left : left + 4].sum() == 16
        places.add((top, left))
    assert len(places) > 3


def test_scaling_stretches_about_the_mean() -> None:
    inputs = batch("table").double()
    shifted = synthetic_shifts(inputs, 0)["scaling"]
    torch.testing.assert_close(shifted.mean(0), inputs.mean(0))
    torch.testing.assert_close(shifted.std(0), 3 * inputs.std(0))


def test_every_column_gets_the_values_of_another() -> None:
    inputs = batch("table", 40).double()
    standard = (inputs - inputs.mean(0)) / inputs.std(0)
    for seed in range(8):
        shifted = synthetic_shifts(inputs, seed)["permuted-columns"]
        torch.testing.assert_close(shifted.mean(0), inputs.mean(0))
        torch.testing.assert_close(shifted.std(0), inputs.std(0))
        alike = ((shifted - inputs.mean(0)) / inputs.std(0)).T @ standard / 39
        source = alike.argmax(1)
        assert sorted(source.tolist()) == [0, 1, 2, 3, 4]
        assert (source != torch.arange(5)).all()


def test_the_widened_range_is_twice_the_range() -> None:
    inputs = torch.rand(3000, 2, generator=torch.Generator().manual_seed(0))
    shifted = synthetic_shifts(inputs, 0)["widened-range"]
    assert shifted.min() == pytest.approx(-0.5, abs=0.01)
    assert shifted.max() == pytest.approx(1.5, abs=0.01)


def test_tokens_are_those_of_the_batch() -> None:
    """Where every place takes every token, an order is a permutation."""
    inputs = torch.cat([batch("tokens"), torch.full((1, 9), 3), torch.full((1, 9), 18)])
    shifts = synthetic_shifts(inputs, 0)
    assert torch.equal(shifts["shuffled-order"].sort(1).values, inputs.sort(1).values)
    for place in range(9):
        assert set(shifts["random-tokens"][:, place].tolist()) <= set(inputs[:, place].tolist())


def test_columns_of_categories_keep_to_their_own_vocabulary() -> None:
    generator = torch.Generator().manual_seed(0)
    sizes = (200, 5, 7)
    inputs = torch.stack([torch.randint(0, size, (50,), generator=generator) for size in sizes], 1)
    for shifted in synthetic_shifts(inputs, 1).values():
        assert all(0 <= int(c.min()) <= int(c.max()) < size for c, size in zip(shifted.T, sizes, strict=True))
        assert not torch.equal(shifted, inputs)
