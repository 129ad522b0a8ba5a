"""The activations of layers during a forward pass, pooled to one vector an example."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ..jacobian.unfold import CONVOLUTIONS

INPUTS = ""  # the path that stands for the network's inputs
TEXTURE = "."  # and for what `texture` tells of them
# onnxruntime adds numbers up one by one in float32: of 150,000 that are alike, as in a white picture, the sum is off by
# 5e-4. More than these are added up in two steps.
LONG, FEW = 1024, 256
SMALLEST, LARGEST = 1e-12, 1e38  # of a length: its logarithm is finite, and a direction where all are zero


def read_activations(model: nn.Module, paths: Sequence[str], x: Tensor) -> list[Tensor]:
    """The pooled input (B, F_l) of each layer, in the order of the paths, from one forward pass of x (B, *input_shape).

    `INPUTS`: x itself, flattened; `TEXTURE`: its texture.
    """
    found: dict[str, Tensor] = {INPUTS: x.flatten(1)} | ({TEXTURE: texture(x)} if TEXTURE in paths else {})

    def recorder(path: str) -> Any:
        def record(layer: nn.Module, args: tuple[Tensor, ...], kwargs: dict[str, Tensor]) -> None:
            # Pooled at once: what comes later may write to the tensor.
            found[path] = pooled(layer, args[0] if args else kwargs["input"])

        return record

    layers = {path: model.get_submodule(path) for path in paths if path not in (INPUTS, TEXTURE)}
    hooks = [layer.register_forward_pre_hook(recorder(path), with_kwargs=True) for path, layer in layers.items()]
    try:
        model(x)
    finally:
        for hook in hooks:
            hook.remove()
    return [found[path] for path in paths]


def pooled(layer: nn.Module, x: Tensor) -> Tensor:
    """Of a convolution, mean and standard deviation of each channel over all places, (B, 2 C); of a linear layer the
    mean over all axes but the batch's and the last, as over tokens, (B, F)."""
    if isinstance(layer, CONVOLUTIONS):
        axes = tuple(range(2, x.dim()))
        mean = _mean(x, axes)
        deviation = norm(x - mean, axes) / math.sqrt(math.prod(x.shape[2:]))
        return torch.cat([mean, deviation], dim=1).flatten(1)
    return x.flatten(1, -2).mean(1) if x.dim() > 2 else x


def places(x: Tensor) -> list[int]:
    """The axes of x along which neighbours are alike: of an image (B, C, H, W) the last two, of a series both; of a row
    of a table none."""
    return [axis for axis in range(2 if x.dim() > 3 else 1, x.dim()) if x.shape[axis] > 1] if x.dim() > 2 else []


def texture(x: Tensor) -> Tensor:
    """(|x|, |dx|), (B, 2): how large the inputs are, and how much neighbours differ.

    dx: the differences of neighbours along the longest of the `places`; where other axes come before it, the end of a
    line and the start of the next one are neighbours, too. A network whose layers are normalised answers to an image
    ten times too bright as to the image itself: its activations do not tell. Nor do those of many tell noise.
    """
    along = max(places(x), key=lambda axis: (x.shape[axis], axis))
    flat, step = x.flatten(1), x.shape[along + 1 :].numel()
    pairs = flat.shape[1] - step
    return torch.cat([_long_norm(flat), _long_norm(flat.narrow(1, step, pairs) - flat.narrow(1, 0, pairs))], dim=1)


def norm(x: Tensor, axes: tuple[int, ...] = (1,)) -> Tensor:
    """|x| along these axes, which stay; of many numbers first along the last axis."""
    if len(axes) > 1 and math.prod(x.shape[axis] for axis in axes) > LONG:
        x, axes = norm(x, axes[-1:]), axes[:-1]
    length: Tensor = torch.linalg.vector_norm(x, dim=axes, keepdim=True)
    return length


def _mean(x: Tensor, axes: tuple[int, ...]) -> Tensor:
    """The mean along these axes, which stay; as `norm`."""
    if len(axes) > 1 and math.prod(x.shape[axis] for axis in axes) > LONG:
        x, axes = x.mean(axes[-1:], keepdim=True), axes[:-1]
    return x.mean(axes, keepdim=True)


def _long_norm(x: Tensor) -> Tensor:
    """|x| (B, 1) of x (B, n), of many numbers first that of each few."""
    if x.shape[1] <= LONG:
        return norm(x)
    count, rest = divmod(x.shape[1], FEW)
    few = norm(x.narrow(1, 0, count * FEW).reshape(-1, count, FEW), (2,)).flatten(1)
    return norm(torch.cat([few, x.narrow(1, count * FEW, rest)], dim=1) if rest else few)
