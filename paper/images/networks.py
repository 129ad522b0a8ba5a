"""The networks of the image experiments, split into a trunk and the last block with the head.

For two cores a small CNN (MNIST) and a narrow residual network (CIFAR-10); at full size ResNet-18 and ResNet-50 with a
3 x 3 stem and without max-pooling (appendix "Image Experiments").
"""

from collections.abc import Callable

from torch import Tensor, nn

from benchmarks.experiments.frontier.networks import Block, DigitNetwork, PhotoNetwork
from benchmarks.fit.networks.resnets import BasicBlock, Bottleneck, ResNet, conv

COUNTS = {18: (2, 2, 2, 2), 50: (3, 4, 6, 3)}
WIDTH = 64


class Frozen(nn.Module):
    """A part that does not learn: no gradients, batch statistics as they are."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner.requires_grad_(requires_grad=False)
        self.train(mode=False)

    def train(self, mode: bool = True) -> "Frozen":  # noqa: ARG002
        return super().train(mode=False)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.inner(x)
        return result


def digit_network(dropout: float) -> nn.Module:
    """Two convolutions and a linear layer, D = 9,098."""
    return DigitNetwork(dropout)


def photo_network(dropout: float) -> nn.Module:
    """Three residual blocks of 16, 32 and 64 channels, D = 78,042."""
    return PhotoNetwork(dropout)


def resnet(depth: int, channels: int) -> Callable[[float], nn.Module]:
    """Makes ResNet-18 or ResNet-50 for images of so many channels, given the probability of dropout.

    Dropout stands before the last convolution of each block, and the last normalisation of each block starts at zero,
    so that blocks start as identities (Goyal et al., 2017).
    """

    def make(dropout: float) -> nn.Module:
        kind = BasicBlock if depth == 18 else Bottleneck
        network = ResNet(kind, COUNTS[depth], WIDTH, 10)
        network.conv = conv(channels, WIDTH, 3)
        last = "2" if depth == 18 else "3"
        for block in (module for module in network.modules() if isinstance(module, kind)):
            nn.init.zeros_(block.get_submodule(f"norm{last}").weight)  # type: ignore[arg-type]
            if dropout:
                convolution = block.get_submodule(f"conv{last}")
                block.set_submodule(f"conv{last}", nn.Sequential(nn.Dropout(dropout), convolution))
        return network

    return make


def split(model: nn.Module) -> tuple[nn.Module, nn.Module]:
    """The trunk, and the last block with the head: together the network without its dropout."""
    if isinstance(model, DigitNetwork):
        return (
            nn.Sequential(model.conv1, nn.ReLU(), nn.MaxPool2d(2)),
            nn.Sequential(model.conv2, nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), model.head),
        )
    end = (nn.AdaptiveAvgPool2d(1), nn.Flatten())
    if isinstance(model, PhotoNetwork):
        return nn.Sequential(model.stem, model.block1, model.block2), nn.Sequential(model.block3, *end, model.head)
    if isinstance(model, ResNet):
        *stages, last = (model.get_submodule(f"layer{number + 1}") for number in range(model.stages))
        assert isinstance(last, nn.Sequential)
        trunk = nn.Sequential(model.conv, model.norm, nn.ReLU(), *stages, last[:-1])
        return trunk, nn.Sequential(last[-1], *end, model.head)
    raise TypeError(f"model: found {type(model).__name__}, expected one of the networks of this module")


def cheap_modules(block: nn.Module) -> tuple[str, ...]:
    """Modules of a last block whose Jacobian needs no backward pass: the head, and a convolution before the pooling."""
    assert isinstance(block, nn.Sequential)
    head = str(len(block) - 1)
    return ("0.conv2", head) if isinstance(block[0], Block | BasicBlock) else (head,)
