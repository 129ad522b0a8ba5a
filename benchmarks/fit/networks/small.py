"""The zoo's small networks, and what makes the norms of any network look trained."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn


def mlp(inputs: int, width: int, outputs: int) -> nn.Module:
    """Two hidden layers."""
    return nn.Sequential(
        nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, outputs)
    )


def lenet(side: int, width: int, outputs: int) -> nn.Module:
    """LeNet-5 (LeCun et al., 1998) for images (1, side, side); 6 channels at first in the original."""
    left = (side // 2 - 4) // 2
    return nn.Sequential(
        nn.Conv2d(1, width, 5, padding=2),
        nn.Tanh(),
        nn.AvgPool2d(2),
        nn.Conv2d(width, width * 16 // 6, 5),
        nn.Tanh(),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(width * 16 // 6 * left**2, 20 * width),
        nn.Tanh(),
        nn.Linear(20 * width, 14 * width),
        nn.Tanh(),
        nn.Linear(14 * width, outputs),
    )


def small_cnn(width: int, outputs: int) -> nn.Module:
    """Three convolutions and one linear layer for one-channel images of any size from 8 x 8."""
    return nn.Sequential(
        nn.Conv2d(1, width, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(width, 2 * width, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(2 * width, 4 * width, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(16 * width, outputs),
    )


def conv1d(channels: int, width: int, outputs: int) -> nn.Module:
    """A fully convolutional classifier of time series (Wang et al., 2017): x (B, channels, length)."""
    widths = (channels, width, 2 * width, width)
    layers: list[nn.Module] = []
    for inner, outer, kernel in zip(widths, widths[1:], (7, 5, 3), strict=False):
        layers += [nn.Conv1d(inner, outer, kernel, padding=kernel // 2), nn.BatchNorm1d(outer), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(width, outputs))


def unet_encoder(widths: Sequence[int], outputs: int) -> nn.Module:
    """The contracting path of a U-Net (Ronneberger et al., 2015): two convolutions a level, GroupNorm and Mish."""
    layers: list[nn.Module] = []
    for number, (inner, width) in enumerate(zip((3, *widths), widths, strict=False)):
        layers += [nn.MaxPool2d(2)] if number else []
        for given in (inner, width):
            conv = nn.Conv2d(given, width, 3, padding=1, padding_mode="replicate", bias=False)
            layers += [conv, nn.GroupNorm(2, width), nn.Mish()]
    return nn.Sequential(*layers, nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(widths[-1], outputs))


class LSTM(nn.Module):
    """A recurrent classifier of token sequences: int64 tokens (B, length) -> logits (B, outputs)."""

    def __init__(self, vocabulary: int, width: int, layers: int, outputs: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.lstm = nn.LSTM(width, width, layers, batch_first=True)
        self.head = nn.Linear(width, outputs)

    def forward(self, tokens: Tensor) -> Tensor:
        states, _ = self.lstm(self.embedding(tokens))
        logits: Tensor = self.head(states[:, -1])
        return logits


def unsettle(model: nn.Module) -> None:
    """Move norms away from the identity: statistics and scales that a trained network would have."""
    for module in model.modules():
        if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
            module.running_mean = torch.randn(module.num_features) / 5
            module.running_var = torch.rand(module.num_features) + 0.5
        if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d | nn.LayerNorm):
            nn.init.normal_(module.weight, 1.0, 0.1)
            nn.init.normal_(module.bias, 0.0, 0.1)
