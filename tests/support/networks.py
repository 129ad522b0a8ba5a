"""Networks with what real ones have: ties, norms, attention, recurrence, groups, odd paddings."""

import torch
from torch import Tensor, nn


class Tied(nn.Module):
    """An embedding whose matrix is also the weight of a Linear: contributions add up."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, 6)
        self.decoder = nn.Linear(6, 20, bias=False)
        self.head = nn.Linear(20, 3)
        self.decoder.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(torch.tanh(self.decoder(torch.tanh(self.embedding(tokens))).mean(1)))


class CalledTwice(nn.Module):
    """One layer called twice in a pass."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(6, 6)
        self.head = nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.inner(torch.tanh(self.inner(x)))))


class SharedLinears(nn.Module):
    """Two Linear modules that hold the same weight."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.head = nn.Linear(5, 5), nn.Linear(5, 5, bias=False), nn.Linear(5, 2)
        self.second.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.second(torch.tanh(self.first(x)))))


class OtherUse(nn.Module):
    """A Linear whose weight is also read by other code, and one that is never called as a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.silent, self.head = nn.Linear(5, 5), nn.Linear(5, 5), nn.Linear(5, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.first(x)) * self.first.weight.sum(1)
        return self.head(nn.functional.linear(x, self.silent.weight))


class TimeMajor(nn.Module):
    """A Linear fed (time, batch, features): its first dimension is not the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = nn.Linear(4, 5), nn.Linear(5, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.inner(x.transpose(0, 1))).mean(0))


class Groups(nn.Module):
    """Grouped, dilated, strided and padded convolutions, circular padding, adaptive pooling."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(4, 8, 3, padding="same", groups=2, dilation=2)
        self.second = nn.Conv2d(8, 4, (3, 2), stride=(2, 1), padding=1, padding_mode="circular")
        self.pool = nn.AdaptiveAvgPool2d((2, 3))
        self.head = nn.Linear(24, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.pool(torch.relu(self.second(torch.relu(self.first(x))))).flatten(1))


class Residual(nn.Module):
    """In-place activations and a shortcut."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.inner = nn.Conv2d(2, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1, bias=False)
        self.norm, self.relu, self.head = nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu(self.stem(x))
        y = self.norm(self.inner(x))
        y += x
        return self.head(self.relu(y).mean((2, 3)))


class Scaled(nn.Module):
    """LayerNorm and a bare parameter; sequence-shaped Linear inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.norm = nn.Linear(6, 8), nn.LayerNorm(8)
        self.scale, self.head = nn.Parameter(torch.ones(8)), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head((nn.functional.gelu(self.norm(self.inner(x))) * self.scale).mean(1))


class ScalarScaled(nn.Module):
    """A bare parameter without dimensions, as a learned temperature or a gate."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head, self.scale = nn.Linear(5, 6), nn.Linear(6, 3), nn.Parameter(torch.tensor(1.7))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.inner(x).tanh()) * self.scale


class Transposed(nn.Module):
    """ConvTranspose2d and Conv1d: generic route through convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.line, self.head = nn.ConvTranspose2d(1, 4, 3, stride=2), nn.Conv1d(68, 5, 3), nn.Linear(75, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.line(torch.relu(self.up(x)).flatten(1, 2))).flatten(1))


class Attention(nn.Module):
    """A transformer encoder layer."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.1)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.encoder(x).mean(1))


class Recurrent(nn.Module):
    """An LSTM."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(6, 8, batch_first=True), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.lstm(x)[0][:, -1])


class Hooked(nn.Sequential):
    """Hooks of the user's change what a layer takes and gives."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 3))
        self[0].register_forward_hook(lambda _, __, output: 2 * output)
        self[2].register_forward_pre_hook(lambda _, args: (args[0].square(),))


class Depthwise(nn.Conv1d):
    """A convolution with a constructor of its own, as libraries of networks have it."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels, channels, 3, padding=1, groups=channels)

    def extra_repr(self) -> str:
        return "depthwise"


class Doubled(nn.Linear):
    """Computes something else than the layer that it derives from."""

    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


class Derived(nn.Module):
    """Layers of classes that derive from torch's, and attention, whose last layer is one that is never called."""

    def __init__(self) -> None:
        super().__init__()
        self.mixed, self.depthwise = nn.MultiheadAttention(4, 2, batch_first=True), Depthwise(4)
        self.doubled, self.head = Doubled(4, 4), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.depthwise(self.mixed(x, x, x)[0].transpose(1, 2)).transpose(1, 2)
        return self.head(torch.tanh(self.doubled(x)).mean(1))


NETWORKS: dict[str, tuple[type[nn.Module], tuple[int, ...], float]] = {
    # name: (network, shape of one input, share of the weights to choose)
    "tied": (Tied, (5,), 0.5),
    "called-twice": (CalledTwice, (6,), 1.0),
    "shared-linears": (SharedLinears, (5,), 0.7),
    "other-use": (OtherUse, (5,), 1.0),
    "time-major": (TimeMajor, (3, 4), 1.0),
    "groups-few": (Groups, (4, 9, 9), 0.05),
    "groups-all": (Groups, (4, 9, 9), 1.0),
    "residual": (Residual, (2, 5, 5), 0.6),
    "scaled": (Scaled, (4, 6), 0.6),
    "scalar-scaled": (ScalarScaled, (5,), 1.0),
    "transposed": (Transposed, (1, 8, 8), 0.2),
    "attention": (Attention, (5, 8), 0.3),
    "recurrent": (Recurrent, (7, 6), 0.4),
    "derived": (Derived, (5, 4), 1.0),
    "hooked": (Hooked, (5,), 1.0),
}


def build(name: str) -> tuple[nn.Module, Tensor, Tensor]:
    """(network in train mode, inputs (4, *shape), chosen indices)."""
    kind, shape, share = NETWORKS[name]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = kind()
        inputs = torch.randint(0, 20, (4, *shape)) if kind is Tied else torch.randn(4, *shape)
        total = sum(p.numel() for p in network.parameters())
        indices = torch.randperm(total)[: max(1, int(share * total))].sort().values
    return network, inputs, indices


def hooks_of(network: nn.Module) -> list[list[int]]:
    """The hooks of each module, by number. torch has no public way to ask."""
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks")
    return [[number for kind in kinds for number in getattr(module, kind)] for module in network.modules()]
