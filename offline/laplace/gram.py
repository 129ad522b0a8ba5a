"""H = sum_r r^T r over rows r, in float64, by symmetric rank updates: half the products, one matrix."""

import torch
from torch import Tensor

from ..runtime.blocks import spans

# Rows gathered before an update, and the width of its blocks: on a CPU core, fewer or narrower waste memory traffic.
UPDATE_ROWS = 256


class Gram:
    """`matrix` (S, S) float64: blocks on and below the diagonal hold the sum, those above nothing until `finish`.

    Rows are gathered in a buffer of `rows` (at least 256) x S and added by one product for each block row: a matrix
    product of a few rows is bound by reading and writing `matrix`.
    """

    def __init__(self, size: int, rows: int, device: torch.device) -> None:
        self.matrix = torch.zeros(size, size, dtype=torch.float64, device=device)
        self._buffer = torch.empty(max(UPDATE_ROWS, rows), size, dtype=torch.float64, device=device)
        self._filled = 0

    def reserve(self, rows: int) -> Tensor:
        """A view (rows, S) of the buffer for the caller to fill at once; at most as many rows as the buffer has."""
        if self._filled + rows > len(self._buffer):
            self.flush()
        start, self._filled = self._filled, self._filled + rows
        return self._buffer[start : self._filled]

    def flush(self) -> None:
        """Add the gathered rows to `matrix`."""
        gathered = self._buffer[: self._filled]
        for start, end in spans(len(self.matrix)):
            self.matrix[start:end, :end].addmm_(gathered[:, start:end].T, gathered[:, :end])
        self._filled = 0

    def sum_so_far(self) -> Tensor:
        """`matrix` with every row given so far in it, only on and below the diagonal's blocks."""
        self.flush()
        return self.matrix

    def finish(self) -> Tensor:
        """The whole matrix, symmetric to the last bit: the lower half mirrored in place."""
        return mirror(self.sum_so_far())


def mirror(matrix: Tensor) -> Tensor:
    """The lower half copied over the upper one, in place, a block row at a time. (S, S) -> the same tensor."""
    for start, end in spans(len(matrix)):
        matrix[:start, start:end] = matrix[start:end, :start].T
        corner = matrix[start:end, start:end]
        corner.copy_(corner.tril() + corner.tril(-1).T)
    return matrix
