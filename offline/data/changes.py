"""Change inputs: what is made of ordinary ones, in their own dtype and finite.

Every scale comes from the batch itself (smallest and largest value of each channel or column), so that a change means
the same in any units. Random draws are made on the CPU and follow the seed and an example's place in the batch.
"""

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from demur.service.bundle import InputPart

from ..network.inputs import KINDS

Kind = Literal["images", "table", "tokens", "other"]
Change = Callable[[Tensor, torch.Generator], Tensor]


def kind_of(inputs: Tensor, parts: Sequence[InputPart] | None = None) -> Kind:
    """What a batch holds, by dtype and shape: integers are tokens, also those packed in parts, (B, C, H, W) images,
    (B, F) a table."""
    if not inputs.is_floating_point() or _are_tokens(parts):
        return "tokens"
    return {4: "images", 2: "table"}.get(inputs.dim(), "other")  # type: ignore[return-value]


def _are_tokens(parts: Sequence[InputPart] | None) -> bool:
    """Whether all that is packed are whole numbers: the values of none have a unit or an order."""
    return parts is not None and all(part.dtype != "float32" for part in parts)


def changed(
    inputs: Tensor, change: Change, generator: torch.Generator, parts: Sequence[InputPart] | None = None
) -> Tensor:
    """The inputs after a change, in their own dtype and finite; where tokens are packed, these alone change."""
    if parts is not None and _are_tokens(parts):
        return _change_tokens(inputs.detach(), parts, lambda tokens: change(tokens, generator))
    return _restored(change(_wide(inputs), generator), inputs)


def _change_tokens(inputs: Tensor, parts: Sequence[InputPart], change: Callable[[Tensor], Tensor]) -> Tensor:
    """`inputs` (B, F), packed, with every part but masks and types of tokens changed where its mask has any.

    change: whole numbers (B, L) -> others of that shape.
    """
    pieces = dict(
        zip([part.name for part in parts], torch.split(inputs, [part.size for part in parts], 1), strict=True)
    )
    masks = [piece.bool() for name, piece in pieces.items() if KINDS.get(name) == "mask"]
    changed = []
    for name, piece in pieces.items():
        if KINDS.get(name, "ids") == "ids":
            there = next((mask for mask in masks if mask.shape == piece.shape), torch.ones_like(piece).bool())
            changed.append(torch.where(there, change(piece.long()).to(piece.dtype), piece))
        else:
            changed.append(piece)
    return torch.cat(changed, dim=1)


def stream(seed: int, number: int) -> torch.Generator:
    """A stream for each use of a seed, unlike torch's own for it, by which the data may have been drawn."""
    (state,) = np.random.SeedSequence([seed, number]).generate_state(1, np.uint64)
    return torch.Generator().manual_seed(int(state >> np.uint64(1)))


def _wide(inputs: Tensor) -> Tensor:
    """float64: no change of float32 inputs overflows before it is clamped."""
    return inputs.detach().double() if inputs.is_floating_point() else inputs.detach()


def _restored(changed: Tensor, inputs: Tensor) -> Tensor:
    """In the dtype of `inputs`, and finite."""
    if not inputs.is_floating_point():
        return changed.to(inputs.dtype)
    limits = torch.finfo(inputs.dtype)
    return changed.nan_to_num(nan=0.0).clamp(limits.min, limits.max).to(inputs.dtype)


def over(x: Tensor) -> tuple[int, ...]:
    """Dimensions that a scale is taken over: all but the channels of images or the columns of a table."""
    return tuple(d for d in range(x.dim()) if d != 1) if x.dim() in (2, 4) else tuple(range(x.dim()))


def value_range(x: Tensor) -> tuple[Tensor, Tensor]:
    """Smallest and largest value of each channel of images or column of a table, of everything else in all."""
    return x.amin(over(x), keepdim=True), x.amax(over(x), keepdim=True)


def uniform(x: Tensor, generator: torch.Generator) -> Tensor:
    """Uniform in [0, 1), float64, of the shape of x."""
    return torch.rand(x.shape, generator=generator, dtype=torch.float64).to(x.device)


def inversion(x: Tensor, _: torch.Generator) -> Tensor:
    """smallest + largest - x."""
    low, high = value_range(x)
    return low + high - x


def random_tokens(x: Tensor, generator: torch.Generator) -> Tensor:
    """At each place the token that a random example of the batch has there: no number is out of its vocabulary."""
    flat = x.reshape(len(x), -1)
    return flat.gather(0, torch.randint(0, len(flat), flat.shape, generator=generator).to(x.device)).reshape(x.shape)
