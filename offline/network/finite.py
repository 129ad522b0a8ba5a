"""Locate outputs or derivatives that are not finite: the inputs and the layer in which they begin."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from .layer_outputs import layer_outputs


class NotFiniteError(ValueError):
    """The network has outputs or derivatives that are NaN or infinite.

    layer, kind: path and class of the layer in which they begin, None where it is not known.
    """

    def __init__(self, message: str, layer: str | None = None, kind: str | None = None) -> None:
        super().__init__(message)
        self.layer, self.kind = layer, kind


def check_finite_outputs(model: nn.Module, x: Tensor, mean: Tensor, name: str) -> None:
    """`NotFiniteError` for outputs (B, K) that are not finite; `name` says which data `x` are."""
    if bool(torch.isfinite(mean).all()):
        return
    place = _first_bad_output(model, x)
    raise _error(f"{_rows(mean)} of {name} have outputs that are NaN or infinite", place, x)


def check_finite_jacobian(model: nn.Module, x: Tensor, jacobian: Tensor, name: str) -> None:
    """`NotFiniteError` for derivatives (B, K, n) that are not finite."""
    if bool(torch.isfinite(jacobian).all()):
        return
    place = _first_bad_gradient(model, x)
    raise _error(f"{_rows(jacobian)} of {name} have derivatives that are NaN or infinite", place, x)


@dataclass(frozen=True)
class Place:
    """A layer that is given finite values and gives others; `after`: the layer that was called before it."""

    layer: str
    kind: str
    after: str | None = None


def _error(found: str, place: Place | None, x: Tensor) -> NotFiniteError:
    low, high = (float(value) for value in torch.aminmax(x.double()))
    where = f"; their inputs are between {low:.3g} and {high:.3g}"
    if place is not None:
        path = f"{place.layer!r} ({place.kind})" if place.layer else f"the model's own forward ({place.kind})"
        after = f", computed from the output of {place.after!r}" if place.after else ""
        where += f"; it begins in {path}{after}"
    remedy = (
        "keep the arguments of sqrt, log, divisions and powers away from zero (x.clamp(min=1e-6).sqrt()): nan_to_num "
        "and where mend a value, not its derivative"
    )
    return NotFiniteError(
        f"model: examples {found}{where} (remedy: {remedy})",
        None if place is None else place.layer,
        None if place is None else place.kind,
    )


def _rows(values: Tensor) -> str:
    bad = (~torch.isfinite(values)).flatten(1).any(1).nonzero().flatten().tolist()
    shown = ", ".join(map(str, bad[:5]))
    return shown if len(bad) <= 5 else f"{shown}, ..."


def _first_bad_output(model: nn.Module, x: Tensor) -> Place | None:
    """The first call to end whose output is not finite."""
    with torch.no_grad():
        calls = layer_outputs(model, x)
    for path, module, output in calls:
        if not bool(torch.isfinite(output).all()):
            return Place(path, type(module).__name__)
    return None


def _first_bad_gradient(model: nn.Module, x: Tensor) -> Place | None:
    """The last call whose output's gradient is not finite gave its output to the layer at fault."""
    trained = [parameter for parameter in model.parameters() if not parameter.requires_grad]
    try:
        for parameter in trained:
            parameter.requires_grad_(True)
        with torch.enable_grad():
            calls = [call for call in layer_outputs(model, x) if call[2].requires_grad]
            outputs = [output for _, _, output in calls]
            gradients = torch.autograd.grad(calls[-1][2].sum(), outputs, allow_unused=True)
    finally:
        for parameter in trained:
            parameter.requires_grad_(False)
    bad = [i for i, g in enumerate(gradients) if g is not None and not bool(torch.isfinite(g).all())]
    if not bad or bad[-1] + 1 >= len(calls):
        return None
    path, module, _ = calls[bad[-1] + 1]
    return Place(path, type(module).__name__, after=calls[bad[-1]][0])
