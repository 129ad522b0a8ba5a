"""Find the linear head of a network, and the layers whose features reach it separately, whatever the inputs."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from .layer_rules import CHANNELS_FIRST, computes_as, is_structured
from .linear_head import HeadInput, LinearHead

MOST_MIXED = 3  # layers in a row


def find_head(model: nn.Module, x: Tensor) -> LinearHead | None:
    """The head of a network in eval mode, where its outputs are those of a Linear; x (B, *input_shape).

    The Linear is called once and returns the very values that the network returns, in the same memory, which nothing
    has written to since: nothing comes after it, for any input.
    """
    calls, mean = _calls(model, x)
    called = [call.path for call in calls]
    for call in calls:
        layer = model.get_submodule(call.path)
        last = _is_same(call.output, mean) and call.version == _writes(mean) and called.count(call.path) == 1
        if last and computes_as(layer) is nn.Linear:
            return LinearHead(call.path, _separate_layers(model, LinearHead(call.path), called, x))
    return None


@dataclass(frozen=True)
class _Call:
    path: str
    output: Tensor
    version: int


def _is_same(one: Tensor, other: Tensor) -> bool:
    """Whether they are the same values in memory: a column that was made flat, and a column again, is."""
    return one.data_ptr() == other.data_ptr() and one.shape == other.shape and one.stride() == other.stride()


def _writes(tensor: Tensor) -> int:
    """How often the tensor was written to in place; nobody knows of those of torch.inference_mode()."""
    return -1 if tensor.is_inference() else tensor._version  # noqa: SLF001  autograd's own counter, in its documentation


def _has_hooks(layer: nn.Module) -> bool:
    """Whether a forward hook of the user's may change what the layer takes or gives."""
    return bool(layer._forward_hooks or layer._forward_pre_hooks)  # noqa: SLF001  torch has no other way to ask


def _calls(model: nn.Module, x: Tensor) -> tuple[list[_Call], Tensor]:
    """Each call of a layer with rules, in order; and the network's output."""
    layers = {module: path for path, module in model.named_modules() if is_structured(module)}
    calls: list[_Call] = []

    def note(module: nn.Module, _: object, output: Tensor) -> None:
        calls.append(_Call(layers[module], output, _writes(output)))

    hooked = {layer for layer in layers if _has_hooks(layer)}
    hooks = [layer.register_forward_hook(note) for layer in layers if layer not in hooked]
    try:
        with torch.no_grad():
            return calls, model(x)
    finally:
        for hook in hooks:
            hook.remove()


def _separate_layers(model: nn.Module, head: LinearHead, called: list[str], x: Tensor) -> frozenset[str]:
    """Those of the layers `called` whose feature o moves feature o of h and no other, for any input.

    Not a number spreads through every operation that a derivative passes through, whatever the values there: a gate
    that is closed for these inputs lets it through, as NaN times zero is NaN. Where it could be hidden, by a comparison
    or a choice that other inputs make otherwise, the layer is not taken for separate.

    With the numbers of the features written in bits, two features differ in one: so log2 F examples where a bit is 1,
    and as many where it is 0, tell all pairs apart. From the last layer backwards, until a few in a row are mixed: what
    comes before them is mixed too.
    """
    marked, separate, mixed = _marked_features(head.layer(model).in_features).to(x.device), set(), 0
    for path in reversed(called):
        if path == head.path or called.count(path) > 1 or not _has_features(model, path, marked.shape[1]):
            continue
        if _is_separate(model, head, path, x[:1], marked):
            separate.add(path)
            mixed = 0
        elif (mixed := mixed + 1) == MOST_MIXED:
            break
    return frozenset(separate)


def _has_features(model: nn.Module, path: str, count: int) -> bool:
    layer: Any = model.get_submodule(path)
    if layer.weight is None or isinstance(layer, nn.Embedding):
        return False
    one_axis = not isinstance(layer, nn.LayerNorm) or layer.weight.dim() == 1
    return one_axis and bool(layer.weight.shape[0] == count)


def _marked_features(count: int) -> Tensor:
    """(rows, F) bool: features whose number has bit b, and those whose number has not."""
    bits = torch.arange(max(1, (count - 1).bit_length())).unsqueeze(1)
    has = (torch.arange(count) >> bits & 1).bool()
    return torch.cat([has, ~has])


def _is_separate(model: nn.Module, head: LinearHead, path: str, example: Tensor, marked: Tensor) -> bool:
    layer = model.get_submodule(path)

    def mark(_: nn.Module, __: object, output: Tensor) -> Tensor:
        axis = 1 if isinstance(layer, CHANNELS_FIRST) else output.dim() - 1
        shape = [len(marked), *(1,) * (output.dim() - 1)]
        shape[axis] = marked.shape[1]
        return output.masked_fill(marked.reshape(shape), torch.nan)

    hook = layer.register_forward_hook(mark)
    try:
        with torch.no_grad(), HeadInput(model, head) as reached, _NothingHidden():  # type: ignore[no-untyped-call]
            model(example.expand(len(marked), *example.shape[1:]))
    except Exception:  # the user's network may refuse such values in any way
        return False
    finally:
        hook.remove()
    h = reached.features
    return h is not None and h.shape == marked.shape and torch.equal(h.isnan(), marked)


# What takes some of its values and leaves others, or turns NaN into a number.
CHOOSING = frozenset(
    {"where", "masked_fill", "masked_scatter", "masked_select", "index", "index_put", "index_select", "index_copy"}
    | {"index_fill", "gather", "scatter", "take", "take_along_dim", "bucketize", "searchsorted", "fmax", "fmin"}
    | {"nan_to_num", "nansum", "nanmean", "nanmedian", "nanquantile"}
)


class _HiddenError(RuntimeError):
    """A value that is not a number may go no further here, and would for other inputs."""


class _NothingHidden(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Raise `_HiddenError` where an operation chooses among, or compares, tensors that hold NaN."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        name = func.overloadpacket.__name__.rstrip("_").removeprefix("_unsafe_")
        compares = isinstance(result, Tensor) and result.dtype == torch.bool
        if (compares or name in CHOOSING) and any(_holds_nan(value) for value in tree_leaves((args, kwargs))):
            raise _HiddenError(name)
        return result


def _holds_nan(value: object) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point() and bool(value.isnan().any())
