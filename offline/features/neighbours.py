"""The squared distance of features to the k-th nearest training example (Sun et al., "Out-of-distribution detection
with deep nearest neighbors", ICML 2022).

For features u (F,) of length 1 and the bank b_1, ..., b_N of such features of training examples,

    d^2(u) = |u - b_(k)|^2, with b_(k) the one that is k-th nearest,

N F multiply-adds an example. The bank has the first examples of each class, as many of each.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

BANK_SIZE = 1000
NEIGHBOUR = 5  # k


@dataclass(frozen=True)
class NearestNeighbours:
    """bank (N, F); N >= 1."""

    bank: Tensor

    def distance(self, u: Tensor) -> Tensor:
        """d^2, (B,); u (B, F). As a sum of squares: 2 - 2 u b would cancel in float32 where examples are alike."""
        place = min(NEIGHBOUR, len(self.bank))
        nearest = (u @ self.bank.T).topk(place, dim=1).indices[:, place - 1]
        length: Tensor = torch.linalg.vector_norm(u - self.bank.index_select(0, nearest), dim=1)
        return length * length

    def to(self, like: Tensor) -> "NearestNeighbours":
        """In the precision and on the device of a tensor."""
        return NearestNeighbours(self.bank.to(like))


class Bank:
    """Gathers the first examples of each class. Of several processes, each fills rows of its own, so that their sum is
    the bank of all: part `rank` of `parts`."""

    def __init__(self, features: int, classes: int, device: torch.device, rank: int = 0, parts: int = 1) -> None:
        self._each = -(-BANK_SIZE // (classes * parts))  # of a class, in this process
        self.rows = torch.zeros(parts, classes, self._each, features, dtype=torch.float64, device=device)
        self.filled = torch.zeros(parts, classes, self._each, dtype=torch.float64, device=device)
        self._own, self._counts = rank, [0] * classes

    def add(self, u: Tensor, targets: Tensor) -> None:
        """One batch: u (B, F), class numbers (B,)."""
        for label in sorted(set(targets.tolist())):
            start = self._counts[label]
            some = u[targets == label][: self._each - start]
            stop = self._counts[label] = start + len(some)
            self.rows[self._own, label, start:stop] = some.double()
            self.filled[self._own, label, start:stop] = 1

    @property
    def tensors(self) -> tuple[Tensor, Tensor]:
        """What processes that share the batches add up."""
        return self.rows, self.filled

    def neighbours(self) -> NearestNeighbours:
        """The distance to what was gathered, in float64 on the CPU."""
        return NearestNeighbours(self.rows[self.filled > 0].cpu())
