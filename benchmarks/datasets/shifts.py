"""Synthetic shifts: what inputs look like when something goes wrong, made from a batch of ordinary inputs.

Every scale comes from the batch itself (mean, standard deviation, smallest and largest value of each channel or
column), so that a shift means the same in any units. Random draws are made on the CPU and follow the seed and an
example's place in the batch.
"""

import math
from collections.abc import Collection, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from demur.offline.data.changes import (
    Change,
    Kind,
    changed,
    inversion,
    kind_of,
    over,
    random_tokens,
    stream,
    uniform,
    value_range,
)
from demur.service.bundle import InputPart

STRETCH = 3.0  # how far "scaling" moves an example from the batch's mean
WIDENING = 0.5  # by how much of the range "widened-range" goes beyond either end
BLUR_SHARE, PATCH_SHARE = 4, 2  # a blur over a quarter of each side; a patch of half of each side


def synthetic_shifts(
    inputs: Tensor, seed: int, names: Collection[str] | None = None, parts: Sequence[InputPart] | None = None
) -> dict[str, Tensor]:
    """Name -> shifted inputs of the same shape, dtype and device, finite; `inputs` (B, ...) is not changed.

    Those called `names`, or all (None); a shift's draws are the same whichever others are made. parts: what is packed
    in `inputs`; None: it is one input.

    Images: noise, blur, rotation-45, rotation-90, inversion, erasing. Tables: noise, scaling, permuted-columns,
    widened-range. Tokens: shuffled-order, random-tokens. Anything else: noise, scaling, inversion. A shift that the
    shape does not allow (one column, one token, one pixel) is left out. Raises `ValueError` for an empty batch and
    for names that inputs of this kind do not have.
    """
    if not inputs.numel():
        raise ValueError(f"synthetic_shifts: found inputs of shape {tuple(inputs.shape)}, expected at least one value")
    known = available_shifts(inputs, parts)
    wanted = known if names is None else names
    unknown = [name for name in wanted if name not in known]
    if unknown or not wanted:
        raise ValueError(
            f"shifts: found {unknown[0] if unknown else 'none'!r}, expected some of {', '.join(known)} for inputs of "
            f"shape (B, {', '.join(map(str, inputs.shape[1:]))})"
        )
    return {
        name: changed(inputs, shift, stream(seed, number), parts)
        for number, (name, shift) in enumerate(SHIFTS[kind_of(inputs, parts)].items())
        if name in wanted
    }


def available_shifts(inputs: Tensor, parts: Sequence[InputPart] | None = None) -> tuple[str, ...]:
    """Names of the shifts that a batch's kind and shape allow."""
    several = inputs.shape[1:].numel() > 1
    return tuple(name for name in SHIFTS[kind_of(inputs, parts)] if several or name not in NEEDS_SEVERAL)


def _std(x: Tensor) -> Tensor:
    return x.std(over(x), correction=0, keepdim=True)


def _normal(x: Tensor, generator: torch.Generator) -> Tensor:
    return torch.randn(x.shape, generator=generator, dtype=x.dtype).to(x.device)


def noise(x: Tensor, generator: torch.Generator) -> Tensor:
    """x + std * N(0, 1)."""
    return x + _std(x) * _normal(x, generator)


def image_noise(x: Tensor, generator: torch.Generator) -> Tensor:
    """Noise, kept within the values that pixels take."""
    low, high = value_range(x)
    return noise(x, generator).clamp(low, high)


def blur(x: Tensor, _: torch.Generator) -> Tensor:
    """The mean over a window of a quarter of each side, edges repeated."""
    height, width = (max(1, side // BLUR_SHARE // 2) for side in x.shape[2:])
    padded = F.pad(x, (width, width, height, height), mode="replicate")
    return F.avg_pool2d(padded, (2 * height + 1, 2 * width + 1), stride=1)


def rotate(x: Tensor, degrees: float) -> Tensor:
    """Turned about the centre, in pixels (an oblong image is not sheared); what comes into view repeats the edge."""
    height, width = x.shape[2:]
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    turn = x.new_tensor([[cos, -sin * height / width, 0.0], [sin * width / height, cos, 0.0]])
    grid = F.affine_grid(turn.expand(len(x), 2, 3), list(x.shape), align_corners=False)
    return F.grid_sample(x, grid, padding_mode="border", align_corners=False)


def erasing(x: Tensor, generator: torch.Generator) -> Tensor:
    """A patch of half of each side, at a place of its own in each example, holds the channel's mean."""
    inside = torch.ones(len(x), 1, *x.shape[2:], dtype=torch.bool, device=x.device)
    for dim, side in enumerate(x.shape[2:], start=2):
        length = max(1, side // PATCH_SHARE)
        start = torch.randint(0, side - length + 1, (len(x),), generator=generator).to(x.device)
        place = torch.arange(side, device=x.device) - start.unsqueeze(1)
        shape = [len(x), 1, 1, 1]
        shape[dim] = side
        inside &= ((place >= 0) & (place < length)).reshape(shape)
    return torch.where(inside, x.mean(over(x), keepdim=True), x)


def scaling(x: Tensor, _: torch.Generator) -> Tensor:
    """mean + 3 (x - mean)."""
    mean = x.mean(over(x), keepdim=True)
    return mean + STRETCH * (x - mean)


def permuted_columns(x: Tensor, generator: torch.Generator) -> Tensor:
    """Each column takes another's values, in its own mean and standard deviation; no column keeps its place."""
    mean, std = x.mean(0, keepdim=True), _std(x)
    standard = torch.where(std > 0, (x - mean) / std, 0.0)
    order = torch.randperm(x.shape[1], generator=generator)
    source = torch.empty_like(order)
    source[order] = order.roll(1)  # one cycle through all columns
    return mean + std * standard[:, source.to(x.device)]


def widened_range(x: Tensor, generator: torch.Generator) -> Tensor:
    """Uniform in each column from half a range below the smallest value to half a range above the largest."""
    low, high = value_range(x)
    margin = WIDENING * (high - low)
    return low - margin + (high - low + 2 * margin) * uniform(x, generator)


def shuffled_order(x: Tensor, generator: torch.Generator) -> Tensor:
    """The tokens of each example in an order of its own.

    A place may have a vocabulary of its own (columns of categories): what its tokens' range in the batch does not hold
    stays away from it, and the token that was there remains.
    """
    flat = x.reshape(len(x), -1)
    moved = flat.gather(1, uniform(flat, generator).argsort(dim=1))
    held = (moved >= flat.amin(0)) & (moved <= flat.amax(0))
    return torch.where(held, moved, flat).reshape(x.shape)


SHIFTS: dict[Kind, dict[str, Change]] = {
    "images": {
        "noise": image_noise,
        "blur": blur,
        "rotation-45": lambda x, _: rotate(x, 45),
        "rotation-90": lambda x, _: torch.rot90(x, 1, (2, 3)) if x.shape[2] == x.shape[3] else rotate(x, 90),
        "inversion": inversion,
        "erasing": erasing,
    },
    "table": {
        "noise": noise,
        "scaling": scaling,
        "permuted-columns": permuted_columns,
        "widened-range": widened_range,
    },
    "tokens": {"shuffled-order": shuffled_order, "random-tokens": random_tokens},
    "other": {"noise": noise, "scaling": scaling, "inversion": inversion},
}
NEEDS_SEVERAL = frozenset({"blur", "rotation-45", "rotation-90", "permuted-columns", "shuffled-order"})
