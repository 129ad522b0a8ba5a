"""Networks with linear heads: what stands between the last layers and the head, and which of them stay separate."""

import torch
from torch import Tensor, nn


class Residual(nn.Module):
    """Batch normalisation, a shortcut with a convolution of its own, activation, global pooling."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.conv = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 6, 3, padding=1, bias=False)
        self.norm, self.shortcut, self.head = nn.BatchNorm2d(6), nn.Conv2d(4, 6, 1), nn.Linear(6, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.stem(x))
        y = self.norm(self.conv(x))
        y += self.shortcut(x)
        return self.head(torch.relu(y).mean((2, 3)))


class Depthwise(nn.Module):
    """An expansion, a depthwise convolution, a grouped one, dropout before the head."""

    def __init__(self) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(3, 6, 3, groups=3, padding=1)
        self.grouped = nn.Conv2d(6, 8, 3, groups=2)
        self.pool, self.drop, self.head = nn.AdaptiveMaxPool2d(1), nn.Dropout(0.2), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = nn.functional.hardswish(self.grouped(torch.relu(self.depthwise(x))))
        return self.head(self.drop(self.pool(x).flatten(1)))


class Gated(nn.Module):
    """Squeeze-and-excitation before the pooling: every channel scales every other one. Each gate scales its own."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.gate, self.head = nn.Conv2d(3, 4, 3), nn.Linear(4, 4), nn.Linear(4, 3)

    def close(self) -> None:
        """Saturate every gate, for ordinary inputs."""
        with torch.no_grad():
            assert self.gate.bias is not None
            self.gate.bias.fill_(-100.0)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x)
        gates = nn.functional.hardsigmoid(self.gate(x.mean((2, 3))))
        return self.head((x * gates[:, :, None, None]).mean((2, 3)))


class ShuffledChannels(nn.Module):
    """A channel shuffle before the pooling, as in ShuffleNet."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.shuffle, self.head = nn.Conv2d(3, 4, 3), nn.ChannelShuffle(2), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.shuffle(self.conv(x))).mean((2, 3)))


class Grid(nn.Module):
    """Pooled to 2 x 2 places and flattened: four features of the head for each channel."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.pool, self.head = nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(2), nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.pool(torch.relu(self.conv(x))).flatten(1))


class Normalised(nn.Module):
    """A group normalisation between the convolution and the head mixes the channels of a group; its own scale does
    not."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.norm(self.conv(x))).mean((2, 3)))


class Perceptron(nn.Sequential):
    """Two hidden layers."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 6), nn.GELU(), nn.Linear(6, 4, bias=False))


class CalledTwice(nn.Module):
    """The last hidden layer is called twice, and the head's matrix is also a hidden layer's."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.middle, self.head = nn.Linear(5, 5), nn.Linear(5, 5), nn.Linear(5, 5)
        self.middle.weight = self.head.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.inner(torch.tanh(self.inner(torch.tanh(self.middle(x)))))))


class Positions(nn.Module):
    """Mixed over positions, never over features: the mean over a sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.norm, self.last, self.head = nn.Linear(6, 5), nn.LayerNorm(5), nn.Linear(5, 5), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.last(self.norm(self.inner(x)))).mean(1))


class Rescued(nn.Module):
    """Hides what is not a number from the head."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = nn.Linear(5, 4), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.softmax(torch.nan_to_num(self.inner(x)), 1))


class ChangedInPlace(nn.Sequential):
    """The head's output is changed after it, in the very tensor."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3), nn.Hardtanh(-50.0, 50.0, inplace=True))


class Clipped(nn.Module):
    """Features are scaled together where their norm is large: not for ordinary inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = nn.Linear(5, 4), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        z = self.inner(x)
        norm = z.norm(dim=1, keepdim=True)
        return self.head(torch.where(norm > 30, z * 30 / norm, z))


class GatedByHand(nn.Module):
    """Each feature is scaled by a gate of all of them that is closed for ordinary inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = nn.Linear(5, 4), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        z = self.inner(x)
        gate = z.sum(1, keepdim=True) - 50
        return self.head(z * (1 + gate.masked_fill(~(gate > 0), 0.0)))


class NormalisedTogether(nn.Module):
    """A layer normalisation over channels and places, then the mean over the places."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.head = nn.LayerNorm([4, 4, 4]), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(x).mean((1, 2)))


# name: (network, shape of one input), path of the head, layers that stay separate
HEADS: dict[str, tuple[tuple[type[nn.Module], tuple[int, ...]], str | None, tuple[str, ...]]] = {
    "residual": ((Residual, (3, 6, 6)), "head", ("conv", "norm", "shortcut")),
    "depthwise": ((Depthwise, (3, 6, 6)), "head", ("grouped",)),
    "gated": ((Gated, (3, 6, 6)), "head", ("gate",)),
    "shuffled": ((ShuffledChannels, (3, 6, 6)), "head", ()),
    "grid": ((Grid, (3, 8, 8)), "head", ()),
    "normalised": ((Normalised, (3, 6, 6)), "head", ("norm",)),
    "perceptron": ((Perceptron, (5,)), "4", ("2",)),
    "called-twice": ((CalledTwice, (5,)), "head", ()),
    "positions": ((Positions, (4, 6)), "head", ("last",)),
    "rescued": ((Rescued, (5,)), "head", ()),
    "changed-in-place": ((ChangedInPlace, (5,)), None, ()),
    "clipped": ((Clipped, (5,)), "head", ()),
    "gated-by-hand": ((GatedByHand, (5,)), "head", ()),
    "normalised-together": ((NormalisedTogether, (4, 4, 4)), "head", ()),
}


def build_head(name: str) -> tuple[nn.Module, Tensor]:
    """(network in train mode with running statistics of its own, inputs (4, *shape))."""
    (kind, shape), _, _ = HEADS[name]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network, inputs = kind(), torch.randn(4, *shape)
        for module in network.modules():
            if isinstance(module, nn.BatchNorm2d):
                assert module.running_mean is not None
                assert module.running_var is not None
                module.running_mean.normal_()
                module.running_var.uniform_(0.5, 2.0)
                nn.init.uniform_(module.weight, -1.0, 1.0)
    return network, inputs
