"""The distance of features to their nearest training examples, against a sorted list of distances."""

import numpy as np
import pytest
import torch

from offline.features.class_gaussian import unit
from offline.features.neighbours import BANK_SIZE, NEIGHBOUR, Bank, NearestNeighbours
from tests import reference

CPU = torch.device("cpu")


def features(count: int, width: int, seed: int = 0) -> torch.Tensor:
    return unit([torch.randn(count, width, generator=torch.Generator().manual_seed(seed)).double()])


@pytest.mark.parametrize("size", [1, 3, NEIGHBOUR, 40])
def test_the_distance_of_the_definition(size: int) -> None:
    bank, asked = features(size, 6), features(7, 6, seed=1)
    found = NearestNeighbours(bank).distance(asked)
    expected = [reference.neighbour_distance(x, bank.numpy(), NEIGHBOUR) for x in asked.numpy()]
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_float32_is_enough_next_to_an_example() -> None:
    bank = features(50, 20).float().repeat(NEIGHBOUR, 1)
    near = unit([bank[:4] + 1e-4])
    precise = NearestNeighbours(bank.double()).distance(near.double())
    np.testing.assert_allclose(NearestNeighbours(bank).distance(near), precise, rtol=1e-3)


def test_the_bank_has_as_many_examples_of_each_class() -> None:
    u, labels = features(3 * BANK_SIZE, 4), torch.arange(3 * BANK_SIZE) % 4
    bank = Bank(4, 5, CPU)
    for some, own in zip(u.split(170), labels.split(170), strict=True):
        bank.add(some, own)
    kept = bank.neighbours().bank
    each = BANK_SIZE // 5
    assert kept.shape == (4 * each, 4)  # one of the classes has no example
    for label in range(4):
        torch.testing.assert_close(kept[label * each : (label + 1) * each], u[labels == label][:each])


def test_two_processes_fill_one_bank() -> None:
    u, labels = features(60, 4), torch.arange(60) % 3
    banks = [Bank(4, 3, CPU, rank, 2) for rank in (0, 1)]
    for rank, bank in enumerate(banks):
        bank.add(u[rank::2], labels[rank::2])
    for mine, other in zip(banks[0].tensors, banks[1].tensors, strict=True):
        mine += other
    found = banks[0].neighbours().bank
    assert sorted(map(tuple, found.tolist())) == sorted(map(tuple, u.tolist()))
