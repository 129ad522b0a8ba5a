"""The weights that the outputs depend on: a model may have others, such as a second head that serves training alone."""

import torch
from torch import Tensor, nn
from torch.func import functional_call

from .unsupported import UnsupportedModelError, one_line
from .weights import WeightLayout


def reached_parameters(network: nn.Module, layout: WeightLayout, inputs: Tensor) -> frozenset[str]:
    """Names of the trainable parameters from which autograd finds a way to the outputs; inputs (B, *input_shape).

    All of them where the way back fails, which another choice of weights may avoid. Raises `UnsupportedModelError`
    for a forward pass that only runs without derivatives, and where there is no way from any weight.
    """
    owned = dict(network.named_parameters())
    leaves = {p.name: owned[p.name].detach().requires_grad_() for p in layout.parameters}
    with torch.enable_grad():
        try:
            outputs = functional_call(network, leaves, (inputs.clone(),))
        except Exception as error:  # the user's forward may raise anything
            raise UnsupportedModelError(
                f"model: its forward pass fails where derivatives are asked for: {one_line(error)}"
            ) from error
        if not outputs.requires_grad:
            raise UnsupportedModelError(
                "model: found outputs that depend on no weight as autograd sees it, so none has a derivative; leave "
                "torch.no_grad(), torch.inference_mode() and detach() out of its forward pass"
            )
        try:
            found = torch.autograd.grad(outputs.sum(), list(leaves.values()), allow_unused=True)
        except RuntimeError:
            return frozenset(leaves)
    return frozenset(name for name, gradient in zip(leaves, found, strict=True) if gradient is not None)


def unreached_note(layout: WeightLayout, reached: frozenset[str]) -> tuple[str, ...]:
    """What the user is told of weights that no output depends on; nothing where there are none."""
    others = [p for p in layout.parameters if p.name not in reached]
    if not others:
        return ()
    shown = ", ".join(p.name for p in others[:3]) + (", ..." if len(others) > 3 else "")
    count = sum(p.size for p in others)
    return (f"{count:,} weights have no effect on the outputs ({shown}): none of them is chosen",)
