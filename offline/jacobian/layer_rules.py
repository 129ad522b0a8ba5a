"""Chosen entries of a layer's Jacobian from its input x and the gradient g of the outputs in the layer's output.

Each rule is x (B, ...), g (B, K, *layer output) -> (B, K, n) for n chosen entries of one parameter. A weight that
multiplies inputs is a sum of products over positions t,

    J[b, k, e] = sum_t g[b, k, outs[e], t] a[b, rows[e], t]

with a (B, R, T), g (B, K, O, T); a scale or shift of a normalisation is an element-wise product summed over positions.
Everything about the indices is settled when the plan is made, so that a call is gathers and products only.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .unfold import CONVOLUTIONS, Convolution, PatchRows, patch_row

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


BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
CHANNELS_FIRST = (*CONVOLUTIONS, *BATCH_NORMS, nn.GroupNorm)
KINDS = (nn.Linear, *CONVOLUTIONS, *BATCH_NORMS, nn.LayerNorm, nn.GroupNorm, nn.Embedding)
HARMLESS = frozenset({"reset_parameters", "extra_repr"})
CALLS = frozenset({"__call__", "__getattr__", "__getattribute__"})
Entries = Callable[[nn.Module, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class ShiftEntries:
    """A bias, or the shift of a normalisation: J[b, k, i] = sum_t g[b, k, i, t] for the chosen features (n,)."""

    features: Tensor

    def __call__(self, layer: nn.Module, x: Tensor, gradient: Tensor) -> Tensor:  # noqa: ARG002
        return take(by_feature(layer, gradient).sum(3), 2, self.features)


@dataclass(frozen=True)
class ScaleEntries:
    """The scale of a normalisation: J[b, k, i] = sum_t g[b, k, i, t] xhat[b, i, t], xhat the normalised input."""

    features: Tensor

    def __call__(self, layer: nn.Module, x: Tensor, gradient: Tensor) -> Tensor:
        normal = by_feature(layer, normalised(layer, x).unsqueeze(1))
        g = take(by_feature(layer, gradient), 2, self.features)
        return (g * take(normal, 2, self.features)).sum(3)


@dataclass(frozen=True)
class LinearEntries:
    """Weight (i, j) of a Linear: output i, input j; T counts the positions between batch and features."""

    index: ProductIndex

    def __call__(self, layer: nn.Module, x: Tensor, gradient: Tensor) -> Tensor:
        a = take(x, x.dim() - 1, self.index.used_rows)
        a = a.flatten(1, -2).transpose(1, 2) if x.dim() > 2 else a.unsqueeze(2)
        return self.index.products(a, by_feature(layer, gradient))


@dataclass(frozen=True)
class ConvEntries:
    """Weight (i, j, *offset) of a convolution; T counts output positions."""

    patches: PatchRows
    index: ProductIndex

    def __call__(self, layer: nn.Module, x: Tensor, gradient: Tensor) -> Tensor:
        assert isinstance(layer, CONVOLUTIONS)
        a = self.patches(layer, x, tuple(gradient.shape[3:]))
        return self.index.products(a, by_feature(layer, gradient))


@dataclass(frozen=True)
class EmbeddingEntries:
    """Weight (v, j) of an Embedding: J[b, k, (v, j)] = sum of g[b, k, t, j] over the positions t that hold token v.

    The padding token's row is never trained: its derivative is zero, as torch has it.
    """

    index: ProductIndex

    def __call__(self, layer: nn.Module, x: Tensor, gradient: Tensor) -> Tensor:
        assert isinstance(layer, nn.Embedding)
        tokens = self.index.used_rows.unsqueeze(1)
        matches = x.flatten(1).unsqueeze(1) == tokens
        if layer.padding_idx is not None:
            matches = matches & (tokens != layer.padding_idx)
        g = gradient.flatten(2, -2).transpose(2, 3) if gradient.dim() > 3 else gradient.unsqueeze(3)
        return self.index.products(matches.to(gradient.dtype), g)


@dataclass(frozen=True)
class ExpandedEntries:
    """A bare parameter of shape (1, ...) that was given to the model once an example: its gradient is the entry."""

    positions: Tensor

    def __call__(self, layer: nn.Module, x: Tensor, gradient: Tensor) -> Tensor:  # noqa: ARG002
        return take(gradient.flatten(2), 2, self.positions)


def computes_as(layer: nn.Module) -> type[nn.Module] | None:
    """The one of `KINDS` that the layer computes as, or None.

    A class derived from it may add a constructor and helpers (the depthwise convolution of transformers' EfficientNet),
    but no method in place of its own and no property: it may compute something else.
    """
    kind = next((each for each in KINDS if isinstance(layer, each)), None)
    if kind is None:
        return None
    order = type(layer).__mro__
    added = {name: value for derived in order[: order.index(kind)] for name, value in vars(derived).items()}
    methods = {name for name in added if name in CALLS or (hasattr(kind, name) and not name.startswith("__"))}
    computed = any(isinstance(value, property) for value in added.values())
    return None if computed or methods - HARMLESS else kind


def is_structured(layer: nn.Module) -> bool:
    """Whether there are rules for the layer's parameters."""
    kind = computes_as(layer)
    if kind is nn.Embedding:
        assert isinstance(layer, nn.Embedding)
        return layer.max_norm is None and not layer.scale_grad_by_freq
    if kind in BATCH_NORMS:  # without running statistics it normalises by the batch, also in eval mode
        return layer.running_mean is not None
    return kind is not None


def entries_of(layer: nn.Module, role: str, positions: Tensor) -> Entries:
    """The rule for the chosen `positions` (n,) of a layer's flattened weight or bias (`role`)."""
    if role == "bias":
        return ShiftEntries(positions)
    if isinstance(layer, CONVOLUTIONS):
        return _conv_entries(layer, positions)
    if isinstance(layer, nn.Linear):
        return LinearEntries(ProductIndex.of(positions % layer.in_features, positions // layer.in_features))
    if isinstance(layer, nn.Embedding):
        width = layer.embedding_dim
        return EmbeddingEntries(ProductIndex.of(positions // width, positions % width))
    return ScaleEntries(positions)


def _conv_entries(layer: Convolution, positions: Tensor) -> ConvEntries:
    kernel, rows_per_group = layer.weight[0, 0].numel(), layer.weight[0].numel()
    outs = positions // rows_per_group
    group = outs // (layer.out_channels // layer.groups)
    channel = group * (layer.in_channels // layer.groups) + positions % rows_per_group // kernel
    index = ProductIndex.of(patch_row(layer, positions % kernel, channel), outs)
    return ConvEntries(PatchRows.of(layer, index.used_rows), index)


def by_feature(layer: nn.Module, gradient: Tensor) -> Tensor:
    """(B, K, *layer output) -> (B, K, features, T)."""
    if isinstance(layer, CHANNELS_FIRST):
        return gradient.flatten(3) if gradient.dim() > 3 else gradient.unsqueeze(3)
    last = len(layer.normalized_shape) if isinstance(layer, nn.LayerNorm) else 1
    gradient = gradient.flatten(-last)
    return gradient.flatten(2, -2).transpose(2, 3) if gradient.dim() > 3 else gradient.unsqueeze(3)


def normalised(layer: nn.Module, x: Tensor) -> Tensor:
    """The layer's output before scale and shift."""
    if isinstance(layer, nn.LayerNorm):
        return F.layer_norm(x, layer.normalized_shape, None, None, layer.eps)
    if isinstance(layer, nn.GroupNorm):
        return F.group_norm(x, layer.num_groups, None, None, layer.eps)
    assert isinstance(layer, BATCH_NORMS)
    shape = (1, -1, *(1,) * (x.dim() - 2))
    assert layer.running_mean is not None
    assert layer.running_var is not None
    scale = torch.rsqrt(layer.running_var + layer.eps)
    return (x - layer.running_mean.reshape(shape)) * scale.reshape(shape)
