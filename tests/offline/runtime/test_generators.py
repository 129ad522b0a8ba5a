"""Loaders that draw from a generator of the user's own: each pass, in each process, has the same order."""

import numpy as np
import torch
from torch.utils.data import DataLoader, TensorDataset

from demur.offline.runtime.generators import leaves_generators, seed_generators


def order(loader: DataLoader[tuple[torch.Tensor, ...]]) -> list[int]:
    return [int(x) for (batch,) in loader for x in batch]


def test_a_pass_begins_with_the_same_order_whatever_was_drawn_before() -> None:
    generator = torch.Generator().manual_seed(7)
    loader = DataLoader(TensorDataset(torch.arange(50)), 8, shuffle=True, generator=generator)
    before, found = generator.get_state(), list[list[int]]()

    @leaves_generators
    def passes(loader: DataLoader[tuple[torch.Tensor, ...]]) -> None:
        for already in (0, 2):
            for _ in range(already):
                order(loader)
            seed_generators(3, loader)
            found.append(order(loader))

    passes(loader)
    assert found[0] == found[1] != list(range(50))
    assert torch.equal(generator.get_state(), before)


def test_so_does_a_generator_of_numpy_within_a_dataset() -> None:
    class Noisy(TensorDataset):
        drawn = np.random.Generator(np.random.MT19937(5))

        def __init__(self) -> None:
            super().__init__(torch.zeros(4))
            self.noise = self.drawn

        def __getitem__(self, place: int) -> tuple[torch.Tensor, ...]:
            return (torch.tensor(self.noise.integers(1000)),)

    loader = DataLoader(Noisy(), 2)
    seed_generators(1, loader)
    first = order(loader)
    order(loader)
    seed_generators(1, loader)
    assert order(loader) == first
