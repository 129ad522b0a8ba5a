"""Real networks by name, seeded, with random weights; each at full size and as a miniature of the same structure."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

from benchmarks.fit.networks import small
from benchmarks.fit.networks.from_transformers import attention, images, scaled, tokens
from benchmarks.fit.networks.resnets import BasicBlock, Bottleneck, ResNet, WideResNet

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


def vit(side: int, patch: int, width: int, layers: int, outputs: int) -> nn.Module:
    """Vision transformer (Dosovitskiy et al., 2021)."""
    return images(
        "ViT",
        outputs,
        image_size=side,
        patch_size=patch,
        **attention(width, layers),
        intermediate_size=2 * width,
    )


def bert(vocabulary: int, length: int, width: int, layers: int, outputs: int) -> nn.Module:
    """BERT (Devlin et al., 2019); at width 256 and 4 layers, "BERT-mini"."""
    return tokens(
        "Bert",
        outputs,
        vocab_size=vocabulary,
        max_position_embeddings=length,
        **attention(width, layers),
        intermediate_size=4 * width,
    )


def llama(vocabulary: int, length: int, width: int, layers: int, outputs: int) -> nn.Module:
    """Llama (Touvron et al., 2023) as a classifier of its last token: SiLU gates, rotary positions, RMS norms, two
    heads of the queries to one of the keys."""
    return tokens(
        "Llama",
        outputs,
        vocab_size=vocabulary,
        max_position_embeddings=length,
        **attention(width, layers),
        intermediate_size=2 * width,
        num_key_value_heads=2,
        pad_token_id=0,
        use_cache=False,
    )


def mobilevit(side: int, widths: list[int], hidden: list[int], last: int, outputs: int) -> nn.Module:
    """MobileViT (Mehta and Rastegari, 2022). widths: channels of the stem and of six stages; hidden: of the tokens in
    the last three."""
    return images(
        "MobileViT",
        outputs,
        image_size=side,
        neck_hidden_sizes=widths,
        hidden_sizes=hidden,
        num_attention_heads=4,
        last_hidden_size=last,
    )


def efficientnet(side: int, outputs: int, **sizes: Any) -> nn.Module:
    """EfficientNet (Tan and Le, 2019); B0 with a width and a depth of 1."""
    return images("EfficientNet", outputs, image_size=side, **sizes)


def mobilenet(side: int, outputs: int, **sizes: Any) -> nn.Module:
    """MobileNetV2 (Sandler et al., 2018)."""
    return images("MobileNetV2", outputs, image_size=side, **sizes)


def convnext(depths: list[int], widths: list[int], patch: int, outputs: int) -> nn.Module:
    """ConvNeXt (Liu et al., 2022); by default the library's, the tiny one."""
    return images(
        "ConvNext", outputs, num_stages=len(depths), depths=depths, hidden_sizes=widths, patch_size=patch, **scaled(64)
    )


def swin(
    side: int, depths: list[int], width: int, heads: list[int], window: int, patch: int, outputs: int
) -> nn.Module:
    """Swin transformer (Liu et al., 2021): attention within windows that are shifted in every second block."""
    return images(
        "Swin",
        outputs,
        image_size=side,
        patch_size=patch,
        embed_dim=width,
        depths=depths,
        num_heads=heads,
        window_size=window,
        **scaled(width),
    )


B0: dict[str, Any] = {"width_coefficient": 1.0, "depth_coefficient": 1.0, "hidden_dim": 1280}
TINY_B0: dict[str, Any] = {
    "width_coefficient": 0.125,
    "depth_coefficient": 0.1,
    "in_channels": [32, 16],
    "out_channels": [16, 24],
    "depthwise_padding": [],
    "strides": [1, 2],
    "num_block_repeats": [1, 1],
    "expand_ratios": [1, 2],
    "kernel_sizes": [3, 3],
    "hidden_dim": 160,
}
TINY_MOBILENET: dict[str, Any] = {"depth_multiplier": 0.1, "min_depth": 4, "depth_divisible_by": 4, "expand_ratio": 2.0}

FULL: dict[str, NetworkSpec] = {
    "mlp": NetworkSpec(partial(small.mlp, 784, 200), (784,), 10),
    "lenet": NetworkSpec(partial(small.lenet, 28, 6), (1, 28, 28), 10),
    "small-cnn": NetworkSpec(partial(small.small_cnn, 16), (1, 28, 28), 10),
    "resnet18": NetworkSpec(partial(ResNet, BasicBlock, (2, 2, 2, 2), 64), (3, 32, 32), 10),
    "resnet50": NetworkSpec(partial(ResNet, Bottleneck, (3, 4, 6, 3), 64), (3, 32, 32), 10),
    "wrn-16-4": NetworkSpec(partial(WideResNet, 16, 4, 16), (3, 32, 32), 10),
    "wrn-28-10": NetworkSpec(partial(WideResNet, 28, 10, 16), (3, 32, 32), 10),
    "conv1d": NetworkSpec(partial(small.conv1d, 6, 64), (6, 128), 6),
    "vit": NetworkSpec(partial(vit, 32, 4, 192, 6), (3, 32, 32), 10),
    "bert": NetworkSpec(partial(bert, 30522, 128, 256, 4), (64,), 4, vocabulary=30522),
    "lstm": NetworkSpec(partial(small.LSTM, 10000, 128, 2), (50,), 4, vocabulary=10000),
    "efficientnet": NetworkSpec(partial(efficientnet, 64, **B0), (3, 64, 64), 10),
    "mobilenet-v2": NetworkSpec(partial(mobilenet, 64), (3, 64, 64), 10),
    "convnext": NetworkSpec(partial(convnext, [3, 3, 9, 3], [96, 192, 384, 768], 4), (3, 64, 64), 10),
    "unet-encoder": NetworkSpec(partial(small.unet_encoder, (32, 64, 128, 256)), (3, 64, 64), 10),
    "swin": NetworkSpec(partial(swin, 64, [2, 2, 6], 96, [3, 6, 12], 4, 4), (3, 64, 64), 10),
    "mobilevit": NetworkSpec(partial(mobilevit, 64, [16, 16, 24, 48, 64, 80, 320], [64, 80, 96], 320), (3, 64, 64), 10),
    "llama": NetworkSpec(partial(llama, 8000, 64, 128, 4), (32,), 4, vocabulary=8000),
}

MINIATURE: dict[str, NetworkSpec] = {
    "mlp": NetworkSpec(partial(small.mlp, 6, 8), (6,), 3),
    "lenet": NetworkSpec(partial(small.lenet, 12, 3), (1, 12, 12), 3),
    "small-cnn": NetworkSpec(partial(small.small_cnn, 3), (1, 12, 12), 3),
    "resnet18": NetworkSpec(partial(ResNet, BasicBlock, (1, 1), 3), (3, 9, 9), 3),
    "resnet50": NetworkSpec(partial(ResNet, Bottleneck, (1, 1), 2), (3, 9, 9), 3),
    "wrn-16-4": NetworkSpec(partial(WideResNet, 10, 2, 2), (3, 9, 9), 3),
    "wrn-28-10": NetworkSpec(partial(WideResNet, 10, 3, 2), (3, 9, 9), 3),
    "conv1d": NetworkSpec(partial(small.conv1d, 2, 4), (2, 14), 3),
    "vit": NetworkSpec(partial(vit, 8, 4, 8, 1), (3, 8, 8), 3),
    "bert": NetworkSpec(partial(bert, 30, 9, 8, 1), (7,), 3, vocabulary=30),
    "lstm": NetworkSpec(partial(small.LSTM, 20, 6, 1), (3,), 3, vocabulary=20),
    "efficientnet": NetworkSpec(partial(efficientnet, 9, **TINY_B0), (3, 9, 9), 3),
    "mobilenet-v2": NetworkSpec(partial(mobilenet, 32, **TINY_MOBILENET), (3, 32, 32), 3),
    "convnext": NetworkSpec(partial(convnext, [1], [4], 2), (3, 8, 8), 3),
    "unet-encoder": NetworkSpec(partial(small.unet_encoder, (4, 6)), (3, 9, 9), 3),
    "swin": NetworkSpec(partial(swin, 8, [2, 1], 4, [2, 4], 2, 2), (3, 8, 8), 3),
    "mobilevit": NetworkSpec(partial(mobilevit, 32, [4] * 7, [8, 8, 8], 6), (3, 32, 32), 3),
    "llama": NetworkSpec(partial(llama, 20, 8, 16, 1), (5,), 3, vocabulary=20),
}


def network_spec(name: str, size: Size = "full") -> NetworkSpec:
    """The network called `name`; `ValueError` lists the names there are."""
    found = FULL if size == "full" else MINIATURE
    if name not in found:
        raise ValueError(f"network: found {name!r}, expected one of {', '.join(found)}")
    return found[name]
