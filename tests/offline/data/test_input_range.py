"""offline/data/input_range.py: the range of the fitted data, by feature or channel where there are such."""

import torch

from demur.offline.data.input_range import MAX_PLACES, RangeMeter
from demur.service.bundle import InputRange, InputSpec


def described(spec: InputSpec, train: torch.Tensor, held_out: torch.Tensor) -> InputRange | None:
    meter = RangeMeter()
    for batch in train.split(7):
        assert [pair[0] is batch for pair in meter.watch([(batch, batch)])] == [True]
    return meter.with_range(spec, held_out).range


def test_features_of_different_sizes_have_a_range_each() -> None:
    generator = torch.Generator().manual_seed(0)
    scales = torch.tensor([1.0, 1000.0, 0.01])
    train = torch.rand(200, 3, generator=generator) * scales
    held_out = torch.rand(50, 3, generator=generator) * scales
    held_out[0] = 1.1 * scales  # larger than all before, and taken in
    found = described(InputSpec(shape=(3,)), train, held_out)
    assert found is not None
    torch.testing.assert_close(torch.tensor(found.high), 1.1 * scales, rtol=1e-5, atol=0)
    torch.testing.assert_close(torch.tensor(found.low), torch.cat([train, held_out]).amin(0), rtol=1e-5, atol=1e-12)


def test_images_have_a_range_for_each_channel() -> None:
    train = (
        torch.rand(20, 3, 4, 4, generator=torch.Generator().manual_seed(0))
        * torch.tensor([1.0, 2.0, 4.0])[:, None, None]
    )
    found = described(InputSpec(shape=(3, 4, 4)), train, train)
    assert found is not None
    assert [round(high) for high in found.high] == [1, 2, 4]


def test_places_that_are_mostly_zero_are_taken_together() -> None:
    """As the corners of scanned digits: a first dark pixel there is no mistake in scaling."""
    train = torch.rand(100, 4, generator=torch.Generator().manual_seed(0))
    train[:, 0] = 0.0
    train[5, 0] = 0.1
    held_out = train.clone()
    held_out[3, 0] = 0.7
    found = described(InputSpec(shape=(4,)), train, held_out)
    assert found is not None
    assert len(found.low) == 1
    assert 0.9 < found.high[0] <= 1.0


def test_many_features_are_taken_together_and_tokens_have_no_range() -> None:
    train = torch.rand(3, MAX_PLACES + 1, generator=torch.Generator().manual_seed(0))
    found = described(InputSpec(shape=(MAX_PLACES + 1,)), train, train)
    assert found is not None
    assert len(found.low) == 1
    tokens = torch.zeros(3, 5, dtype=torch.int64)
    assert described(InputSpec(shape=(5,), dtype="int64"), tokens, tokens) is None


def test_a_single_number_an_example_has_a_range() -> None:
    train = torch.tensor([1.0, 5.0, -2.0])
    assert described(InputSpec(shape=()), train, train) == InputRange((-2.0,), (5.0,))


def test_a_range_that_the_user_gave_stays() -> None:
    given = InputRange((0.0,), (10.0,))
    assert described(InputSpec(shape=(2,), range=given), torch.ones(3, 2), torch.ones(3, 2)) == given
