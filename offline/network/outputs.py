"""What a network returns, taken as outputs (B, K): a tensor, one in a tuple or a dict, one logit of class 1."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from .unsupported import UnsupportedModelError

LOGITS = "logits"


@dataclass(frozen=True)
class OutputForm:
    """Where the outputs are in what the network returns, and what is made of them.

    entry: the key of a mapping, the name of a field, or the place in a tuple; None: what is returned is the tensor.
    flat: it has shape (B,), and counts as (B, 1). one_logit: f (B, 1), the logit of class 1, becomes the two logits
    (0, f). Then softmax(0, f) = (1 - sigmoid(f), sigmoid(f)), and the curvature is that of the binary cross-entropy:
    J^T (diag(p) - p p^T) J = p (1 - p) j j^T for J = (0, j). two_values: of a regression, beside the means (B, K) stand
    as many values that tell their noise, in the second place of a tuple or in the last K columns.
    """

    entry: str | int | None = None
    flat: bool = False
    one_logit: bool = False
    two_values: bool = False

    def take(self, returned: Any) -> Tensor:
        """The outputs (B, K) of a batch."""
        outputs: Tensor = returned if self.entry is None else _entry(returned, self.entry)
        if self.flat:
            outputs = outputs.reshape(-1, 1)  # of a batch of one, squeeze() leaves no axis
        if self.two_values and self.entry is None:
            outputs = outputs.chunk(2, dim=1)[0]
        return torch.cat([torch.zeros_like(outputs), outputs], dim=1) if self.one_logit else outputs

    def beside(self, returned: Any) -> Tensor:
        """The other values (B, K), where there are two of each output."""
        if self.entry is None:
            return cast(Tensor, returned).chunk(2, dim=1)[1]
        other: Tensor = returned[1]
        return other.reshape(-1, 1) if other.dim() < 2 else other

    def install(self, network: nn.Module) -> None:
        """From now on the network returns the outputs (B, K).

        A hook and not a module around it: the paths of layers and the names of weights stay those of the user's.
        """
        if self != PLAIN:
            network.register_forward_hook(self._hook)

    def _hook(self, _: nn.Module, __: object, returned: object) -> Tensor:
        return self.take(returned)

    def lines(self) -> list[str]:
        """What is worth telling the user, a line each."""
        found = []
        if self.entry is not None:
            found.append(f"the model returns several things: its outputs are {_named(self.entry)}")
        if self.two_values:
            found.append("the model returns two values of each target: taken as its mean and what tells its noise")
        if self.one_logit:
            found.append("the model has one logit, that of class 1: served as two, 0 and this one")
        return found


PLAIN = OutputForm()
"""A tensor of outputs (B, K), as they are."""


OTHER_LENGTH = "; of recurrent and attention layers, batch_first=True keeps the examples on the first axis"


def output_form(
    returned: object, batch: int, classification: bool, targets: int | None = None, real: bool = True
) -> OutputForm:
    """The form of what a network returned for `batch` examples; `ValueError` where the outputs are not to be found.
    targets: of an example of a regression; real: whether they are no whole numbers."""
    entry = None if isinstance(returned, Tensor) else _find(returned)
    outputs = returned if entry is None else _entry(returned, entry)
    if not isinstance(outputs, Tensor) or outputs.dim() not in (1, 2) or outputs.shape[0] != batch:
        given = tuple(outputs.shape) if isinstance(outputs, Tensor) else _kind(outputs)
        where = "" if entry is None else f" as {_named(entry)}"
        raise UnsupportedModelError(
            f"model output: found {given}{where}, expected a tensor of shape ({batch}, outputs), alone, first in a "
            f"tuple, or called {LOGITS!r}"
            + (OTHER_LENGTH if isinstance(outputs, Tensor) and outputs.dim() == 2 else "")
        )
    if not outputs.is_floating_point():
        raise UnsupportedModelError(
            f"model output: found dtype {outputs.dtype}, expected floating point: the logits, not the argmax of them"
        )
    flat = outputs.dim() == 1
    two_values = (real or entry is not None) and _has_two_values(returned, outputs, entry, targets)
    return OutputForm(entry, flat, classification and (flat or outputs.shape[1] == 1), two_values)


def _has_two_values(returned: Any, outputs: Tensor, entry: str | int | None, targets: int | None) -> bool:
    """Whether it is a tensor of twice as many columns as targets, or two tensors of as many."""
    if targets is None or isinstance(entry, str):
        return False
    if entry is None:
        return outputs.dim() == 2 and outputs.shape[1] == 2 * targets
    shapes = ((len(outputs), targets), *([(len(outputs),)] if targets == 1 else []))
    floats = all(isinstance(one, Tensor) and one.is_floating_point() for one in returned)
    return len(returned) == 2 and floats and all(tuple(one.shape) in shapes for one in returned)


def check_output(output: object, batch: int) -> Tensor:
    """The model's output as a (B, K) tensor; `ValueError` for anything else."""
    given = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
    if not isinstance(output, Tensor) or output.dim() != 2 or output.shape[0] != batch or not output.shape[1]:
        raise UnsupportedModelError(f"model output: found {given}, expected a tensor of shape ({batch}, outputs)")
    if output.dtype in (torch.float16, torch.bfloat16):
        raise UnsupportedModelError(
            f"model output: found {output.dtype}, expected torch.float32, as it will be served; leave out .half(), or "
            "end the forward pass with .float()"
        )
    return output


def refuse_sigmoid(network: nn.Module, inputs: Tensor, form: OutputForm = PLAIN) -> None:
    """`ValueError` for a network of classes or labels whose outputs end in a sigmoid; inputs (B, *input_shape).

    The operation that made them tells, since logits may lie between 0 and 1 by chance.
    """
    with torch.no_grad(), _Probabilities() as probabilities:
        end = probabilities.end_of(form.take(network(inputs.clone())))
    if end is not None:
        raise UnsupportedModelError(
            f"model: found an output that is a probability (the last operation is {end}), expected a "
            "logit; leave out this operation: nn.BCEWithLogitsLoss, or of classes nn.CrossEntropyLoss, trains such a "
            "network"
        )


def refuse_softmax(network: nn.Module, inputs: Tensor) -> None:
    """`ValueError` for a network that ends in a softmax or in a log_softmax: its outputs are no logits.

    The softmax of log-probabilities is right, but their variances are not those of logits, and where a probability is
    next to 1, float32 loses the derivative of its logarithm.
    """
    with torch.no_grad():
        outputs = network(inputs).double()
    for name, layer, sums in (("", "softmax", outputs.sum(1)), ("log-", "log_softmax", outputs.exp().sum(1))):
        signs = outputs >= 0 if layer == "softmax" else outputs <= 0
        if bool(signs.all()) and torch.allclose(sums, torch.ones_like(sums), atol=1e-4):
            of = "every row" if layer == "softmax" else "the exponential of every row"
            raise UnsupportedModelError(
                f"model: found outputs that are {name}probabilities ({of} sums to 1), expected logits; leave out the "
                f"last {layer}"
            )


ENDS = {"sigmoid": "a sigmoid", "_softmax": "a softmax", "hardsigmoid": "a sigmoid"}
NOTED = 2**20  # numbers of a tensor; those of attention may be many more, and outputs never are
# What moves values and does not change them, but to keep them off 0 and 1.
MOVING = frozenset(
    {"view", "_unsafe_view", "reshape", "squeeze", "unsqueeze", "select", "slice", "alias", "detach", "clone", "expand"}
    | {"_to_copy", "permute", "t", "transpose", "_reshape_alias", "as_strided"}
    | {"cat", "stack", "clamp", "clamp_min", "clamp_max"}
)


class _Probabilities(TorchDispatchMode):
    """Notes which tensors hold results of an operation in `ENDS`."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._ends = dict[int, tuple[str, Tensor]]()  # by memory, which is kept so that no other tensor takes it

    def end_of(self, value: object) -> str | None:
        """The operation that made this tensor, however it was moved since; None for any other."""
        if not isinstance(value, Tensor) or value.layout != torch.strided:
            return None
        known = self._ends.get(value.untyped_storage().data_ptr())
        return None if known is None else known[0]

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = func.overloadpacket.__name__.removesuffix("_")
        moved = map(self.end_of, tree_leaves(args)) if name in MOVING else ()
        end = ENDS.get(name) or next(filter(None, moved), None)
        result = func(*args, **(kwargs or {}))
        for one in tree_leaves(result):
            if isinstance(one, Tensor) and one.layout == torch.strided:
                place = one.untyped_storage().data_ptr()
                if end is not None and one.numel() <= NOTED:
                    self._ends[place] = end, one
                elif func.overloadpacket.__name__.endswith("_"):  # in place
                    self._ends.pop(place, None)
        return result


def _kind(returned: object) -> str:
    names = f" of {', '.join(map(repr, returned))!s:.150}" if isinstance(returned, Mapping) else ""
    return f"{type(returned).__name__}{names}"


def _find(returned: object) -> str | int | None:
    """Which entry holds the outputs: that called logits, the only one, or the first of a tuple."""
    if isinstance(returned, Mapping):
        names = [name for name in returned if isinstance(name, str)]
        return LOGITS if LOGITS in names else names[0] if len(returned) == 1 and names else None
    if hasattr(returned, LOGITS):
        return LOGITS
    if is_dataclass(returned) and len(fields(returned)) == 1:
        return fields(returned)[0].name
    return 0 if isinstance(returned, tuple | list) and returned else None


def _entry(returned: Any, entry: str | int) -> Any:
    if isinstance(entry, int) or isinstance(returned, Mapping):
        return returned[entry]
    return getattr(returned, entry)


def _named(entry: str | int) -> str:
    return "the first of them" if isinstance(entry, int) else repr(entry)
