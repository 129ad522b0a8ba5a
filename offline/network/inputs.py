"""Several inputs of a model as one: side by side in a float32 tensor (B, F), and unpacked in front of the network."""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from demur.service.bundle import InputPart
from demur.service.format.manifest_input import TokenKind
from demur.service.inference.frames import is_frame
from demur.service.inference.parts import LARGEST_WHOLE

# What the arguments of networks are called, by transformers and by hand.
KINDS: Mapping[str, TokenKind] = {
    "input_ids": "ids",
    "attention_mask": "mask",
    "token_type_ids": "types",
    "ids": "ids",
    "mask": "mask",
    "types": "types",
}
DTYPES: dict[str, torch.dtype] = {"float32": torch.float32, "int64": torch.int64, "bool": torch.bool}


@dataclass(frozen=True)
class InputForm:
    """How a model takes what is packed in a tensor (B, F): `parts`, or None where it takes the one tensor as it is.

    call: by name as `model(**inputs)`, one after the other as `model(*inputs)`, or as one mapping or tuple.
    """

    parts: tuple[InputPart, ...] | None = None
    call: str = "one"

    def arguments(self, packed: Tensor) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The positional and the named arguments of the model for a packed batch."""
        if self.parts is None:
            return (packed,), {}
        pieces = torch.split(packed, [part.size for part in self.parts], dim=1)
        named = {
            part.name: _as(piece.reshape(-1, *part.shape), part.dtype)
            for part, piece in zip(self.parts, pieces, strict=True)
        }
        if self.call == "by name":
            return (), named
        if self.call == "mapping":
            return (named,), {}
        return (tuple(named.values()),) if self.call == "tuple" else tuple(named.values()), {}

    def install(self, network: nn.Module) -> None:
        """From now on the network takes packed tensors. A hook, so that the paths of its layers stay as they are."""
        if self.parts is not None:
            network.register_forward_pre_hook(self._hook, with_kwargs=True, prepend=True)  # before the user's own

    def _hook(self, _: nn.Module, args: tuple[Any, ...], __: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return self.arguments(args[0])

    def lines(self) -> list[str]:
        """What is worth telling the user, a line each."""
        if self.parts is None:
            return []
        named = ", ".join(f"{part.name} {part.dtype} {part.shape}" for part in self.parts)
        count = "the input" if len(self.parts) == 1 else f"{len(self.parts)} inputs:"
        return [f"the model takes {count} {named}"]


ONE_INPUT = InputForm()


def named_inputs(inputs: object, where: str) -> dict[str, Any] | None:
    """Several inputs by name, in the order in which they are packed: tensors or arrays in a mapping, by its sorted
    names, or in a tuple or list, by their places; None for anything else.

    Raises `ValueError` for data frames: their columns would be taken by position.
    """
    if isinstance(inputs, Mapping):
        by_name = {str(name): inputs[name] for name in sorted(inputs, key=str)}
    elif isinstance(inputs, tuple | list):
        by_name = {str(place): value for place, value in enumerate(inputs)}
    else:
        return None
    if not by_name or not all(hasattr(value, "__array__") for value in by_name.values()):
        return None
    for name, value in by_name.items():
        if is_frame(value):
            raise ValueError(
                f"{where}, input {name!r}: found a data frame, expected an array: of several inputs none has names for "
                "its columns; give frame[columns].to_numpy()"
            )
    return by_name


def packed(inputs: Any, where: str, parts: Sequence[InputPart] | None = None) -> Any:
    """Several inputs as (B, F) float32; anything else as it is.

    parts: those of the training data. Raises `ValueError` for other names, numbers or shapes than theirs, and for what
    float32 does not hold.
    """
    by_name = named_inputs(inputs, where)
    if by_name is None:
        return inputs
    if parts is not None:
        _check_parts(by_name, parts, isinstance(inputs, Mapping), where)
    pieces = []
    for name, value in by_name.items():
        tensor = value if isinstance(value, Tensor) else torch.as_tensor(value)
        kind = dtype_of(tensor, f"{where}, input {name!r}")
        largest = int(tensor.long().abs().max()) if kind != "float32" and tensor.numel() else 0
        if largest > LARGEST_WHOLE:
            raise ValueError(
                f"{where}, input {name!r}: found whole numbers up to {largest}, expected at most {LARGEST_WHOLE}, as "
                "float32 holds them"
            )
        pieces.append(tensor.reshape(len(tensor), -1).float())
    if len({len(piece) for piece in pieces}) > 1:
        raise ValueError(
            f"{where}: found inputs of {[len(piece) for piece in pieces]} examples, expected as many of each"
        )
    return torch.cat(pieces, dim=1)


def _check_parts(by_name: Mapping[str, Any], parts: Sequence[InputPart], by_names: bool, where: str) -> None:
    found = {name: tuple(value.shape[1:]) for name, value in by_name.items()}
    expected = {part.name: part.shape for part in parts}
    if (by_names and list(found) != list(expected)) or list(found.values()) != list(expected.values()):
        raise ValueError(f"{where}: found inputs of shapes {found}, expected {expected} as in the training data")


def input_form(model: nn.Module, inputs: object) -> InputForm:
    """How the model takes inputs like these: by the names and the number of the arguments of its `forward`."""
    by_name = named_inputs(inputs, "model")
    if by_name is None:
        return ONE_INPUT
    parameters = list(inspect.signature(model.forward).parameters.values())
    positional = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    any_number = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    if isinstance(inputs, Mapping):
        takes = {p.name for p in parameters} if not any(p.kind is p.VAR_KEYWORD for p in parameters) else set(by_name)
        call = "by name" if set(by_name) <= takes else "mapping"
        names = list(by_name)
    else:
        one_by_one = any_number or len(positional) >= len(by_name)
        call = "in order" if one_by_one else "tuple"
        names = positional[: len(by_name)] if len(positional) >= len(by_name) else [f"input_{k}" for k in by_name]
    tensors = [value if isinstance(value, Tensor) else torch.as_tensor(value) for value in by_name.values()]
    return InputForm(
        tuple(
            InputPart(name, tuple(tensor.shape[1:]), dtype_of(tensor, f"input {name!r}"))  # type: ignore[arg-type]
            for name, tensor in zip(names, tensors, strict=True)
        ),
        call,
    )


def argument_names(model: nn.Module) -> tuple[str, ...]:
    """What the arguments of its `forward` are called, or the inputs of its file."""
    own: Sequence[str] | None = getattr(model, "input_names", None)
    return tuple(inspect.signature(model.forward).parameters if own is None else own)


def dtype_of(tensor: Tensor, where: str) -> str:
    """The type that a network takes: float32, int64 or bool; `ValueError` for anything else."""
    if tensor.dtype == torch.bool:
        return "bool"
    if tensor.is_floating_point():
        return "float32"
    if not tensor.is_complex():
        return "int64"
    raise ValueError(f"{where}: found dtype {tensor.dtype}, expected floating point, whole numbers or truth values")


def _as(tensor: Tensor, dtype: str) -> Tensor:
    """Floats stay as they are: in a trial they are float64."""
    return tensor if dtype == "float32" else tensor.to(DTYPES[dtype])
