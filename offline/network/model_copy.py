"""The job's own copy of the model: frozen, in float32, and for a while in float64."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from .given_network import network_of, unwrapped_throughout
from .unsupported import UnsupportedModelError, one_line


def usable(model: object) -> nn.Module:
    """What `network_of` gives, without the wrappers of torch.compile and of several devices; `TypeError` or
    `ValueError` for others."""
    model = network_of(model)
    if isinstance(model, torch.jit.ScriptModule):
        raise UnsupportedModelError(
            "model: found a TorchScript module, expected the network that it was made of, as its Python class, with "
            "the same weights: network.load_state_dict(scripted.state_dict())"
        )
    plain = unwrapped_throughout(model)
    quantised = [path for path, layer in plain.named_modules() if "quantized" in type(layer).__module__]
    if quantised:
        raise UnsupportedModelError(
            f"model: found the quantised layer {quantised[0]!r}, expected the network before its quantisation: it is "
            "served in float32"
        )
    empty = [name for name, tensor in plain.state_dict().items() if isinstance(tensor, Tensor) and tensor.is_meta]
    if empty:
        raise UnsupportedModelError(
            f"model: found {empty[0]!r} on the device 'meta', without values; load the weights into the model first"
        )
    lazy = [name for name, parameter in plain.named_parameters() if is_lazy(parameter)]
    if lazy:
        raise UnsupportedModelError(
            f"model: found {lazy[0]!r} without a shape, of a lazy layer that has seen no data; run a batch of inputs "
            "through the model first"
        )
    return plain


def copied_model(model: nn.Module, device: torch.device) -> nn.Module:
    """A frozen float32 copy in eval mode; `ValueError` for a model that cannot be copied."""
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if tensor.is_complex():
            raise UnsupportedModelError(
                f"model: found the complex tensor {name!r}, expected real ones; store its two parts"
            )
        if tensor.layout != torch.strided:
            raise UnsupportedModelError(
                f"model: found the tensor {name!r} of layout {tensor.layout}, expected one that is dense: "
                "tensor.to_dense()"
            )
    try:
        copied = private_copy(model, device)
    except Exception as error:  # of any attribute's own copying
        raise UnsupportedModelError(f"model: cannot be copied: {_why_not_copied(model, error)}") from error
    for module in copied.modules():
        if isinstance(module, nn.Embedding | nn.EmbeddingBag):
            module.sparse = False  # the same gradient, as a plain tensor
        if isinstance(module, nn.TransformerEncoder):
            module.use_nested_tensor = False  # which have no size; `_check_padding` compares the answers
    return copied


def _why_not_copied(model: nn.Module, error: Exception) -> str:
    """The attribute that cannot be copied, and what to do about it."""
    for path, module in model.named_modules():
        for name, value in vars(module).items():
            if name in {"_modules", "_parameters", "_buffers"}:
                continue
            try:
                copy.deepcopy(value)
            except Exception as own:  # whatever it raises
                place, layer = f"{path}.{name}".lstrip("."), f"model.{path}".rstrip(".")
                if hasattr(module, f"{name}_mask") and hasattr(module, f"{name}_orig"):
                    remedy = f"make the pruning permanent first: torch.nn.utils.prune.remove({layer}, {name!r})"
                    return f"found the pruned parameter {place!r}; {remedy}"
                if isinstance(value, Tensor):
                    return (
                        f"found the attribute {place!r}, computed from parameters; take off torch.nn.utils.weight_norm "
                        "and spectral_norm (those of torch.nn.utils.parametrizations can be copied), and keep no "
                        "results of a forward pass"
                    )
                found = f"found the attribute {place!r}, a {type(value).__name__} ({one_line(own)})"
                return f"{found}; take it off before the fit, or make it where it is used"
    return f"found {one_line(error)}, expected a model that copy.deepcopy takes"


@contextmanager
def in_float64(model: nn.Module) -> Iterator[None]:
    """The model itself in float64 and back, to the last bit: a second one would be most of what a trial takes.

    Tensors that its forward pass makes are float64 too.
    """
    dtype, default = next(parameter.dtype for parameter in model.parameters()), torch.get_default_dtype()
    model.double()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(default)
        model.to(dtype)


def runs_in_float64(model: nn.Module, x: Tensor) -> bool:
    """Whether the model computes in float64 throughout: some cast to float32 inside, or keep tensors outside."""
    try:
        with in_float64(model), torch.no_grad():
            out = model(x[:1].double() if x.is_floating_point() else x[:1])
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, ValueError):  # the second of recurrent layers, for inputs of another type than their weights
        return False
    return isinstance(out, Tensor) and out.dtype == torch.float64


@contextmanager
def highest_precision(model: nn.Module, x: Tensor) -> Iterator[Tensor]:
    """The inputs in float64, and the model too inside the block; both as they are where it runs in float32 only."""
    if not runs_in_float64(model, x):
        yield x
        return
    with in_float64(model):
        yield x.double() if x.is_floating_point() else x


def private_copy(model: nn.Module, device: torch.device, dtype: torch.dtype = torch.float32) -> nn.Module:
    """A copy in eval mode with frozen parameters; the model passed in is not touched."""
    copied = copy.deepcopy(model).to(device=device, dtype=dtype).eval()
    _part_shared_layers(copied, {id(copied)})
    for parameter in copied.parameters():
        parameter.requires_grad_(False)
    return copied


def _part_shared_layers(module: nn.Module, seen: set[int]) -> None:
    """Put a twin with the same tensors in every further place of a layer that is held in several.

    torch.func.functional_call ties tensors, but gives such a layer its own parameters back at one of its places only.
    """
    places = module._modules  # noqa: SLF001  named_children() leaves out what this looks for
    for name, child in places.items():
        if child is None:
            continue
        own = _twin(child) if id(child) in seen else child
        places[name] = own
        seen.add(id(own))
        _part_shared_layers(own, seen)


def _twin(layer: nn.Module) -> nn.Module:
    twin = copy.copy(layer)
    vars(twin).update({name: copy.copy(value) for name, value in vars(layer).items() if isinstance(value, dict | list)})
    return twin
