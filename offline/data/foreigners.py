"""Obvious foreigners: inputs that nobody should answer, made from a batch of ordinary ones.

They hold nothing that a network could have learned, or come from a forgotten scaling. Random draws follow the seed and
an example's place in the batch.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from demur.service.bundle import InputPart

from .changes import Change, Kind, changed, inversion, kind_of, random_tokens, stream, uniform, value_range

FOREIGN_EXAMPLES = 100  # of each kind: shares to within 10 %, in the time of a few hundred predictions
FIRST_STREAM = 1000  # behind those of the features and of mistakes
LEVELS = 3  # of constant inputs: smallest value, middle, largest
# Noise in each column's own range is an ordinary row where columns are independent, and a row of zeros is the mean of
# standardised columns; and columns of one kind may stand in any order: shares are measured, and nothing follows.
UNJUDGED = frozenset({"column-noise", "zeros", "reversed-columns"})


def obvious_foreigners(inputs: Tensor, seed: int, parts: Sequence[InputPart] | None = None) -> dict[str, Tensor]:
    """Name -> foreign inputs of the same shape, dtype and device, finite; `inputs` (B, ...) is not changed. parts: what
    is packed in it; None: it is one input.

    Images: noise, constant, inverted, scaled-by-10, scaled-by-255, shuffled-pixels. Tables: column-noise, scaled-by-10,
    scaled-by-100, zeros, reversed-columns. Tokens: random-tokens, constant-token. Anything else: noise, constant,
    scaled-by-10, scaled-by-100. What is ordinary for the shape (a constant image of one pixel) is left out: nothing
    remains for a single token. Raises `ValueError` for an empty batch.
    """
    if not inputs.numel():
        raise ValueError(
            f"obvious_foreigners: found inputs of shape {tuple(inputs.shape)}, expected at least one value"
        )
    kind = kind_of(inputs, parts)
    several = inputs.shape[2 if kind == "images" else 1 :].numel() > 1
    return {
        name: changed(inputs, change, stream(seed, FIRST_STREAM + number), parts)
        for number, (name, change) in enumerate(FOREIGNERS[kind].items())
        if several or name not in NEEDS_SEVERAL
    }


def is_judged(name: str) -> bool:
    """Whether inputs of this kind should be rejected whatever the data are."""
    return name not in UNJUDGED


def noise(x: Tensor, generator: torch.Generator) -> Tensor:
    """Uniform from the smallest to the largest value of each channel or column, or of everything."""
    low, high = value_range(x)
    return low + (high - low) * uniform(x, generator)


def constant(x: Tensor, _: torch.Generator) -> Tensor:
    """A third of the examples holds the smallest value of each channel, the next the middle, the last the largest."""
    low, high = value_range(x)
    thirds = torch.arange(len(x), device=x.device) * LEVELS // len(x)
    level = (thirds.double() / (LEVELS - 1)).reshape(-1, *[1] * (x.dim() - 1))
    return (low + (high - low) * level).expand_as(x)


def shuffled_pixels(x: Tensor, generator: torch.Generator) -> Tensor:
    """The pixels of each image in an order of its own, the same for all channels."""
    flat = x.flatten(2)
    order = uniform(flat[:, :1], generator).argsort(dim=2)
    return flat.gather(2, order.expand_as(flat)).reshape(x.shape)


def scaled(factor: float) -> Change:
    """factor x."""
    return lambda x, _: factor * x


def constant_token(x: Tensor, _: torch.Generator) -> Tensor:
    """The first token of each example everywhere, within the range that each place has in the batch.

    A place may have a vocabulary of its own (columns of categories), beyond which a network fails.
    """
    flat = x.reshape(len(x), -1)
    return torch.clamp(flat[:, :1].expand_as(flat), flat.amin(0), flat.amax(0)).reshape(x.shape)


FOREIGNERS: dict[Kind, dict[str, Change]] = {
    "images": {
        "noise": noise,
        "constant": constant,
        "inverted": inversion,
        "scaled-by-10": scaled(10.0),
        "scaled-by-255": scaled(255.0),
        "shuffled-pixels": shuffled_pixels,
    },
    "table": {
        "column-noise": noise,
        "scaled-by-10": scaled(10.0),
        "scaled-by-100": scaled(100.0),
        "zeros": lambda x, _: torch.zeros_like(x),
        "reversed-columns": lambda x, _: x.flip(1),
    },
    "tokens": {"random-tokens": random_tokens, "constant-token": constant_token},
    "other": {
        "noise": noise,
        "constant": constant,
        "scaled-by-10": scaled(10.0),
        "scaled-by-100": scaled(100.0),
    },
}
NEEDS_SEVERAL = frozenset(
    {"noise", "constant", "inverted", "shuffled-pixels", "reversed-columns", "random-tokens", "constant-token"}
)
