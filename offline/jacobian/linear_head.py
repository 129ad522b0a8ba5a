"""The linear head of a network, and the layers whose features reach it separately: derivatives in closed form.

Where the outputs are f = W h + b, the output of the last Linear, the derivative in its own weights needs no backward
pass: d f_k / d W_oi = [k = o] h_i. Where feature o of a layer moves feature o of h and no other (a convolution followed
by batch normalisation, activation, shortcut and global pooling; the last hidden layer of an MLP), that in the layer's
weights needs one for all outputs: d f_k / d w = W_ko d h_o / d w = W_ko d (sum_j h_j) / d w for a weight w of feature
o.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..network.weights import Parameter
from .layer_rules import Entries
from .mixtures import Mixed


@dataclass(frozen=True)
class LinearHead:
    """The Linear at `path`, whose output is the network's, and the layers whose features reach it separately."""

    path: str
    separate: frozenset[str] = frozenset()

    def layer(self, model: nn.Module) -> nn.Linear:
        """The layer itself."""
        layer = model.get_submodule(self.path)
        assert isinstance(layer, nn.Linear)
        return layer


@dataclass(frozen=True)
class HeadParameter:
    """Chosen entries of the head's weight or bias: `outputs` (n,) that each belongs to, `features` (n,) of h that each
    multiplies (None: a bias)."""

    parameter: Parameter
    outputs: Tensor
    features: Tensor | None

    @classmethod
    def of(cls, layer: nn.Linear, parameter: Parameter, role: str, positions: Tensor) -> "HeadParameter":
        if role == "bias":
            return cls(parameter, positions, None)
        return cls(parameter, positions // layer.in_features, positions % layer.in_features)

    def features_or(self, constant: int) -> Tensor:
        """`features`, and for a bias the number `constant` for each of its entries."""
        return torch.full_like(self.outputs, constant) if self.features is None else self.features

    def values(self, h: Tensor) -> Tensor:
        """(B, n): what each entry multiplies, h (B, F)."""
        return h[:, self.features] if self.features is not None else h.new_ones(h.shape[0], len(self.outputs))

    def block(self, h: Tensor, mixed: Mixed) -> Tensor:
        """The derivatives (B, M, n) of M outputs or mixtures, zero where an entry belongs to none of them; h (B, F)."""
        return mixed.shares(self.outputs).to(h.dtype) * self.values(h).unsqueeze(1)


@dataclass(frozen=True)
class FeatureParameter:
    """Chosen entries of a parameter of the layer at `path`, whose features stay separate: `features` (n,) that each
    belongs to, and the rule that forms their derivatives."""

    parameter: Parameter
    path: str
    entries: Entries
    features: Tensor

    def block(self, head: nn.Linear, layer: nn.Module, a: Tensor, gradient: Tensor, mixed: Mixed) -> Tensor:
        """The derivatives (B, M, n) of M outputs or mixtures: W_ko, or its mixture, times the derivative of sum_j h_j;
        gradient (B, *layer output) of that sum."""
        return mixed.rows(head.weight)[:, :, self.features] * self.entries(layer, a, gradient.unsqueeze(1))


def features_of(layer: nn.Module, role: str, positions: Tensor) -> Tensor:
    """The output feature of each of the `positions` (n,) of a flattened weight or bias (`role`)."""
    weight: Any = layer.weight
    return positions if role == "bias" else positions // weight[0].numel()


class HeadInput:
    """Context manager: the input (B, F) of the head during a forward pass, with its graph."""

    def __init__(self, model: nn.Module, head: LinearHead) -> None:
        self._layer = head.layer(model)
        self.features: Tensor | None = None

    def __enter__(self) -> "HeadInput":
        self._hook = self._layer.register_forward_pre_hook(self._record, with_kwargs=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._hook.remove()

    def _record(self, layer: nn.Module, args: tuple[Tensor, ...], kwargs: dict[str, Tensor]) -> None:  # noqa: ARG002
        self.features = args[0] if args else kwargs["input"]
