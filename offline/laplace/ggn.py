"""The generalised Gauss-Newton matrix over the chosen weights, streamed over the training data.

H = sum_n J_n^T Lambda_n J_n (Daxberger et al. 2021, section 3), Lambda_n the Hessian of the negative log-likelihood in
the outputs. With Lambda_n = C_n C_n^T its rows C_n^T J_n are gathered and added by symmetric updates
(`Gram`), positive semi-definite by construction, accumulated in float64.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass

import torch
from torch import Tensor

from ..data.likelihood import Classification, Likelihood, Regression
from ..jacobian.jacobian import SubnetworkJacobian
from ..jacobian.mixtures import Mixtures
from ..job import Job
from ..runtime.arrays import in_chunks
from ..runtime.blocks import spans
from ..runtime.checkpoint import Checkpoint
from ..runtime.distributed import DistributedContext
from ..runtime.peak_memory import FLOAT64, MAX_ROWS, measured_rows, rows_within
from ..runtime.resume import ResumablePass, tensors_digest
from ..section import Section

# Rows gathered before an update, and the width of its blocks: on a CPU core, fewer or narrower waste memory traffic.
UPDATE_ROWS = 256
MEMORY_BYTES = 512 * 2**20
MOST_TOGETHER = 0.02
SINGLE = DistributedContext()
Pairs = Iterable[tuple[Tensor, Tensor]]


class Gram:
    """H = sum_r r^T r over rows r, in float64, by symmetric rank updates: half the products, one matrix.

    `matrix` (S, S): blocks on and below the diagonal hold the sum, those above nothing until `finish`. Rows wait in
    a buffer of `rows` (at least 256) x S: a product of a few rows is bound by reading and writing `matrix`.
    """

    def __init__(self, size: int, rows: int, device: torch.device) -> None:
        self.matrix = torch.zeros(size, size, dtype=torch.float64, device=device)
        self._buffer = torch.empty(max(UPDATE_ROWS, rows), size, dtype=torch.float64, device=device)
        self._filled = 0

    def reserve(self, rows: int) -> Tensor:
        """A view (rows, S) of the buffer for the caller to fill at once; at most as many rows as the buffer has."""
        if self._filled + rows > len(self._buffer):
            self.flush()
        start, self._filled = self._filled, self._filled + rows
        return self._buffer[start : self._filled]

    def flush(self) -> None:
        """Add the gathered rows to `matrix`."""
        gathered = self._buffer[: self._filled]
        for start, end in spans(len(self.matrix)):
            self.matrix[start:end, :end].addmm_(gathered[:, start:end].T, gathered[:, :end])
        self._filled = 0

    def sum_so_far(self) -> Tensor:
        """`matrix` with every row given so far in it, only on and below the diagonal's blocks."""
        self.flush()
        return self.matrix

    def finish(self) -> Tensor:
        """The whole matrix, symmetric to the last bit: the lower half mirrored in place."""
        return mirror(self.sum_so_far())


def mirror(matrix: Tensor) -> Tensor:
    """The lower half copied over the upper one, in place, a block row at a time. (S, S) -> the same tensor."""
    for start, end in spans(len(matrix)):
        matrix[:start, start:end] = matrix[start:end, :start].T
        corner = matrix[start:end, start:end]
        corner.copy_(corner.tril() + corner.tril(-1).T)
    return matrix


@dataclass(frozen=True)
class Curvature:
    """ggn (S, S) float64 without prior and, for regression, without 1 / sigma^2; `examples` is N.

    squared_error: sum over examples and outputs of (y - f)^2 (regression); correct: examples whose most probable
    class is the target, or all of whose labels are right; together: sum of the probabilities of the classes whose
    curvature was taken together.
    """

    ggn: Tensor
    examples: int
    squared_error: float
    correct: int
    together: float = 0.0

    def section(self, job: Job) -> Section:
        """In the manifest: the number of training examples, and accuracy or root mean square error on them."""
        likelihood, metrics = job.likelihood, {"train_examples": float(self.examples)}
        if isinstance(likelihood, Regression):
            metrics["train_rmse"] = (self.squared_error / (self.examples * likelihood.outputs)) ** 0.5
        else:
            metrics["train_accuracy"] = self.correct / self.examples
            if likelihood.rows < likelihood.outputs:
                metrics["curvature_rows"] = float(likelihood.rows)
                metrics["curvature_probability_together"] = self.together / self.examples
        return Section(metrics=metrics, warnings=(*self._left_out(job), *_together(metrics)))

    def _left_out(self, job: Job) -> Iterator[str]:
        """Where the loader gives another number of examples than its dataset has."""
        expected = job.train.dataset_size
        if expected is not None and expected != self.examples:
            yield (
                f"{job.train.name} gave {self.examples} examples, its dataset has {expected} (drop_last, or a sampler "
                "that repeats or leaves out): the curvature sums over the examples given"
            )


def _together(metrics: Mapping[str, float]) -> Iterator[str]:
    """Where the curvature leaves out more than a little for want of rows."""
    share = metrics.get("curvature_probability_together", 0.0)
    if share > MOST_TOGETHER:
        yield (
            f"the curvature takes classes together whose probability is {100 * share:.1f} % on the training data, so "
            f"the variances are too large; give more curvature_outputs than {metrics['curvature_rows']:.0f}"
        )


@dataclass
class Sums:
    """Counts that accompany H."""

    examples: int = 0
    squared_error: float = 0.0
    correct: int = 0
    together: float = 0.0

    def add(self, mean: Tensor, targets: Tensor, likelihood: Likelihood) -> None:
        """One chunk: mean (B, K), targets as `likelihood.check_targets` returns them."""
        self.examples += len(mean)
        if isinstance(likelihood, Regression):
            self.squared_error += float((targets.double() - mean.double()).square().sum())
            return
        self.correct += int(likelihood.correct(mean, targets).sum())
        if likelihood.rows < likelihood.outputs:
            self.together += float(likelihood.together(mean).sum())

    def over(self, distributed: DistributedContext) -> "Sums":
        """The sums over all processes."""
        own = (self.examples, self.squared_error, self.correct, self.together)
        examples, squared_error, correct, together = distributed.total(*own)
        return Sums(int(examples), squared_error, int(correct), together)


def accumulate_ggn(
    jacobian: SubnetworkJacobian,
    pairs: Pairs,
    likelihood: Likelihood,
    *,
    rows: int | None = None,
    checkpoint: Checkpoint | None = None,
    distributed: DistributedContext = SINGLE,
) -> Curvature:
    """Sum over one pass of the data, at most `rows` examples at once (`curvature_rows`; default: 512 MiB).

    checkpoint: saved between batches when it is due, and resumed where it holds this job. distributed: the processes
    that share the batches; every one returns the whole sum.

    Raises `ValueError` for targets that do not fit or a curvature that is not finite, `CheckpointError`, and
    `DistributedError`.
    """
    rows = rows or default_rows(likelihood.rows, jacobian.size)
    gram = Gram(jacobian.size, rows * likelihood.rows, jacobian.indices.device)
    batches, sums, resumable = distributed.shard_batches(pairs), Sums(), None
    if checkpoint is not None:
        resumable = ResumablePass(checkpoint, "curvature", _identity(jacobian, likelihood))
        sums = Sums(**resumable.resume(batches, gram.matrix))
    for inputs, targets in batches:
        _add_batch(gram, sums, jacobian, in_chunks(inputs, targets, rows), likelihood)
        if resumable is not None:
            resumable.passed(inputs, targets)
            resumable.save_if_due(lambda: (gram.sum_so_far(), asdict(sums)))
    distributed.all_reduce(gram.sum_so_far())
    sums = sums.over(distributed)
    ggn = gram.finish().cpu()
    check_finite(ggn)
    return Curvature(ggn, sums.examples, sums.squared_error, sums.correct, sums.together)


def curvature_rows(jacobian: SubnetworkJacobian, likelihood: Likelihood, x: Tensor, memory: int) -> int:
    """Examples at once, like those of `x`, whose rows of the curvature stay within `memory` bytes."""
    size, rows = jacobian.size, likelihood.rows

    def work(one: Tensor) -> None:
        write_root(jacobian, one, likelihood, torch.empty(len(one) * rows, size, dtype=torch.float64, device=x.device))

    return measured_rows(memory - FLOAT64 * UPDATE_ROWS * size, work, x)


def _add_batch(gram: Gram, sums: Sums, jacobian: SubnetworkJacobian, chunks: Pairs, likelihood: Likelihood) -> None:
    for inputs, raw_targets in chunks:
        targets = likelihood.check_targets(raw_targets, len(inputs))
        mean = write_root(jacobian, inputs, likelihood, gram.reserve(len(inputs) * likelihood.rows))
        sums.add(mean, targets, likelihood)


def root_blocks(
    jacobian: SubnetworkJacobian, inputs: Tensor, likelihood: Likelihood
) -> tuple[Tensor, Iterator[Tensor]]:
    """The mean (B, K) and, one parameter after the other, C^T J (B, R, n) in float64, R = K but for many classes.

    C mixes outputs, never weights, so that a parameter's columns need no other's.
    """
    if isinstance(likelihood, Classification) and likelihood.rows < likelihood.outputs:
        mean, blocks = jacobian.blocks(inputs, lambda mean: Mixtures(likelihood.leading_root(mean)))
        return mean, (block.double() for _, block in blocks)
    mean, blocks = jacobian.blocks(inputs)
    return mean, (likelihood.sqrt_hessian_product(block.double(), mean.double()) for _, block in blocks)


def write_root(jacobian: SubnetworkJacobian, inputs: Tensor, likelihood: Likelihood, out: Tensor) -> Tensor:
    """Rows of C^T J into `out` (B R, S) float64; returns the mean (B, K)."""
    mean, roots = root_blocks(jacobian, inputs, likelihood)
    start = 0
    for root in roots:
        out[:, start : start + root.shape[2]] = root.flatten(0, 1)
        start += root.shape[2]
    return mean


def diagonal_ggn(
    jacobian: SubnetworkJacobian,
    pairs: Pairs,
    likelihood: Likelihood,
    *,
    rows: int | None = None,
    distributed: DistributedContext = SINGLE,
) -> Tensor:
    """diag(sum_n J_n^T Lambda_n J_n) over the indices of `jacobian`, (S,) float64, one parameter at a time."""
    diagonal = torch.zeros(jacobian.size, dtype=torch.float64, device=jacobian.indices.device)
    widest = max((len(positions) for _, positions in jacobian.layout.locate(jacobian.indices)), default=1)
    rows = rows or default_rows(likelihood.rows, widest)
    for batch_inputs, batch_targets in distributed.shard_batches(pairs):
        for inputs, _ in in_chunks(batch_inputs, batch_targets, rows):
            add_curvature(jacobian, inputs, likelihood, diagonal)
    distributed.all_reduce(diagonal)
    check_finite(diagonal)
    return diagonal.cpu()


def add_curvature(jacobian: SubnetworkJacobian, inputs: Tensor, likelihood: Likelihood, sums: Tensor) -> None:
    """Add the column sums of (C^T J)^2 to `sums` (S,) float64."""
    start = 0
    for block in root_blocks(jacobian, inputs, likelihood)[1]:
        sums[start : start + block.shape[2]] += block.square().sum((0, 1), dtype=torch.float64)
        start += block.shape[2]


def default_rows(outputs: int, width: int) -> int:
    """Examples at once whose Jacobians of `width` weights stay within 512 MiB; activations come on top."""
    return min(MAX_ROWS, rows_within(MEMORY_BYTES, 24 * outputs * width))


def _identity(jacobian: SubnetworkJacobian, likelihood: Likelihood) -> dict[str, str]:
    """What a saved sum depends on besides the job's fingerprint."""
    indices = tensors_digest({"subnetwork_indices": jacobian.indices})
    weights = f"{likelihood.task} {getattr(likelihood, 'ratios', None) or ''}".strip()  # those of several targets
    return {"sha256 of subnetwork_indices": indices, "outputs": str(likelihood.outputs), "likelihood": weights}


def check_finite(curvature: Tensor) -> None:
    """`ValueError` for NaN or infinity, without a mask of the matrix's size."""
    if curvature.numel() and not all(bool(torch.isfinite(value)) for value in torch.aminmax(curvature)):
        raise ValueError(
            "the curvature is not finite: the model's outputs or derivatives overflow on the training data"
        )
