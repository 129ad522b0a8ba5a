"""The activations of layers during a forward pass, pooled to one vector an example."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ..jacobian.unfold import CONVOLUTIONS

INPUTS = ""  # the path that stands for the network's inputs
TEXTURE = "."  # and for what `texture` tells of them
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
        mean = x.mean(axes, keepdim=True)
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
    return torch.cat([norm(flat), norm(flat.narrow(1, step, pairs) - flat.narrow(1, 0, pairs))], dim=1)


def norm(x: Tensor, axes: tuple[int, ...] = (1,)) -> Tensor:
    """|x| along these axes, which stay."""
    length: Tensor = torch.linalg.vector_norm(x, dim=axes, keepdim=True)
    return length
