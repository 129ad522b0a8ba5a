"""Real networks by name, seeded, with random weights; each at full size and as a miniature of the same structure."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn

from benchmarks.fit.networks import convnets, small
from benchmarks.fit.networks.resnets import BasicBlock, Bottleneck, ResNet, WideResNet
from benchmarks.fit.networks.swin import swin

Size = Literal["full", "miniature"]


@dataclass(frozen=True)
class NetworkSpec:
    """How to build a classifier with K = `outputs`, and what it takes.

    Inputs (B, *input_shape) are float32, or int64 tokens below `vocabulary` where that is given.
    """

    build: Callable[[int], nn.Module]
    input_shape: tuple[int, ...]
    outputs: int
    vocabulary: int | None = None

    def model(self, seed: int = 0) -> nn.Module:
        """The network in eval mode, every norm away from the identity; the global generator is left as it was."""
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            model = self.build(self.outputs)
            small.unsettle(model)
        return model.eval()

    def data(self, count: int, seed: int = 0) -> tuple[Tensor, Tensor]:
        """Inputs (count, *input_shape) and class numbers (count,): noise, which costs what real data cost."""
        generator = torch.Generator().manual_seed(1000 + seed)
        targets = torch.randint(0, self.outputs, (count,), generator=generator)
        if self.vocabulary is not None:
            return torch.randint(0, self.vocabulary, (count, *self.input_shape), generator=generator), targets
        return torch.randn(count, *self.input_shape, generator=generator), targets


def resnet(block: type[BasicBlock] | type[Bottleneck], counts: tuple[int, ...], width: int, outputs: int) -> nn.Module:
    return ResNet(block, counts, width, outputs)


def wide_resnet(depth: int, widening: int, base: int, outputs: int) -> nn.Module:
    return WideResNet(depth, widening, outputs, base)


def lstm(vocabulary: int, width: int, layers: int, outputs: int) -> nn.Module:
    return small.LSTM(vocabulary, width, layers, outputs)


FULL: dict[str, NetworkSpec] = {
    "mlp": NetworkSpec(partial(small.mlp, 784, 200), (784,), 10),
    "lenet": NetworkSpec(partial(small.lenet, 28, 6), (1, 28, 28), 10),
    "small-cnn": NetworkSpec(partial(small.small_cnn, 16), (1, 28, 28), 10),
    "resnet18": NetworkSpec(partial(resnet, BasicBlock, (2, 2, 2, 2), 64), (3, 32, 32), 10),
    "resnet50": NetworkSpec(partial(resnet, Bottleneck, (3, 4, 6, 3), 64), (3, 32, 32), 10),
    "wrn-16-4": NetworkSpec(partial(wide_resnet, 16, 4, 16), (3, 32, 32), 10),
    "wrn-28-10": NetworkSpec(partial(wide_resnet, 28, 10, 16), (3, 32, 32), 10),
    "conv1d": NetworkSpec(partial(small.conv1d, 6, 64), (6, 128), 6),
    "vit": NetworkSpec(partial(small.vit, 32, 4, 192, 6), (3, 32, 32), 10),
    "bert": NetworkSpec(partial(small.bert, 30522, 128, 256, 4), (64,), 4, vocabulary=30522),
    "lstm": NetworkSpec(partial(lstm, 10000, 128, 2), (50,), 4, vocabulary=10000),
    "efficientnet": NetworkSpec(partial(convnets.efficientnet, convnets.EFFICIENTNET, 32, 1280), (3, 64, 64), 10),
    "mobilenet-v3": NetworkSpec(partial(convnets.mobilenet_v3, convnets.MOBILENET, 16, 1024), (3, 64, 64), 10),
    "convnext": NetworkSpec(partial(convnets.convnext, (3, 3, 9, 3), (96, 192, 384, 768), 7, 4), (3, 64, 64), 10),
    "unet-encoder": NetworkSpec(partial(convnets.unet_encoder, (32, 64, 128, 256)), (3, 64, 64), 10),
    "swin": NetworkSpec(partial(swin, (2, 2, 6), 96, 3, 4, 4), (3, 64, 64), 10),
    "mobilevit": NetworkSpec(
        partial(small.mobilevit, 64, [16, 16, 24, 48, 64, 80, 320], [64, 80, 96], 320), (3, 64, 64), 10
    ),
    "llama": NetworkSpec(partial(small.llama, 8000, 64, 128, 4), (32,), 4, vocabulary=8000),
}

MINIATURE: dict[str, NetworkSpec] = {
    "mlp": NetworkSpec(partial(small.mlp, 6, 8), (6,), 3),
    "lenet": NetworkSpec(partial(small.lenet, 12, 3), (1, 12, 12), 3),
    "small-cnn": NetworkSpec(partial(small.small_cnn, 3), (1, 12, 12), 3),
    "resnet18": NetworkSpec(partial(resnet, BasicBlock, (1, 1), 3), (3, 9, 9), 3),
    "resnet50": NetworkSpec(partial(resnet, Bottleneck, (1, 1), 2), (3, 9, 9), 3),
    "wrn-16-4": NetworkSpec(partial(wide_resnet, 10, 2, 2), (3, 9, 9), 3),
    "wrn-28-10": NetworkSpec(partial(wide_resnet, 10, 3, 2), (3, 9, 9), 3),
    "conv1d": NetworkSpec(partial(small.conv1d, 2, 4), (2, 14), 3),
    "vit": NetworkSpec(partial(small.vit, 8, 4, 8, 1), (3, 8, 8), 3),
    "bert": NetworkSpec(partial(small.bert, 30, 9, 8, 1), (7,), 3, vocabulary=30),
    "lstm": NetworkSpec(partial(lstm, 20, 6, 1), (3,), 3, vocabulary=20),
    "efficientnet": NetworkSpec(partial(convnets.efficientnet, ((2, 4, 1, 1, 3),), 4, 6), (3, 9, 9), 3),
    "mobilenet-v3": NetworkSpec(partial(convnets.mobilenet_v3, ((5, 2, 4, True, True, 1),), 4, 6), (3, 9, 9), 3),
    "convnext": NetworkSpec(partial(convnets.convnext, (1,), (4,), 3, 2), (3, 8, 8), 3),
    "unet-encoder": NetworkSpec(partial(convnets.unet_encoder, (4, 6)), (3, 9, 9), 3),
    "swin": NetworkSpec(partial(swin, (2, 1), 4, 2, 2, 2), (3, 8, 8), 3),
    "mobilevit": NetworkSpec(partial(small.mobilevit, 32, [4] * 7, [8, 8, 8], 6), (3, 32, 32), 3),
    "llama": NetworkSpec(partial(small.llama, 20, 8, 16, 1), (5,), 3, vocabulary=20),
}


def network_spec(name: str, size: Size = "full") -> NetworkSpec:
    """The network called `name`; `ValueError` lists the names there are."""
    found = FULL if size == "full" else MINIATURE
    if name not in found:
        raise ValueError(f"network: found {name!r}, expected one of {', '.join(found)}")
    return found[name]
