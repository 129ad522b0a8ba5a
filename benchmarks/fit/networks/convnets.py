"""Convolutional networks of the last years, compact: the structure of each, its width and depth to be chosen.

Every one takes x (B, 3, H, W) and gives logits (B, outputs).
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def conv_norm(
    inner: int, outer: int, kernel: int, stride: int, groups: int, activation: nn.Module | None
) -> nn.Sequential:
    """Convolution, batch norm and activation."""
    conv = nn.Conv2d(inner, outer, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outer), *([] if activation is None else [activation]))


class SqueezeExcite(nn.Module):
    """A gate for each channel, from the mean of all channels (Hu et al., 2018)."""

    def __init__(self, channels: int, squeezed: int, activation: nn.Module, gate: nn.Module) -> None:
        super().__init__()
        self.reduce, self.expand = nn.Conv2d(channels, squeezed, 1), nn.Conv2d(squeezed, channels, 1)
        self.activation, self.gate = activation, gate

    def forward(self, x: Tensor) -> Tensor:
        gates: Tensor = self.gate(self.expand(self.activation(self.reduce(F.adaptive_avg_pool2d(x, 1)))))
        return x * gates


class StochasticDepth(nn.Module):
    """Leaves a branch out at random while training (Huang et al., 2016); in eval mode the identity."""

    def __init__(self, probability: float) -> None:
        super().__init__()
        self.probability = probability

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return x
        kept = torch.rand(len(x), *(1,) * (x.dim() - 1), device=x.device) >= self.probability
        return x * kept / (1 - self.probability)


class InvertedResidual(nn.Module):
    """Expand, depthwise convolution, squeeze and excite, project (Sandler et al., 2018)."""

    def __init__(
        self,
        inner: int,
        outer: int,
        expansion: int,
        kernel: int,
        stride: int,
        activation: type[nn.Module],
        gate: nn.Module | None,
    ) -> None:
        super().__init__()
        wide = inner * expansion
        layers: list[nn.Module] = []
        if expansion > 1:
            layers.append(conv_norm(inner, wide, 1, 1, 1, activation()))
        layers.append(conv_norm(wide, wide, kernel, stride, wide, activation()))
        if gate is not None:
            squeezed = nn.SiLU() if activation is nn.SiLU else nn.ReLU()
            layers.append(SqueezeExcite(wide, max(1, inner // 4), squeezed, gate))
        layers.append(conv_norm(wide, outer, 1, 1, 1, None))
        self.branch, self.drop = nn.Sequential(*layers), StochasticDepth(0.1)
        self.shortcut = stride == 1 and inner == outer

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.branch(x)
        return x + self.drop(y) if self.shortcut else y


# expansion, channels, repeats, stride, kernel (Tan and Le, 2019, table 1)
EFFICIENTNET = (
    (1, 16, 1, 1, 3),
    (6, 24, 2, 2, 3),
    (6, 40, 2, 2, 5),
    (6, 80, 3, 2, 3),
    (6, 112, 3, 1, 5),
    (6, 192, 4, 2, 5),
    (6, 320, 1, 1, 3),
)


def efficientnet(stages: Sequence[tuple[int, int, int, int, int]], stem: int, last: int, outputs: int) -> nn.Module:
    """EfficientNet (Tan and Le, 2019): SiLU, squeeze and excite, stochastic depth; at B0's sizes 5.3 M weights."""
    layers: list[nn.Module] = [conv_norm(3, stem, 3, 2, 1, nn.SiLU())]
    inner = stem
    for expansion, channels, repeats, stride, kernel in stages:
        for number in range(repeats):
            step = stride if number == 0 else 1
            layers.append(InvertedResidual(inner, channels, expansion, kernel, step, nn.SiLU, nn.Sigmoid()))
            inner = channels
    layers += [conv_norm(inner, last, 1, 1, 1, nn.SiLU()), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2)]
    return nn.Sequential(*layers, nn.Linear(last, outputs))


# kernel, expansion, channels, squeeze and excite, Hardswish, stride (Howard et al., 2019, table 2, rounded expansions)
MOBILENET = (
    (3, 1, 16, True, False, 2),
    (3, 4, 24, False, False, 2),
    (3, 4, 24, False, False, 1),
    (5, 4, 40, True, True, 2),
    (5, 6, 40, True, True, 1),
    (5, 6, 40, True, True, 1),
    (5, 3, 48, True, True, 1),
    (5, 3, 48, True, True, 1),
    (5, 6, 96, True, True, 2),
    (5, 6, 96, True, True, 1),
    (5, 6, 96, True, True, 1),
)


def mobilenet_v3(
    blocks: Sequence[tuple[int, int, int, bool, bool, int]], stem: int, wide: int, outputs: int
) -> nn.Module:
    """MobileNetV3-small (Howard et al., 2019): Hardswish, and Hardsigmoid for its gates."""
    layers: list[nn.Module] = [conv_norm(3, stem, 3, 2, 1, nn.Hardswish())]
    inner = stem
    for kernel, expansion, channels, excite, hard, stride in blocks:
        activation = nn.Hardswish if hard else nn.ReLU
        gate = nn.Hardsigmoid() if excite else None
        layers.append(InvertedResidual(inner, channels, expansion, kernel, stride, activation, gate))
        inner = channels
    layers += [conv_norm(inner, 6 * inner, 1, 1, 1, nn.Hardswish()), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(6 * inner, wide), nn.Hardswish(), nn.Dropout(0.2), nn.Linear(wide, outputs))


class ChannelNorm(nn.LayerNorm):
    """LayerNorm over the channels of (B, C, H, W)."""

    def forward(self, x: Tensor) -> Tensor:
        normal: Tensor = super().forward(x.permute(0, 2, 3, 1))
        return normal.permute(0, 3, 1, 2)


class ConvNeXtBlock(nn.Module):
    """Depthwise 7 x 7, then LayerNorm and two Linears with the channels last, scaled (Liu et al., 2022)."""

    def __init__(self, channels: int, kernel: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, kernel, padding=kernel // 2, groups=channels)
        self.norm = nn.LayerNorm(channels, eps=1e-6)
        self.wide, self.narrow = nn.Linear(channels, 4 * channels), nn.Linear(4 * channels, channels)
        self.scale, self.drop = nn.Parameter(torch.full((channels,), 0.1)), StochasticDepth(0.1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        y = self.scale * self.narrow(F.gelu(self.wide(y)))
        dropped: Tensor = self.drop(y.permute(0, 3, 1, 2))
        return x + dropped


def convnext(counts: Sequence[int], widths: Sequence[int], kernel: int, patch: int, outputs: int) -> nn.Module:
    """ConvNeXt (Liu et al., 2022); the tiny one has blocks (3, 3, 9, 3) and widths (96, 192, 384, 768)."""
    layers: list[nn.Module] = [nn.Conv2d(3, widths[0], patch, patch), ChannelNorm(widths[0], eps=1e-6)]
    for number, (count, width) in enumerate(zip(counts, widths, strict=True)):
        if number:
            layers += [ChannelNorm(widths[number - 1], eps=1e-6), nn.Conv2d(widths[number - 1], width, 2, 2)]
        layers += [ConvNeXtBlock(width, kernel) for _ in range(count)]
    pooled = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LayerNorm(widths[-1], eps=1e-6)]
    return nn.Sequential(*layers, *pooled, nn.Linear(widths[-1], outputs))


def unet_encoder(widths: Sequence[int], outputs: int) -> nn.Module:
    """The contracting path of a U-Net (Ronneberger et al., 2015): two convolutions a level, GroupNorm and Mish."""
    layers: list[nn.Module] = []
    for number, (inner, width) in enumerate(zip((3, *widths), widths, strict=False)):
        layers += [nn.MaxPool2d(2)] if number else []
        for given in (inner, width):
            conv = nn.Conv2d(given, width, 3, padding=1, padding_mode="replicate", bias=False)
            layers += [conv, nn.GroupNorm(2, width), nn.Mish()]
    return nn.Sequential(*layers, nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(widths[-1], outputs))
