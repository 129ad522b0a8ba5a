"""Live weights: those with curvature on a sample of the training data.

A weight without any (behind a ReLU that never fires) has the prior's variance, the largest there is, and changes no
prediction (Daxberger et al. 2021, appendix: "dead ReLUs").

To see which, no derivative of each output of each example is needed. With C C^T = Lambda and z ~ N(0, I) drawn anew for
each example, one ordinary backward pass over a batch gives g = sum_n J_n^T C_n z_n with

    E[g_d^2] = sum_n (J_n^T Lambda_n J_n)_dd,

which is zero exactly where the curvature is. A sample of the training data is enough: a weight that moves no output on
thousands of examples has next to no curvature on all of them.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call

from ..laplace.ggn import check_finite
from ..network.outputs import check_output
from ..network.weights import Parameter
from ..runtime.arrays import Array
from ..runtime.peak_memory import measured_rows
from .context import SelectionContext

Located = tuple[tuple[Parameter, Tensor], ...]
# A weight whose curvature is below this share of the largest carries none that float32 derivatives can show.
DEAD_SHARE = 1e-12
LIVE_EXAMPLES = 4000  # which leave out a weight that is alive in one of a thousand with a probability of 2 %
# Inputs are regrouped to this many: a small sample would leave only a few of each of the loader's batches.
GROUP = 128


def is_live(curvature: Tensor) -> Tensor:
    """Which entries of a curvature (C,) >= 0 are above rounding, (C,) bool."""
    return curvature > DEAD_SHARE * curvature.max()


def live_candidates(context: SelectionContext, examples: int = LIVE_EXAMPLES) -> tuple[Tensor, int]:
    """The live candidates, and the number of dead ones; costs at most three forward passes over the sample."""
    _, positions, dead = split_live(context, curvature_estimate(context, examples))
    return positions, dead


def eligible(context: SelectionContext, live_only: bool) -> tuple[Tensor, int | None]:
    """The candidates to choose among, and how many dead ones were left out (None: not asked)."""
    return live_candidates(context) if live_only else (context.candidate_weights, None)


def curvature_estimate(context: SelectionContext, examples: int = LIVE_EXAMPLES) -> Tensor:
    """An unbiased estimate of diag(sum_n J_n^T Lambda_n J_n) at the candidates (C,), float64: a sum of squares of g.

    The sum is over a sample of so many training examples, or all where there are fewer. Draws follow the seed.
    Raises `ValueError` where derivatives overflow.
    """
    located = tuple(context.job.layout.locate(context.candidate_weights))
    sums = torch.zeros(len(context.candidate_weights), dtype=torch.float64)
    generator, rows = torch.Generator().manual_seed(context.job.config.seed), 0

    def gradients(x: Tensor) -> tuple[Tensor, ...]:
        return _gradients(context, located, x, generator)

    for inputs in Sample.of(context, examples).inputs("Live weights"):
        rows = rows or measured_rows(
            context.memory_bytes, lambda one: _gradients(context, located, one, generator), inputs
        )
        for chunk in torch.split(inputs, rows):
            _add_squares(_gradients(context, located, chunk, generator), located, sums)
    check_finite(sums)
    return sums


def _gradients(
    context: SelectionContext, located: Located, inputs: Tensor, generator: torch.Generator
) -> tuple[Tensor, ...]:
    """g = sum_n J_n^T C_n z_n, one tensor per parameter; none where the outputs depend on no parameter."""
    owned = dict(context.job.network.named_parameters())
    chosen = {parameter.name: owned[parameter.name].detach().requires_grad_() for parameter, _ in located}
    mean = check_output(functional_call(context.job.network, chosen, (inputs,)), len(inputs))
    if not mean.requires_grad:
        return ()
    z = torch.randn(mean.shape, generator=generator).to(mean)
    cotangent = context.job.likelihood.sqrt_hessian_transpose_product(z, mean.detach())
    return torch.autograd.grad(mean, list(chosen.values()), cotangent, allow_unused=True, materialize_grads=True)


def _add_squares(gradients: tuple[Tensor, ...], located: Located, sums: Tensor) -> None:
    """Add g_d^2 at the candidates."""
    start = 0
    for gradient, (parameter, inside) in zip(gradients, located, strict=False):
        flat = gradient.flatten()
        part = flat if len(inside) == parameter.size else flat[inside.to(flat.device)]
        sums[start : start + len(inside)] += part.double().square_().cpu()
        start += len(inside)


def split_live(context: SelectionContext, curvature: Tensor) -> tuple[Tensor, Tensor, int]:
    """From the candidates' curvature (C,): which are live (C,) bool, their positions, and the number of dead ones."""
    live = is_live(curvature)
    return live, context.candidate_weights[live], int(torch.count_nonzero(~live))


@dataclass(frozen=True)
class Sample:
    """Examples of the training data, the same in every pass: those that `kept` (N,) bool marks in the loader's order,
    or all (None)."""

    context: SelectionContext
    kept: Array | None

    @classmethod
    def of(cls, context: SelectionContext, examples: int) -> "Sample":
        """At most `examples` examples at random without replacement."""
        total = count_examples(context)
        if examples >= total:
            return cls(context, None)
        kept = np.zeros(total, bool)
        keys = np.random.default_rng(context.job.config.seed).random(total)
        kept[np.argsort(keys, kind="stable")[:examples]] = True
        return cls(context, kept)

    def inputs(self, description: str) -> Iterator[Tensor]:
        """One pass: the sample's inputs in groups of at most 128."""
        waiting: list[Tensor] = []
        for inputs in self._chosen(description):
            waiting.append(inputs)
            if sum(map(len, waiting)) >= GROUP:
                *full, rest = torch.split(torch.cat(waiting), GROUP)
                waiting = [rest] if len(rest) < GROUP else []
                yield from full if waiting else (*full, rest)
        if waiting:
            yield torch.cat(waiting)

    def _chosen(self, description: str) -> Iterator[Tensor]:
        start = 0
        for inputs, _ in self.context.batches(description):
            if self.kept is None:
                yield inputs
                continue
            kept = self.kept[start : start + len(inputs)]
            start += len(inputs)
            if kept.any():
                yield inputs[torch.as_tensor(kept, device=inputs.device)]


def count_examples(context: SelectionContext) -> int:
    """N, by one pass over the data where none has counted them."""
    known = context.job.train.examples
    return known if known is not None else sum(len(inputs) for inputs, _ in context.job.pass_over_training())
