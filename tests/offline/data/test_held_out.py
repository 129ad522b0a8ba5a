import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from demur.offline.data.held_out import HeldOut


def held_out(targets: torch.Tensor) -> HeldOut:
    return HeldOut(torch.arange(len(targets)).unsqueeze(1), targets)


@given(
    st.lists(st.integers(0, 4), min_size=1, max_size=60), st.sampled_from([0.0, 0.2, 0.5, 1.0]), st.integers(0, 2**32)
)
def test_each_class_is_shared_to_one_example(classes: list[int], share: float, seed: int) -> None:
    data = held_out(torch.tensor(classes))
    first, second, both = data.split(share, seed, by_class=True)
    assert len(first) == int(share * len(data) + 1e-9)
    assert torch.equal(both.inputs, torch.cat([first.inputs, second.inputs]))
    assert second.inputs.untyped_storage().data_ptr() == both.inputs.untyped_storage().data_ptr()  # kept once
    assert sorted(torch.cat([first.inputs, second.inputs]).flatten().tolist()) == list(range(len(data)))
    for kind in set(classes):
        assert abs(int((first.targets == kind).sum()) - share * classes.count(kind)) < 1 + 1e-9


def test_each_pattern_of_labels_is_shared() -> None:
    labels = torch.tensor([[0, 0, 1], [1, 0, 1], [1, 1, 0], [0, 1, 1]])
    first, second, _ = held_out(labels.repeat(10, 1)).split(0.5, 1, by_class=True)
    for pattern in labels:
        assert [int((half.targets == pattern).all(1).sum()) for half in (first, second)] == [5, 5]


@pytest.mark.parametrize("by_class", [False, True])
def test_halves_are_at_random_and_in_no_order(by_class: bool) -> None:
    data = held_out(torch.arange(400) // 200)
    first, *_ = data.split(0.5, 0, by_class)
    again, *_ = data.split(0.5, 0, by_class)
    other, *_ = data.split(0.5, 1, by_class)
    assert torch.equal(first.inputs, again.inputs)
    assert 60 < len(set(first.inputs.flatten().tolist()) & set(other.inputs.flatten().tolist())) < 140
    changes = (first.targets[1:] != first.targets[:-1]).sum()
    assert 70 < changes < 130  # of two classes by turns in no order


def test_numbers_as_targets_have_no_classes() -> None:
    data = held_out(torch.linspace(0, 1, 101).unsqueeze(1))
    first, second, _ = data.split(0.5, 0)
    assert (len(first), len(second)) == (50, 51)
    assert np.unique(np.diff(np.sort(first.inputs.flatten().numpy()))).size > 2  # not every second one
