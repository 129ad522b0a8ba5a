"""Which layers the added weights read: their inputs, by the order in which they are called."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..data.changes import Kind
from ..jacobian.unfold import CONVOLUTIONS
from .activations import INPUTS, TEXTURE, places, pooled

MOST_FEATURES = 4096  # of a layer in the middle
MOST_INPUTS = 256  # of the network, whose combinations count: F^2 multiplications an example
LAYERS = (*CONVOLUTIONS, nn.Linear)


@dataclass(frozen=True)
class FeatureLayers:
    """Paths of the layers whose inputs are read; `INPUTS`: the network's inputs themselves, `TEXTURE`: their texture.

    link: for the variance of the outputs; late layers only, since in early ones a change of light or contrast, under
    which the network stays right, is as far away as a foreign image. score: for the distance.
    """

    link: tuple[str, ...]
    score: tuple[str, ...]

    @property
    def paths(self) -> tuple[str, ...]:
        """All of them, once each: first those of the score alone, last those of the link alone."""
        every = dict.fromkeys((*self.score, *self.link))
        return tuple(sorted(every, key=lambda path: (path in self.link) - (path in self.score)))


def feature_layers(
    wanted: bool | tuple[str, ...],
    model: nn.Module,
    x: Tensor,
    kind: Kind,
    last: str | None = None,
) -> FeatureLayers | None:
    """The layers that the user names, those of `choose_layers`, or None for False."""
    if isinstance(wanted, tuple):
        return named_layers(model, x, wanted)
    return choose_layers(model, x, kind, last) if wanted else None


def choose_layers(model: nn.Module, x: Tensor, kind: Kind, last: str | None = None) -> FeatureLayers | None:
    """Of a network in eval mode, from one forward pass of x (B, *input_shape); None where no layer can be read.

    The last layer's input and that at two thirds of the depth; where both are one, the distance reads the layer before
    it too. Of a table the columns themselves count for the distance instead, and so do the inputs where only one layer
    can be read: a recurrent network maps noise and shuffled rows to
    states like those of training data; a layer that takes the inputs themselves then counts for the link alone. Where
    no other layer is there, as in a linear model, few inputs count as they do for the distance. Of images and series
    their texture counts, which comes first. The numbers of tokens say nothing. last: the path of the last layer where
    it is known; by default, the layer called last. kind: of what x holds.
    """
    calls = _calls(model, x)
    own = {path for path, value in calls if _storage(value) == _storage(x) and value.numel() == x.numel()}
    seen, usable = {_storage(x)}, list[str]()
    for path, value in calls:
        new = _storage(value) not in seen
        seen.add(_storage(value))
        once = [other for other, _ in calls].count(path) == 1
        if new and once and path != last and _readable(model.get_submodule(path), value, len(x)):
            usable.append(path)
    ends = [path for path, value in calls if path == last or (last is None and _is_batch(value, len(x)))]
    if ends and (final := ends[-1]) not in usable and len([path for path, _ in calls if path == final]) == 1:
        usable.append(final)
    if not usable:
        return None
    alone = len(usable) == 1 and kind != "tokens" and x[0].numel() <= MOST_FEATURES
    inputs = (INPUTS,) if alone or kind == "table" else ()
    texture = (TEXTURE,) if kind != "tokens" and places(x) else ()
    link = tuple(dict.fromkeys((usable[len(usable) * 2 // 3], usable[-1])))
    late = tuple(usable[-2:]) if len(link) == 1 and kind != "table" else link
    if getattr(model, "reads_outputs", False) and kind == "table":
        own.update(link)  # its outputs say nothing that the columns do not
    if own.issuperset(link) and x[0].numel() <= MOST_INPUTS:
        link = (INPUTS,)  # standardised: rows next to the mean have no direction
    layers = [path for path in late if path not in own or not inputs]
    return FeatureLayers(link, (*texture, *inputs, *layers))


def named_layers(model: nn.Module, x: Tensor, paths: Sequence[str]) -> FeatureLayers:
    """The layers that the user names, for both; `ValueError` for one whose input cannot be read."""
    calls = _calls(model, x)
    known = {path: value for path, value in calls if _is_batch(value, len(x))}
    for path in paths:
        count = [other for other, _ in calls].count(path)
        if path not in known or count != 1:
            found = "which is called several times" if count > 1 else "which is no such layer"
            raise ValueError(
                f"added_weights: found {path!r}, {found}, expected linear layers or convolutions that are called once "
                f"with the examples along the first axis: {', '.join(map(repr, known)) or 'none here'}"
            )
    return FeatureLayers(tuple(dict.fromkeys(paths)), tuple(dict.fromkeys(paths)))


def _storage(x: Tensor) -> int:
    """Where a tensor lies in memory: the same for views of it."""
    return x.untyped_storage().data_ptr()


def _is_batch(value: Tensor, batch: int) -> bool:
    return value.is_floating_point() and value.dim() >= 2 and len(value) == batch


def _readable(layer: nn.Module, value: Tensor, batch: int) -> bool:
    return _is_batch(value, batch) and 1 < pooled(layer, value).shape[1] <= MOST_FEATURES


def _calls(model: nn.Module, x: Tensor) -> list[tuple[str, Tensor]]:
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
