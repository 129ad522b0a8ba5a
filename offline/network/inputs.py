"""Several inputs of a model as one: side by side in a float32 tensor (B, F), and unpacked in front of the network."""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from demur.service.bundle import InputPart
from demur.service.inference.frames import is_frame
from demur.service.inference.parts import LARGEST_WHOLE

DTYPES: dict[str, torch.dtype] = {"float32": torch.float32, "int64": torch.int64, "bool": torch.bool}
Several = Mapping[str, Any] | Sequence[Any]


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
            network.register_forward_pre_hook(self._hook, with_kwargs=True)

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


def is_several(inputs: object) -> bool:
    """Whether a batch's inputs are several tensors or arrays: in a mapping, tuple or list."""
    values = list(inputs.values()) if isinstance(inputs, Mapping) else inputs
    return isinstance(values, tuple | list) and bool(values) and all(hasattr(value, "__array__") for value in values)


def pack(inputs: Several, where: str) -> Tensor:
    """(B, F) float32; those of a mapping in the order of their names. `ValueError` for what float32 does not hold."""
    pieces = []
    refuse_frames(inputs, where)
    for name, value in named(inputs).items():
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


def named(inputs: Several) -> dict[str, Any]:
    """By name, in the order in which they are packed; those of a tuple are called by their place."""
    if isinstance(inputs, Mapping):
        return {str(name): inputs[name] for name in sorted(inputs)}
    return {str(place): value for place, value in enumerate(inputs)}


def check_parts(inputs: object, parts: Sequence[InputPart], where: str) -> None:
    """`ValueError` for other inputs than those of the training data: names of a mapping, number and shapes."""
    assert isinstance(inputs, Mapping | Sequence)
    found = {name: tuple(value.shape[1:]) for name, value in named(inputs).items()}
    expected = {part.name: part.shape for part in parts}
    same_names = not isinstance(inputs, Mapping) or list(found) == list(expected)
    if not same_names or list(found.values()) != list(expected.values()):
        raise ValueError(f"{where}: found inputs of shapes {found}, expected {expected} as in the training data")


def refuse_frames(inputs: Several, where: str) -> None:
    """`ValueError` for data frames: their columns would be taken by position."""
    for name, value in named(inputs).items():
        if is_frame(value):
            raise ValueError(
                f"{where}, input {name!r}: found a data frame, expected an array: of several inputs none has names for "
                "its columns; give frame[columns].to_numpy()"
            )


def input_form(model: nn.Module, inputs: object) -> InputForm:
    """How the model takes inputs like these: by the names and the number of the arguments of its `forward`."""
    if not is_several(inputs):
        return ONE_INPUT
    parameters = list(inspect.signature(model.forward).parameters.values())
    positional = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    any_number = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    assert isinstance(inputs, Mapping | Sequence)
    by_name = named(inputs)
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
