"""Residual networks for 32 x 32 images, with a width that tests can make tiny.

Stem of 3 x 3 and no max-pooling, as is usual on CIFAR (He et al., 2016; Zagoruyko and Komodakis, 2016).
"""

from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn import functional as F


def conv(inner: int, outer: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inner, outer, kernel, stride, padding=kernel // 2, bias=False)


def shortcut(inner: int, outer: int, stride: int) -> nn.Module:
    """The identity, or a normalised 1 x 1 convolution where the shape changes."""
    if stride == 1 and inner == outer:
        return nn.Identity()
    return nn.Sequential(conv(inner, outer, 1, stride), nn.BatchNorm2d(outer))


class BasicBlock(nn.Module):
    """Two 3 x 3 convolutions."""

    expansion = 1

    def __init__(self, inner: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.norm1 = conv(inner, width, 3, stride), nn.BatchNorm2d(width)
        self.conv2, self.norm2 = conv(width, width, 3), nn.BatchNorm2d(width)
        self.shortcut = shortcut(inner, width, stride)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        return F.relu(y + self.shortcut(x))


class Bottleneck(nn.Module):
    """1 x 1, 3 x 3 and 1 x 1 convolutions, the last four times as wide."""

    expansion = 4

    def __init__(self, inner: int, width: int, stride: int) -> None:
        super().__init__()
        outer = width * self.expansion
        self.conv1, self.norm1 = conv(inner, width, 1), nn.BatchNorm2d(width)
        self.conv2, self.norm2 = conv(width, width, 3, stride), nn.BatchNorm2d(width)
        self.conv3, self.norm3 = conv(width, outer, 1), nn.BatchNorm2d(outer)
        self.shortcut = shortcut(inner, outer, stride)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm1(self.conv1(x)))
        y = self.norm3(self.conv3(F.relu(self.norm2(self.conv2(y)))))
        return F.relu(y + self.shortcut(x))


class PreactivationBlock(nn.Module):
    """Norm and activation before each of two 3 x 3 convolutions; the shortcut is a plain convolution."""

    expansion = 1

    def __init__(self, inner: int, width: int, stride: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.BatchNorm2d(inner), conv(inner, width, 3, stride)
        self.norm2, self.conv2 = nn.BatchNorm2d(width), conv(width, width, 3)
        self.shortcut = nn.Identity() if stride == 1 and inner == width else conv(inner, width, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        active = F.relu(self.norm1(x))
        passed = x if isinstance(self.shortcut, nn.Identity) else self.shortcut(active)
        y: Tensor = self.conv2(F.relu(self.norm2(self.conv1(active))))
        return y + passed


Block = type[BasicBlock] | type[Bottleneck] | type[PreactivationBlock]


def stage(block: Block, inner: int, width: int, count: int, stride: int) -> nn.Sequential:
    """`count` blocks, the first of which halves the resolution where `stride` is 2."""
    first = block(inner, width, stride)
    return nn.Sequential(first, *(block(width * block.expansion, width, 1) for _ in range(count - 1)))


class ResNet(nn.Module):
    """Stages layer1, layer2, ... of widths `width`, 2 `width`, ...; `counts` blocks in each.

    x (B, 3, H, W) -> logits (B, outputs).
    """

    def __init__(self, block: Block, counts: Sequence[int], width: int, outputs: int) -> None:
        super().__init__()
        self.conv, self.norm = conv(3, width, 3), nn.BatchNorm2d(width)
        inner = width
        for number, count in enumerate(counts):
            wide = width * 2**number
            self.add_module(f"layer{number + 1}", stage(block, inner, wide, count, 1 if number == 0 else 2))
            inner = wide * block.expansion
        self.stages = len(counts)
        self.head = nn.Linear(inner, outputs)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.norm(self.conv(x)))
        for number in range(self.stages):
            x = self.get_submodule(f"layer{number + 1}")(x)
        logits: Tensor = self.head(x.mean((2, 3)))
        return logits


class WideResNet(nn.Module):
    """WRN-depth-k (Zagoruyko and Komodakis, 2016): (depth - 4) / 6 blocks in each of three stages; base width 16 there.

    x (B, 3, H, W) -> logits (B, outputs).
    """

    def __init__(self, depth: int, widening: int, base: int, outputs: int) -> None:
        super().__init__()
        count, width = (depth - 4) // 6, base * widening
        self.conv = conv(3, base, 3)
        self.layer1 = stage(PreactivationBlock, base, width, count, 1)
        self.layer2 = stage(PreactivationBlock, width, 2 * width, count, 2)
        self.layer3 = stage(PreactivationBlock, 2 * width, 4 * width, count, 2)
        self.norm, self.head = nn.BatchNorm2d(4 * width), nn.Linear(4 * width, outputs)

    def forward(self, x: Tensor) -> Tensor:
        x = self.layer3(self.layer2(self.layer1(self.conv(x))))
        logits: Tensor = self.head(F.relu(self.norm(x)).mean((2, 3)))
        return logits
