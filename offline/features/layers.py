"""Where the features of a network are read: the input of its linear head, and those of layers in the middle."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from offline.jacobian.linear_head import LinearHead
from offline.jacobian.unfold import CONVOLUTIONS
from service.maths.scores import FeatureScoreName

PLACES = (0.25, 0.5, 0.75)  # of the layers in the order of their calls
MOST_FEATURES = 4096  # whose products fit in memory, and whose eigenvectors take a minute
LAYERS = (*CONVOLUTIONS, nn.Linear)


@dataclass(frozen=True)
class FeatureLayers:
    """Paths of the layers whose inputs give the features of each score, by its name."""

    paths: Mapping[FeatureScoreName, tuple[str, ...]]

    def read(self, model: nn.Module, x: Tensor) -> dict[FeatureScoreName, list[Tensor]]:
        """The features (B, F_j) of each of the layers, pooled, by the name of the score; x (B, *input_shape)."""
        wanted = {path for paths in self.paths.values() for path in paths}
        with LayerInputs(model, sorted(wanted)) as found:
            model(x)
        return {name: [found[path] for path in paths] for name, paths in self.paths.items()}


class LayerInputs:
    """Context manager: the pooled inputs (B, F) of layers during a forward pass, by path."""

    def __init__(self, model: nn.Module, paths: Sequence[str]) -> None:
        self._layers = {path: model.get_submodule(path) for path in paths}
        self._found: dict[str, Tensor] = {}

    def __enter__(self) -> dict[str, Tensor]:
        self._hooks = [
            layer.register_forward_pre_hook(self._recorder(path), with_kwargs=True)
            for path, layer in self._layers.items()
        ]
        return self._found

    def __exit__(self, *_: object) -> None:
        for hook in self._hooks:
            hook.remove()

    def _recorder(self, path: str) -> Any:
        def record(layer: nn.Module, args: tuple[Tensor, ...], kwargs: dict[str, Tensor]) -> None:
            # Pooled at once: what comes later may write to the tensor.
            self._found[path] = pooled(layer, args[0] if args else kwargs["input"])

        return record


def pooled(layer: nn.Module, x: Tensor) -> Tensor:
    """The mean over all axes but the batch's and that of the layer's input features, (B, F)."""
    axis = 1 if isinstance(layer, CONVOLUTIONS) else x.dim() - 1
    others = [d for d in range(1, x.dim()) if d != axis]
    return x.mean(others) if others else x


def feature_layers(model: nn.Module, head: LinearHead | None, x: Tensor) -> FeatureLayers:
    """Of a network in eval mode; x (B, *input_shape).

    Raises `ValueError` for a network without a linear head, and for a head with too many features.
    """
    if head is None:
        raise ValueError(
            "feature_scores: found a network that does not end in a Linear layer, expected one whose output is that of "
            "its last Linear: the scores read its input; leave feature_scores out"
        )
    width = head.layer(model).in_features
    if width > MOST_FEATURES:
        raise ValueError(
            f"feature_scores: found a linear head with {width} input features, expected at most {MOST_FEATURES}; leave "
            "feature_scores out"
        )
    of_head: tuple[FeatureScoreName, ...] = ("mahalanobis", "nearest_neighbours", "residual")
    paths: dict[FeatureScoreName, tuple[str, ...]] = dict.fromkeys(of_head, (head.path,))
    if middle := middle_layers(model, head, x):
        paths["middle_mahalanobis"] = middle
    return FeatureLayers(paths)


def middle_layers(model: nn.Module, head: LinearHead, x: Tensor) -> tuple[str, ...]:
    """Up to three layers before the head, evenly spaced in the order of their calls; none where nothing is between.

    Layers that are called once on the activations of earlier layers, one for each tensor. Those that take too many
    features are left out.
    """
    inputs = _layer_inputs(model, x)
    paths, seen = [path for path, _ in inputs], {_storage(x), *(_storage(value) for _, value in inputs[:1])}
    candidates = []
    for path, value in inputs:
        new = _storage(value) not in seen
        seen.add(_storage(value))
        if new and paths.count(path) == 1 and path != head.path and _usable(model.get_submodule(path), value, len(x)):
            candidates.append(path)
    places = {int(len(candidates) * place) for place in PLACES} if candidates else set()
    return tuple(candidates[place] for place in sorted(places))


def _storage(x: Tensor) -> int:
    """Where a tensor lies in memory: the same for views of it."""
    return x.untyped_storage().data_ptr()


def _usable(layer: nn.Module, value: Tensor, batch: int) -> bool:
    each = MOST_FEATURES // len(PLACES)
    if not value.is_floating_point() or value.dim() < 2 or len(value) != batch:
        return False
    axis = 1 if isinstance(layer, CONVOLUTIONS) else value.dim() - 1
    return 1 < value.shape[axis] <= each


def _layer_inputs(model: nn.Module, x: Tensor) -> list[tuple[str, Tensor]]:
    """The path and the input of each call of a layer, in order."""
    paths: dict[nn.Module, str] = {module: path for path, module in model.named_modules() if isinstance(module, LAYERS)}
    inputs: list[tuple[str, Tensor]] = []

    def note(module: nn.Module, args: tuple[Tensor, ...], kwargs: dict[str, Tensor]) -> None:
        inputs.append((paths[module], args[0] if args else kwargs["input"]))

    hooks = [layer.register_forward_pre_hook(note, with_kwargs=True) for layer in paths]
    try:
        with torch.no_grad():
            model(x)
    finally:
        for hook in hooks:
            hook.remove()
    return inputs
