"""Which layer of a network cannot be exported: each kind of layer is tried alone, the innermost first."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_unflatten

SEARCH_SECONDS = 60.0
Stage = Literal["forward", "backward"]
STAGES: tuple[Stage, ...] = ("forward", "backward")
Function = Callable[..., tuple[Tensor, ...]]
Try = Callable[[Function, list[Tensor]], BaseException | None]
SameCause = Callable[[BaseException], bool]


@dataclass(frozen=True)
class FailingLayer:
    """Its path ("" for the model's own forward) and class; whether its forward or only its backward pass fails."""

    path: str
    kind: str
    stage: Stage

    def __str__(self) -> str:
        name = f"layer {self.path!r} ({self.kind})" if self.path else f"the forward of the model itself ({self.kind})"
        return name if self.stage == "forward" else f"the backward pass of {name}"


@dataclass(frozen=True)
class Call:
    """One call of a layer: its path, and its arguments with the tensors taken out."""

    path: str
    layer: nn.Module
    arguments: list[Any]
    structure: Any

    @property
    def tensors(self) -> list[Tensor]:
        """The floating-point arguments, in which the layer is differentiated."""
        return [value for value in self.arguments if isinstance(value, Tensor) and value.is_floating_point()]

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """The layer's floating-point results for other tensors."""
        given = iter(tensors)
        values = [
            next(given) if isinstance(value, Tensor) and value.is_floating_point() else value
            for value in self.arguments
        ]
        args, kwargs = tree_unflatten(values, self.structure)
        results = tree_flatten(self.layer(*args, **kwargs))[0]
        return tuple(value for value in results if isinstance(value, Tensor) and value.is_floating_point())

    def backward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """The gradients of the sum of the results in the tensors."""
        with torch.enable_grad():
            leaves = [tensor.detach().requires_grad_() for tensor in tensors]
            total = torch.stack([value.sum() for value in self.forward(*leaves)]).sum()
            return torch.autograd.grad(total, leaves, allow_unused=True, materialize_grads=True)


def failing_layer(model: nn.Module, rows: Tensor, attempt: Try, same_cause: SameCause) -> FailingLayer:
    """The first layer to end its call that fails alone with the same cause; the model itself where none does, and then
    its forward pass only where that fails without any derivative.

    rows (B, *input_shape); attempt: the error of an export, or None. One layer of each class is tried, and those whose
    settings differ after that, within `SEARCH_SECONDS`.
    """
    end = time.monotonic() + SEARCH_SECONDS
    for call in _distinct(_calls(model, rows)):
        if time.monotonic() > end:
            break
        if not call.tensors:
            continue
        for stage in STAGES:
            error = attempt(getattr(call, stage), call.tensors)
            if error is not None and same_cause(error):
                return FailingLayer(call.path, type(call.layer).__name__, stage)
    alone = attempt(lambda x: (model(x),), [rows])
    return FailingLayer("", type(model).__name__, "backward" if alone is None else "forward")


def _calls(model: nn.Module, rows: Tensor) -> list[Call]:
    """In the order in which they end, so that a layer stands before those that hold it."""
    calls: list[Call] = []

    def record(path: str) -> Callable[..., None]:
        def hook(layer: nn.Module, args: Any, kwargs: Any, _: object) -> None:
            calls.append(Call(path, layer, *tree_flatten((args, kwargs))))

        return hook

    handles = [
        layer.register_forward_hook(record(path), with_kwargs=True) for path, layer in model.named_modules() if path
    ]
    try:
        with torch.no_grad():
            model(rows)
    finally:
        for handle in handles:
            handle.remove()
    return calls


def _distinct(calls: list[Call]) -> list[Call]:
    """One call for each class and settings, the first of every class before the others."""
    first: dict[type, Call] = {}
    others: dict[str, Call] = {}
    for call in calls:
        kind = type(call.layer)
        if first.setdefault(kind, call) is not call and str(call.layer) != str(first[kind].layer):
            others.setdefault(str(call.layer), call)
    return [*first.values(), *others.values()]
