"""The activations of layers during a forward pass, pooled to one vector an example."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from probity.offline.jacobian.unfold import CONVOLUTIONS

INPUTS = ""  # the path that stands for the network's inputs


def read_activations(model: nn.Module, paths: Sequence[str], x: Tensor) -> list[Tensor]:
    """The pooled input (B, F_l) of each layer, in the order of the paths, from one forward pass of x (B, *input_shape).

    `INPUTS`: x itself, flattened.
    """
    found: dict[str, Tensor] = {INPUTS: x.flatten(1)}

    def recorder(path: str) -> Any:
        def record(layer: nn.Module, args: tuple[Tensor, ...], kwargs: dict[str, Tensor]) -> None:
            # Pooled at once: what comes later may write to the tensor.
            found[path] = pooled(layer, args[0] if args else kwargs["input"])

        return record

    layers = {path: model.get_submodule(path) for path in paths if path != INPUTS}
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
        places = x.flatten(2)
        mean = places.mean(2)
        deviation = (places - mean.unsqueeze(2)).square().mean(2).sqrt()
        return torch.cat([mean, deviation], dim=1)
    return x.flatten(1, -2).mean(1) if x.dim() > 2 else x
