"""Whole numbers that are packed beside what masks them: the tokens of texts, and categories."""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from demur.service.bundle import InputPart
from demur.service.format.manifest_input import TokenKind

# What the arguments of networks are called, by transformers and by hand.
KINDS: Mapping[str, TokenKind] = {
    "input_ids": "ids",
    "attention_mask": "mask",
    "token_type_ids": "types",
    "ids": "ids",
    "mask": "mask",
    "types": "types",
}


def are_tokens(parts: Sequence[InputPart] | None) -> bool:
    """Whether all that is packed are whole numbers: the values of none have a unit or an order."""
    return parts is not None and all(part.dtype != "float32" for part in parts)


def change_tokens(inputs: Tensor, parts: Sequence[InputPart], change: Callable[[Tensor], Tensor]) -> Tensor:
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
