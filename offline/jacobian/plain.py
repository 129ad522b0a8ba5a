"""Plain differentiation: slow, and independent of routes, rules and probes, which are tried against it."""

from collections.abc import Sequence
from contextlib import ExitStack

import torch
from torch import Tensor, nn

from ..network.outputs import check_output
from .mixtures import Mixing, every_output
from .routes import Chosen


def plain_jacobian(model: nn.Module, chosen: tuple[Chosen, ...], x: Tensor, mixing: Mixing = every_output) -> Tensor:
    """(B, K, n), one example and one output at a time by plain autograd.

    mixing: the derivatives of M mixtures of the outputs instead, (B, M, n). A parameter that the outputs do not
    depend on has derivative zero. The chosen entries of each parameter's gradient are taken as soon as it is there, and
    the rest of it is freed: all gradients at once would be a second network.
    """
    parameters = dict(model.named_parameters())
    tensors = [parameters[c.parameter.name] for c in chosen]
    try:
        for tensor in tensors:
            tensor.requires_grad_(True)
        with torch.enable_grad():
            return torch.stack([_plain_example(model, chosen, tensors, example.unsqueeze(0), mixing) for example in x])
    finally:
        for tensor in tensors:
            tensor.requires_grad_(False)


def _plain_example(
    model: nn.Module, chosen: tuple[Chosen, ...], tensors: Sequence[Tensor], x: Tensor, mixing: Mixing
) -> Tensor:
    mean = check_output(model(x), 1)
    outputs = mixing(mean.detach()).of(mean)[0]
    result = torch.zeros(len(outputs), sum(len(c.positions) for c in chosen), dtype=outputs.dtype, device=x.device)
    if outputs.requires_grad:
        for output, row in zip(outputs, result, strict=True):
            _plain_row(output, chosen, tensors, row)
    return result


def _plain_row(output: Tensor, chosen: tuple[Chosen, ...], tensors: Sequence[Tensor], row: Tensor) -> None:
    """One output's derivatives into `row` (n,)."""
    with ExitStack() as hooks:
        for c, tensor, part in zip(chosen, tensors, torch.split(row, [len(c.positions) for c in chosen]), strict=True):

            def take(leaf: Tensor, part: Tensor = part, positions: Tensor = c.positions) -> None:
                assert leaf.grad is not None
                part.copy_(leaf.grad.reshape(-1)[positions])
                leaf.grad = None

            handle = tensor.register_post_accumulate_grad_hook(take)  # type: ignore[no-untyped-call]
            hooks.callback(handle.remove)
        torch.autograd.backward(output, retain_graph=True)
