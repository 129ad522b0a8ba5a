"""The networks of the image experiments.

For two cores a small CNN (MNIST) and a narrow residual network (CIFAR-10); at full size ResNet-18 and ResNet-50 with a
3 x 3 stem and without max-pooling (appendix "Image Experiments").
"""

from collections.abc import Callable

from torch import nn

from benchmarks.fit.networks.resnets import BasicBlock, Bottleneck, ResNet, conv

COUNTS = {18: (2, 2, 2, 2), 50: (3, 4, 6, 3)}
WIDTH = 64


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
