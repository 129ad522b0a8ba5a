"""Chosen entries of a layer's weight Jacobian from its input a and its output gradient g.

    J[b, k, e] = sum_t g[b, k, outs[e], t] a[b, rows[e], t]

with a (B, R, T) and g (B, K, O, T): for Linear, R counts input features and T the positions between batch and
features; for Conv2d, a is unfolded into patches, R counts (channel, kernel position) and T output positions.
Everything about the indices is settled when the plan is made, so that a call is gathers and products only.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

# Above this share of chosen entries, a dense product and a gather beat gathering rows for each output channel.
DENSE_SHARE = 0.25


@dataclass(frozen=True)
class ProductIndex:
    """Which products are wanted: rows, outs (n,) as in the module's equation.

    `used_rows`, `used_outs`: those that occur; `table` (O', width): for each used output the rows it needs, padded
    with 0, or None where the dense product is cheaper; `place` (n,): where each entry stands in the flattened
    (O', width) or dense (O', R') result.
    """

    rows: Tensor
    outs: Tensor
    used_rows: Tensor
    used_outs: Tensor
    table: Tensor | None
    place: Tensor

    @classmethod
    def of(cls, rows: Tensor, outs: Tensor) -> "ProductIndex":
        """Choose the cheaper of the two ways for these entries."""
        used_rows, row_of = torch.unique(rows, return_inverse=True)
        used_outs, out_of = torch.unique(outs, return_inverse=True)
        if len(rows) >= DENSE_SHARE * len(used_rows) * len(used_outs):
            return cls(rows, outs, used_rows, used_outs, None, out_of * len(used_rows) + row_of)
        counts = torch.bincount(out_of)
        width = int(counts.max())
        order = torch.argsort(out_of, stable=True)
        slot = torch.empty_like(order)
        first = torch.cumsum(counts, 0) - counts
        slot[order] = torch.arange(len(order), device=order.device) - first[out_of[order]]
        table = torch.zeros(len(used_outs), width, dtype=rows.dtype, device=rows.device)
        table[out_of, slot] = row_of
        return cls(rows, outs, used_rows, used_outs, table, out_of * width + slot)

    def products(self, a: Tensor, g: Tensor) -> Tensor:
        """a (B, R, T), g (B, K, O, T) -> (B, K, n)."""
        if a.shape[2] == 1:
            return g[:, :, self.outs, 0] * a[:, self.rows, 0].unsqueeze(1)
        return self._gathered_products(a[:, self.used_rows], g[:, :, self.used_outs])

    def _gathered_products(self, a: Tensor, g: Tensor) -> Tensor:
        if self.table is None:
            entries = torch.matmul(g, a.transpose(1, 2).unsqueeze(1))
        else:
            entries = torch.matmul(g.transpose(1, 2), a[:, self.table].transpose(2, 3)).transpose(1, 2)
        return entries.flatten(2)[:, :, self.place]


@dataclass(frozen=True)
class BiasEntries:
    """J[b, k, i] = sum_t g[b, k, i, t] for the chosen output channels (n,)."""

    channels: Tensor

    def __call__(self, layer: nn.Module, x: Tensor, gradient: Tensor) -> Tensor:  # noqa: ARG002
        return output_positions(layer, gradient).sum(3)[:, :, self.channels]


@dataclass(frozen=True)
class LinearEntries:
    """Weight (i, j) of a Linear: output i, input j."""

    index: ProductIndex

    def __call__(self, layer: nn.Module, x: Tensor, gradient: Tensor) -> Tensor:
        a = x.flatten(1, -2).transpose(1, 2) if x.dim() > 2 else x.unsqueeze(2)
        return self.index.products(a, output_positions(layer, gradient))


@dataclass(frozen=True)
class ConvEntries:
    """Weight (i, j, u, v) of a Conv2d. Only the input channels that occur are unfolded."""

    channels: Tensor
    index: ProductIndex

    def __call__(self, layer: nn.Module, x: Tensor, gradient: Tensor) -> Tensor:
        assert isinstance(layer, nn.Conv2d)
        return self.index.products(unfold(layer, x[:, self.channels]), output_positions(layer, gradient))


Entries = BiasEntries | LinearEntries | ConvEntries


def entries_of(layer: nn.Module, role: str, positions: Tensor) -> Entries:
    """The rule for the chosen `positions` (n,) of a layer's flattened weight or bias (`role`)."""
    if role == "bias":
        return BiasEntries(positions)
    if isinstance(layer, nn.Linear):
        return LinearEntries(ProductIndex.of(positions % layer.in_features, positions // layer.in_features))
    assert isinstance(layer, nn.Conv2d)
    kernel, rows_per_group = layer.weight[0, 0].numel(), layer.weight[0].numel()
    outs = positions // rows_per_group
    group = outs // (layer.out_channels // layer.groups)
    rows = group * rows_per_group + positions % rows_per_group
    channels, local = torch.unique(rows // kernel, return_inverse=True)
    return ConvEntries(channels, ProductIndex.of(local * kernel + rows % kernel, outs))


def output_positions(layer: nn.Module, gradient: Tensor) -> Tensor:
    """(B, K, *output shape) -> (B, K, O, T)."""
    if isinstance(layer, nn.Conv2d):
        return gradient.flatten(3)
    return gradient.flatten(2, -2).transpose(2, 3) if gradient.dim() > 3 else gradient.unsqueeze(3)


def unfold(layer: nn.Conv2d, x: Tensor) -> Tensor:
    """Patches (B, C * kernel, T). Padding other than zeros of one width a side is applied beforehand."""
    padding = layer.padding
    if layer.padding_mode != "zeros" or isinstance(padding, str):
        mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
        x, padding = F.pad(x, layer._reversed_padding_repeated_twice, mode=mode), (0, 0)
    return F.unfold(x, layer.kernel_size, layer.dilation, padding, layer.stride)
