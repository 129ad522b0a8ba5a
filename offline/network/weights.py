"""The layout of the trainable weights: names, shapes and positions in the flattened vector."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from .unsupported import UnsupportedModelError

Owners = dict[str, list[tuple[str, str]]]


@dataclass(frozen=True)
class Parameter:
    """One trainable tensor; its entries are positions `offset` ... `offset + size - 1` of the flattened weights."""

    name: str
    shape: tuple[int, ...]
    offset: int
    size: int


@dataclass(frozen=True)
class WeightLayout:
    """The trainable tensors of a model in the order of `named_parameters()`, tied tensors once.

    A position counts over trainable tensors only; every exchange with the model goes by name, so a frozen
    tensor in between shifts nothing.
    """

    parameters: tuple[Parameter, ...]

    @classmethod
    def of(cls, model: nn.Module) -> "WeightLayout":
        """The layout of every parameter with `requires_grad`; `ValueError` when there is none."""
        parameters, offset = [], 0
        for name, tensor in model.named_parameters():
            if tensor.requires_grad and tensor.numel():
                parameters.append(Parameter(name, tuple(tensor.shape), offset, tensor.numel()))
                offset += tensor.numel()
        if not parameters:
            raise UnsupportedModelError(
                "model: found no trainable parameter, expected at least one; call requires_grad_(True)"
            )
        return cls(tuple(parameters))

    @property
    def total(self) -> int:
        """D, the number of trainable weights."""
        last = self.parameters[-1]
        return last.offset + last.size

    def locate(self, indices: Tensor) -> Iterator[tuple[Parameter, Tensor]]:
        """For each tensor that holds some of the ascending `indices` (S,): the tensor and positions within it."""
        ends = torch.tensor([p.offset + p.size for p in self.parameters], device=indices.device)
        counts = torch.searchsorted(indices.contiguous(), ends).tolist()
        start = 0
        for parameter, end in zip(self.parameters, counts, strict=True):
            if end > start:
                yield parameter, indices[start:end] - parameter.offset
            start = end

    def flatten(self, tensors: Mapping[str, Tensor]) -> Tensor:
        """The named tensors as one vector (D,)."""
        return torch.cat([tensors[p.name].reshape(-1) for p in self.parameters])


def parameter_owners(model: nn.Module) -> Owners:
    """For each parameter's first name, every (module path, attribute) that holds it: tied weights have several."""
    first_name = {id(tensor): name for name, tensor in model.named_parameters()}
    owners: Owners = {}
    for path, module in model.named_modules():
        for attribute, tensor in module.named_parameters(recurse=False, remove_duplicate=False):
            owners.setdefault(first_name[id(tensor)], []).append((path, attribute))
    return owners
