"""The generalised Gauss-Newton matrix over the chosen weights, streamed over the training data.

H = sum_n J_n^T Lambda_n J_n (Daxberger et al. 2021, section 3), Lambda_n the Hessian of the negative log-likelihood in
the outputs. With Lambda_n = C_n C_n^T its rows C_n^T J_n are gathered and added by symmetric updates
(`offline.laplace.gram`), positive semi-definite by construction, accumulated in float64.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass

import torch
from torch import Tensor

from offline.data.likelihood import Likelihood, check_targets, sqrt_hessian_product
from offline.data.loaders import in_chunks, rows_within
from offline.jacobian.jacobian import SubnetworkJacobian
from offline.laplace.gram import Gram
from offline.runtime.checkpoint import Checkpoint
from offline.runtime.distributed import Shard
from offline.runtime.resume import ResumablePass, tensors_digest

MEMORY_BYTES = 512 * 2**20
MAX_ROWS = 512
SINGLE = Shard()
Pairs = Iterable[tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Curvature:
    """ggn (S, S) float64 without prior and, for regression, without 1 / sigma^2; `examples` is N.

    squared_error: sum over examples and outputs of (y - f)^2 (regression); correct: examples whose most probable
    class is the target (classification).
    """

    ggn: Tensor
    examples: int
    outputs: int
    squared_error: float
    correct: int


@dataclass
class Sums:
    """What is counted beside H."""

    examples: int = 0
    squared_error: float = 0.0
    correct: int = 0

    def add(self, mean: Tensor, targets: Tensor, likelihood: Likelihood) -> None:
        """One chunk: mean (B, K), targets as `check_targets` returns them."""
        self.examples += len(mean)
        if likelihood == "regression":
            self.squared_error += float((targets.double() - mean.double()).square().sum())
        else:
            self.correct += int((mean.argmax(1) == targets).sum())

    def over(self, shard: Shard) -> "Sums":
        """The sums over all processes."""
        examples, squared_error, correct = shard.total(self.examples, self.squared_error, self.correct)
        return Sums(int(examples), squared_error, int(correct))


def accumulate_ggn(
    jacobian: SubnetworkJacobian,
    pairs: Pairs,
    outputs: int,
    likelihood: Likelihood,
    *,
    rows: int | None = None,
    checkpoint: Checkpoint | None = None,
    shard: Shard = SINGLE,
) -> Curvature:
    """Sum over one pass of the data, at most `rows` examples at once (`offline.estimate.memory`; default: 512 MiB).

    checkpoint: saved in turn after a batch, and taken up again where it holds this very job. shard: this process's
    share of the batches; every process returns the whole sum.

    Raises `ValueError` for targets that do not fit and a curvature that is not finite, `CheckpointError`, `PeerError`.
    """
    rows = rows or default_rows(outputs, jacobian.size)
    gram = Gram(jacobian.size, rows * outputs, jacobian.indices.device)
    batches, sums, record = shard.take(pairs), Sums(), None
    if checkpoint is not None:
        record = ResumablePass(checkpoint, "curvature", _identity(jacobian, outputs, likelihood))
        sums = Sums(**record.resume(batches, gram.matrix))
    for inputs, targets in batches:
        _add_batch(gram, sums, jacobian, in_chunks(inputs, targets, rows), outputs, likelihood)
        if record is not None:
            record.passed(inputs, targets)
            record.save_if_due(lambda: (gram.sum_so_far(), asdict(sums)))
    shard.add_up(gram.sum_so_far())
    sums = sums.over(shard)
    ggn = gram.finish().cpu()
    check_finite(ggn)
    return Curvature(ggn, sums.examples, outputs, sums.squared_error, sums.correct)


def _add_batch(
    gram: Gram, sums: Sums, jacobian: SubnetworkJacobian, chunks: Pairs, outputs: int, likelihood: Likelihood
) -> None:
    for inputs, raw_targets in chunks:
        targets = check_targets(raw_targets, outputs, len(inputs), likelihood)
        mean = write_root(jacobian, inputs, likelihood, gram.reserve(len(inputs) * outputs))
        sums.add(mean, targets, likelihood)


def write_root(jacobian: SubnetworkJacobian, inputs: Tensor, likelihood: Likelihood, out: Tensor) -> Tensor:
    """Rows of C^T J into `out` (B K, S) float64, one parameter at a time; returns the mean (B, K).

    C mixes outputs, never weights, so that a parameter's columns need no other's.
    """
    mean, blocks = jacobian.blocks(inputs)
    start = 0
    for _, block in blocks:
        root = sqrt_hessian_product(block.double(), mean.double(), likelihood).flatten(0, 1)
        out[:, start : start + root.shape[1]] = root
        start += root.shape[1]
    return mean


def diagonal_ggn(
    jacobian: SubnetworkJacobian,
    pairs: Pairs,
    outputs: int,
    likelihood: Likelihood,
    *,
    rows: int | None = None,
    shard: Shard = SINGLE,
) -> Tensor:
    """diag(sum_n J_n^T Lambda_n J_n) over the indices of `jacobian`, (S,) float64, one parameter at a time."""
    diagonal = torch.zeros(jacobian.size, dtype=torch.float64, device=jacobian.indices.device)
    widest = max((len(positions) for _, positions in jacobian.layout.locate(jacobian.indices)), default=1)
    rows = rows or default_rows(outputs, widest)
    for batch_inputs, batch_targets in shard.take(pairs):
        for inputs, _ in in_chunks(batch_inputs, batch_targets, rows):
            add_squares(jacobian, inputs, likelihood, diagonal)
    shard.add_up(diagonal)
    check_finite(diagonal)
    return diagonal.cpu()


def add_squares(jacobian: SubnetworkJacobian, inputs: Tensor, likelihood: Likelihood, diagonal: Tensor) -> None:
    """Add the column sums of (C^T J)^2 to `diagonal` (S,)."""
    mean, blocks = jacobian.blocks(inputs)
    start = 0
    for _, block in blocks:
        root = sqrt_hessian_product(block.double(), mean.double(), likelihood)
        diagonal[start : start + root.shape[2]] += root.square().sum((0, 1))
        start += root.shape[2]


def default_rows(outputs: int, width: int) -> int:
    """Examples at once whose Jacobians of `width` weights stay within 512 MiB; activations come on top."""
    return min(MAX_ROWS, rows_within(MEMORY_BYTES, 24 * outputs * width))


def _identity(jacobian: SubnetworkJacobian, outputs: int, likelihood: Likelihood) -> dict[str, str]:
    """What a saved sum depends on beside the job's fingerprint."""
    indices = tensors_digest({"subnetwork_indices": jacobian.indices})
    return {"sha256 of subnetwork_indices": indices, "outputs": str(outputs), "likelihood": likelihood}


def check_finite(curvature: Tensor) -> None:
    """`ValueError` for NaN or infinity, without a mask of the matrix's size."""
    if curvature.numel() and not all(bool(torch.isfinite(value)) for value in torch.aminmax(curvature)):
        raise ValueError(
            "the curvature is not finite: the model's outputs or derivatives overflow on the training data"
        )
