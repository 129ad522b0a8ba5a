"""Whether the job's copy of a model can be used: it computes what the model computes, for each example by itself."""

import copy
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from .finite import check_finite_outputs
from .inputs import ONE_INPUT, InputForm
from .invented import for_invented
from .layer_outputs import layer_outputs
from .model_copy import private_copy
from .outputs import OutputForm, check_output, output_form, refuse_sigmoid
from .unsupported import UnsupportedModelError, forward_remedy, one_line

FEW = 2
REPEATS = 8  # of a forward pass that should be the same each time: rare dropout seldom shows in one
LOUD = 100.0  # how much larger the other examples of a batch are
# Allowed differences relative to the largest output: between float64 and float32, and from half precision.
FROM_FLOAT64, FROM_HALF = 1e-3, 5e-2


@contextmanager
def _plain_forward(network: nn.Module, device: torch.device) -> Iterator[None]:
    """`UnsupportedModelError` where a forward pass inside changes a buffer, or the precision."""
    before, watch = {name: buffer.clone() for name, buffer in network.named_buffers()}, _SeesAutocast(device)
    with watch:
        yield
    if watch.seen:
        raise UnsupportedModelError(
            "model: found torch.autocast in its forward pass, expected float32, as it will be served; put it around "
            "the call of the model, where it is trained"
        )
    counting = [name for name, buffer in network.named_buffers() if not _same(buffer, before[name])]
    if counting:
        raise UnsupportedModelError(
            f"model: found that its forward pass changes the buffer {counting[0]!r} in eval mode; change it only "
            "`if self.training`"
        )


def _same(first: Tensor, second: Tensor) -> bool:
    """Whether the entries are equal, or none is a number in both."""
    return first.shape == second.shape and bool(((first == second) | (first.isnan() & second.isnan())).all())


class _SeesAutocast(TorchFunctionMode):
    """While it is active, `seen` becomes true where torch.autocast is on for the device when a function is called."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.seen, self._kind = False, device.type

    def __torch_function__(
        self, function: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        self.seen = self.seen or torch.is_autocast_enabled(self._kind)
        return function(*args, **(kwargs or {}))


def check_private(
    model: nn.Module,
    network: nn.Module,
    inputs: Tensor,
    classification: bool = True,
    taken: InputForm = ONE_INPUT,
    targets: int | None = None,
    real: bool = True,
) -> tuple[int, OutputForm]:
    """K, and the form of what the model returns, from forward passes of a few examples; `ValueError` for a `network`
    that cannot be used. It returns outputs (B, K) from now on, and takes one tensor, packed as `taken` says.
    targets: of an example of a regression, which are real numbers or whole ones.

    It must accept the inputs, not change them, give the same outputs twice, and agree with `model`.
    """
    few = inputs[:FEW].clone()
    taken.install(network)
    try:
        with torch.no_grad():
            with _plain_forward(network, inputs.device):
                returned = network(few)
            form = output_form(returned, len(few), classification, targets, real)
            if form.one_logit:
                refuse_sigmoid(network, few, form)
            form.install(network)
            mean = check_output(network(inputs[:FEW].clone()), len(few))
            again = [network(inputs[:FEW].clone()) for _ in range(REPEATS)]
            network(torch.cat([inputs[:FEW], inputs[:1]]))  # another number of examples
    except UnsupportedModelError:
        raise
    except Exception as error:  # the user's forward may raise anything
        given = f"shape {tuple(inputs.shape)} and {inputs.dtype}"
        if taken.parts is not None:
            takes = ", ".join(inspect.signature(model.forward).parameters)
            given = f"{', '.join(part.name for part in taken.parts)} for a forward of {takes}"
        usual = (
            "a model of several arguments needs inputs in a dict or a tuple"
            if taken.parts is None and _lacks_arguments(model)
            else "the model is used in float32 and with any number of examples, as it will be served"
        )
        remedy = forward_remedy(error, inputs.dim()) or usual
        raise UnsupportedModelError(
            f"model: cannot process the inputs of train_loader, found {given}: {one_line(error)}; {remedy}"
        ) from error
    if not torch.equal(few, inputs[:FEW]):
        raise UnsupportedModelError(
            "model: found that it changes its inputs in place; begin its forward pass with x = x.clone()"
        )
    if not all(torch.allclose(mean, other, rtol=1e-4, atol=1e-6, equal_nan=True) for other in again):
        raise UnsupportedModelError(
            "model: found other outputs the second time for the same inputs, expected the same in eval mode; it begins "
            f"in {_random_layer(network, inputs[:FEW])}: functional dropout needs training=self.training, and layers "
            "that draw random numbers in eval mode too (nn.FractionalMaxPool2d) must be replaced (nn.AdaptiveMaxPool2d)"
        )
    check_finite_outputs(network, inputs[:FEW], mean, "train_loader")
    _check_alone(network, inputs[:FEW], mean)
    _check_padding(model, form, mean, inputs[:FEW], taken)
    _check_precision(model, form, mean, inputs[:FEW], taken)
    return mean.shape[1], form


def _lacks_arguments(model: nn.Module) -> bool:
    """Whether its forward needs more than one argument."""
    parameters = inspect.signature(model.forward).parameters.values()
    needed = [p for p in parameters if p.default is p.empty and p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    return len(needed) > 1


def _check_alone(network: nn.Module, inputs: Tensor, mean: Tensor) -> None:
    """`ValueError` where an example's outputs depend on the other examples; mean (B, K): all outputs of `inputs`.

    In a batch of the example and copies of it, since some models drop the axis of a batch of one; and beside much
    larger examples, which a maximum over the batch would show.
    """
    sturdy = for_invented(network, inputs)
    for place, expected in enumerate(mean):
        alone = inputs[place].expand_as(inputs).clone()
        loud = inputs * LOUD if inputs.is_floating_point() else inputs.clone()
        loud[place] = inputs[place]
        with torch.no_grad():
            beside = _or_none(sturdy, loud, place), _or_none(sturdy, inputs, place)  # a GPU rounds differently
            pairs = [(network(alone)[place], expected), beside]
        if not all(_alike(one, other) for one, other in pairs if one is not None and other is not None):
            raise UnsupportedModelError(
                "model: found that an example's outputs depend on the other examples of its batch, expected each to be "
                "answered by itself; recurrent and attention layers need batch_first=True, means or norms must leave "
                "out the first axis, in place of an `if` about a batch is torch.where about each example, and a file "
                "in ONNX is quantised statically"
            )


def _alike(one: Tensor, other: Tensor) -> bool:
    return torch.allclose(one, other, rtol=1e-3, atol=1e-5, equal_nan=True)


def _or_none(network: Callable[[Tensor], Tensor], inputs: Tensor, place: int) -> Tensor | None:
    """The example's outputs; None where the network does not take such inputs, as where it looks values up."""
    try:
        return network(inputs)[place]
    except (RuntimeError, IndexError, ValueError, AssertionError):
        return None


def _random_layer(network: nn.Module, inputs: Tensor) -> str:
    """The first layer whose output differs the second time."""
    with torch.no_grad():
        first, second = (layer_outputs(network, inputs.clone()) for _ in range(2))
    for (path, layer, one), (_, _, other) in zip(first, second, strict=False):
        if path and not torch.equal(one, other):
            return f"layer {path!r} ({type(layer).__name__})"
    return "the model's own forward"


def _check_padding(model: nn.Module, form: OutputForm, mean: Tensor, inputs: Tensor, taken: InputForm) -> None:
    """`ValueError` where answers depend on what a TransformerEncoder returns at padded places: zeros where it leaves
    them out, as it does in eval mode alone."""
    nested = [path for path, layer in model.named_modules() if getattr(layer, "use_nested_tensor", False)]
    if not nested:
        return
    expected = _own_outputs(private_copy(model, inputs.device), form, inputs.clone(), taken)
    if not torch.allclose(expected, mean, rtol=1e-3, atol=1e-4, equal_nan=True):
        raise UnsupportedModelError(
            f"model: found other outputs where {nested[0]!r} (TransformerEncoder) leaves out padded places than where "
            "it does not, as in training: give it enable_nested_tensor=False, and leave padded places out of means and "
            "sums"
        )


def _own_outputs(model: nn.Module, form: OutputForm, inputs: Tensor, taken: InputForm) -> Tensor:
    """Those of the model as it was given, without the hooks of the job's copy."""
    args, kwargs = taken.arguments(inputs)
    with torch.no_grad():
        return form.take(model(*args, **kwargs))


def _check_precision(model: nn.Module, form: OutputForm, mean: Tensor, inputs: Tensor, taken: InputForm) -> None:
    kinds = {tensor.dtype for tensor in model.state_dict().values() if tensor.is_floating_point()} - {torch.float32}
    if not kinds:
        return
    kind = torch.float64 if torch.float64 in kinds else kinds.pop()
    own = copy.deepcopy(model).to(inputs.device).eval()
    takes = next(parameter.dtype for parameter in own.parameters())
    few = inputs.to(takes) if inputs.is_floating_point() else inputs.clone()
    try:
        expected = _own_outputs(own, form, few, taken).double()
    except (RuntimeError, ValueError):  # its own inputs have a type that the loader's have not: nothing to compare with
        return
    allowed = FROM_FLOAT64 if kind == torch.float64 else FROM_HALF
    difference = float((mean - expected).abs().max() / expected.abs().max().clamp(min=1e-12))
    if not difference <= allowed:
        raise UnsupportedModelError(
            f"model: found outputs that differ by {difference:.1e} (relative) between {kind} and float32, expected at "
            f"most {allowed:.0e}; it is served in float32: train or convert it so that this precision is enough"
        )
