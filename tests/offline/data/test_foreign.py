"""offline/data/foreign.py: so many foreign inputs are kept, and no more are read."""

from collections.abc import Iterator

import torch
from torch import Tensor

from demur.offline.data.foreign import MOST_EXAMPLES, collect_foreign


class Endless:
    """Batches without an end."""

    def __init__(self) -> None:
        self.read = 0

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        while True:
            self.read += 1
            yield torch.full((300, 2), float(self.read)), torch.zeros(300)


def test_the_first_ones_are_kept() -> None:
    loader = Endless()
    found = collect_foreign(loader, torch.zeros(1, 2), torch.device("cpu"))
    assert found.shape == (MOST_EXAMPLES, 2)
    assert loader.read == 7
    assert found[0, 0] == 1
    assert found[-1, 0] == 7
