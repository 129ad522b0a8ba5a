"""A multi-layer perceptron of scikit-learn as a network of torch: the same weights, in float32."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..runtime.arrays import Array
from .unsupported import UnsupportedModelError

ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "identity": nn.Identity,
    "logistic": nn.Sigmoid,
    "tanh": nn.Tanh,
    "relu": nn.ReLU,
}
SCALERS = ("StandardScaler", "MinMaxScaler", "MaxAbsScaler", "RobustScaler")
LINKS = ("identity", "softmax", "logistic")  # left out
PERCEPTRONS = ("MLPClassifier", "MLPRegressor")


class Scaling(nn.Module):
    """(x - shift) / scale of each column."""

    shift: Tensor
    scale: Tensor

    def __init__(self, shift: Array, scale: Array) -> None:
        super().__init__()
        self.register_buffer("shift", torch.as_tensor(shift, dtype=torch.float32))
        self.register_buffer("scale", torch.as_tensor(scale, dtype=torch.float32))

    def forward(self, x: Tensor) -> Tensor:
        """(B, F) -> (B, F)."""
        scaled: Tensor = (x - self.shift) / self.scale
        return scaled


class Perceptron(nn.Sequential):
    """classes_, feature_names_in_: scikit-learn's, of a classification, and of a network that learnt from a frame."""

    classes_: Array | None = None
    feature_names_in_: Array | None = None


def from_sklearn(model: Any) -> Perceptron:
    """Of an MLPClassifier or MLPRegressor, alone or in a Pipeline behind scalers: logits, or the means.

    Raises `UnsupportedModelError` for one that is not trained, and for other steps.
    """
    steps = [step for _, step in model.steps] if type(model).__name__ == "Pipeline" else [model]
    *before, last = [step for step in steps if step not in (None, "passthrough")]
    if type(last).__name__ not in PERCEPTRONS:
        raise UnsupportedModelError(f"model: found {type(last).__name__}, expected one of {', '.join(PERCEPTRONS)}")
    if not hasattr(last, "coefs_"):
        raise UnsupportedModelError(f"model: found {type(last).__name__} that is not trained; call its fit(X, y) first")
    if last.out_activation_ not in LINKS:
        raise UnsupportedModelError(
            f"model: found {type(last).__name__} with the outputs' activation {last.out_activation_!r}, expected one "
            f"of {', '.join(LINKS)}"
        )
    network = Perceptron(*map(_scaling, before), *_layers(last))
    network.classes_ = getattr(last, "classes_", None)
    network.feature_names_in_ = getattr(model, "feature_names_in_", None)
    return network.eval()


def _scaling(step: Any) -> Scaling:
    """(x - shift) / scale, as the step has learnt it."""
    kind = type(step).__name__
    if kind not in SCALERS or getattr(step, "clip", False):
        raise UnsupportedModelError(
            f"model: found the step {kind} before the network, expected one of {', '.join(SCALERS)} without clipping; "
            "transform the data first, and give the network alone"
        )
    if not hasattr(step, "n_features_in_"):
        raise UnsupportedModelError(f"model: found {kind} that is not trained; call the pipeline's fit(X, y) first")
    count = step.n_features_in_
    if kind == "MinMaxScaler":
        return Scaling(-step.min_ / step.scale_, 1 / step.scale_)
    centred = getattr(step, "with_mean", True)  # a scaler that does not centre knows the mean too
    shift = getattr(step, "mean_" if kind == "StandardScaler" else "center_", None) if centred else None
    scale = getattr(step, "scale_", None)
    return Scaling(np.zeros(count) if shift is None else shift, np.ones(count) if scale is None else scale)


def _layers(model: Any) -> Sequence[nn.Module]:
    found: list[nn.Module] = []
    for weight, bias in zip(model.coefs_, model.intercepts_, strict=True):
        layer = nn.Linear(*weight.shape)
        with torch.no_grad():
            layer.weight.copy_(torch.as_tensor(weight.T))
            layer.bias.copy_(torch.as_tensor(bias))
        found += [layer, ACTIVATIONS[model.activation]()]
    return found[:-1]
