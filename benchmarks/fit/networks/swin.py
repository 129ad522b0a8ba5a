"""Swin transformer (Liu et al., 2021): attention within windows that are shifted in every second block."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class WindowAttention(nn.Module):
    """Self-attention within windows of w x w, with a bias for each relative position.

    x (B, H, W, C) with H and W multiples of w; shift: by how many places the windows are shifted.
    """

    def __init__(self, width: int, heads: int, window: int, shift: int) -> None:
        super().__init__()
        self.heads, self.window, self.shift = heads, window, shift
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.bias = nn.Parameter(torch.randn((2 * window - 1) ** 2, heads) / 5)
        at = torch.cartesian_prod(torch.arange(window), torch.arange(window))
        relative = at[:, None] - at[None, :] + window - 1
        self.relative: Tensor
        self.register_buffer("relative", relative[..., 0] * (2 * window - 1) + relative[..., 1])

    def forward(self, x: Tensor) -> Tensor:
        batch, height, width, channels = x.shape
        shifted = torch.roll(x, (-self.shift, -self.shift), (1, 2)) if self.shift else x
        tokens = self._windows(shifted)
        q, k, v = self.qkv(tokens).reshape(*tokens.shape[:2], 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=self._mask(batch, height, width))
        joined = self.out(y.transpose(1, 2).flatten(2))
        w = self.window
        grid = joined.reshape(batch, height // w, width // w, w, w, channels)
        y = grid.permute(0, 1, 3, 2, 4, 5).reshape(batch, height, width, channels)
        return torch.roll(y, (self.shift, self.shift), (1, 2)) if self.shift else y

    def _windows(self, x: Tensor) -> Tensor:
        """(B, H, W, C) -> (B * windows, w * w, C)."""
        batch, height, width, channels = x.shape
        w = self.window
        grid = x.reshape(batch, height // w, w, width // w, w, channels)
        return grid.permute(0, 1, 3, 2, 4, 5).reshape(-1, w * w, channels)

    def _mask(self, batch: int, height: int, width: int) -> Tensor:
        """Added to the attention: the bias, and minus infinity between places that a shift has brought together."""
        bias = self.bias[self.relative].permute(2, 0, 1).unsqueeze(0)
        if not self.shift:
            return bias
        regions = torch.zeros(1, height, width, 1, device=self.bias.device)
        for axis, size in ((1, height), (2, width)):
            place = torch.arange(size, device=self.bias.device)
            region = (place >= size - self.window).to(regions.dtype) + (place >= size - self.shift).to(regions.dtype)
            regions = 3 * regions + region.reshape(1, *((-1, 1) if axis == 1 else (1, -1)), 1)
        labels = self._windows(regions).squeeze(-1)
        apart = labels[:, None, :, None] != labels[:, None, None, :]
        mask = bias.masked_fill(apart, -100.0)
        return mask.repeat(batch, 1, 1, 1)


class SwinBlock(nn.Module):
    """Attention and two Linears, each with a LayerNorm before and a shortcut around."""

    def __init__(self, width: int, heads: int, window: int, shift: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = WindowAttention(width, heads, window, shift)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        mixed: Tensor = self.mlp(self.norm2(x))
        return x + mixed


class PatchMerging(nn.Module):
    """Half the resolution, twice the width."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.reduce = nn.LayerNorm(4 * width), nn.Linear(4 * width, 2 * width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        parts = [x[:, i::2, j::2] for j in (0, 1) for i in (0, 1)]
        reduced: Tensor = self.reduce(self.norm(torch.cat(parts, -1)))
        return reduced


class Swin(nn.Module):
    """x (B, 3, H, W) -> logits (B, outputs); counts: blocks of each stage."""

    def __init__(self, counts: Sequence[int], width: int, heads: int, window: int, patch: int, outputs: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        layers: list[nn.Module] = [nn.LayerNorm(width)]
        for number, count in enumerate(counts):
            layers += [PatchMerging(width * 2 ** (number - 1))] if number else []
            wide, many = width * 2**number, heads * 2**number
            layers += [SwinBlock(wide, many, window, block % 2 * (window // 2)) for block in range(count)]
        wide = width * 2 ** (len(counts) - 1)
        self.layers, self.norm, self.head = nn.Sequential(*layers), nn.LayerNorm(wide), nn.Linear(wide, outputs)

    def forward(self, x: Tensor) -> Tensor:
        x = self.layers(self.patches(x).permute(0, 2, 3, 1))
        logits: Tensor = self.head(self.norm(x).mean((1, 2)))
        return logits


def swin(counts: Sequence[int], width: int, heads: int, window: int, patch: int, outputs: int) -> nn.Module:
    return Swin(counts, width, heads, window, patch, outputs)
