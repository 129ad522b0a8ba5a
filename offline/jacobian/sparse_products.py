"""Which products of a layer's inputs and output gradients are wanted, and how to form them cheaply.

    J[b, k, e] = sum_t g[b, k, outs[e], t] a[b, rows[e], t]

with a (B, R, T), g (B, K, O, T). Everything about the indices is settled when the plan is made, so that a call is
gathers and products only.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

# Above this share of chosen entries, a dense product and a gather beat gathering rows for each output channel.
DENSE_SHARE = 0.25


@dataclass(frozen=True)
class ProductIndex:
    """Which products are wanted: rows, outs (n,) as in the module's equation.

    `used_rows`, `used_outs`: those that occur, ascending; `row_of` (n,): each entry's place among the used rows;
    `table` (O', width): for each used output the used rows it needs, padded with 0, or None where the dense product is
    cheaper; `place` (n,): where each entry stands in the flattened (O', width) or dense (O', R') result.
    """

    outs: Tensor
    used_rows: Tensor
    row_of: Tensor
    used_outs: Tensor
    table: Tensor | None
    place: Tensor | None

    @classmethod
    def of(cls, rows: Tensor, outs: Tensor) -> "ProductIndex":
        """Choose the cheaper of the two ways for these entries."""
        used_rows, row_of = torch.unique(rows, return_inverse=True)
        used_outs, out_of = torch.unique(outs, return_inverse=True)
        if len(rows) >= DENSE_SHARE * len(used_rows) * len(used_outs):
            place = out_of * len(used_rows) + row_of
            ordered = in_order(place, len(used_rows) * len(used_outs))
            return cls(outs, used_rows, row_of, used_outs, None, None if ordered else place)
        counts = torch.bincount(out_of)
        width = int(counts.max())
        order = torch.argsort(out_of, stable=True)
        slot = torch.empty_like(order)
        first = torch.cumsum(counts, 0) - counts
        slot[order] = torch.arange(len(order), device=order.device) - first[out_of[order]]
        table = torch.zeros(len(used_outs), width, dtype=rows.dtype, device=rows.device)
        table[out_of, slot] = row_of
        return cls(outs, used_rows, row_of, used_outs, table, out_of * width + slot)

    def products(self, a: Tensor, g: Tensor) -> Tensor:
        """a (B, R', T), the used rows only, in their order; g (B, K, O, T) -> (B, K, n)."""
        if a.shape[2] == 1 and self.table is not None:
            return g[:, :, self.outs, 0] * a[:, self.row_of, 0].unsqueeze(1)
        g = take(g, 2, self.used_outs)
        if self.table is None:
            entries = torch.matmul(g, a.transpose(1, 2).unsqueeze(1))
        else:
            entries = torch.matmul(g.transpose(1, 2), a[:, self.table].transpose(2, 3)).transpose(1, 2)
        entries = entries.flatten(2)
        return entries if self.place is None else entries.index_select(2, self.place)


def take(x: Tensor, dim: int, index: Tensor) -> Tensor:
    """x at `index`, ascending without repetition, along `dim`; no copy where that is all of it."""
    return x if len(index) == x.shape[dim] else x.index_select(dim, index)


def in_order(index: Tensor, size: int) -> bool:
    """Whether `index` is 0, 1, ..., size - 1."""
    return len(index) == size and bool((index == torch.arange(size, device=index.device)).all())
