"""The memory of each stage, measured by running its code on one and two examples."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from ..data.likelihood import Likelihood
from ..jacobian.jacobian import SubnetworkJacobian
from ..jacobian.linear_head import LinearHead
from ..jacobian.plan import make_jacobian
from ..laplace.ggn import add_curvature, write_root
from ..laplace.gram import UPDATE_ROWS
from ..network.weights import WeightLayout
from ..runtime.peak_memory import FLOAT64, peak_bytes

# On what is measured. glibc's allocator keeps what was freed in pieces that fit nothing later: over many chunks the
# process was seen to grow to 1.7 times the tensors alive.
MARGIN = 1.75
# LAPACK's divide-and-conquer eigensolver works in 1 + 6 n + 2 n^2 numbers, which no measurement of tensors shows.
WORKSPACE_COPIES = 2
# Export and verification, observed: the exporter's modules and graphs; the model as ONNX, as bytes, and in float64;
# the curvature and its factor, the factor as bytes, and as the predictor reads it.
EXPORTER_BYTES, EXPORT_MODELS, EXPORT_MATRICES = 96 * 2**20, 6, 5
# A matrix this large shows how many copies a step makes.
TRIAL_SIZE = 64


MatrixStep = Callable[[Tensor], object]


@dataclass(frozen=True)
class Stage:
    """One stage's bytes; `rows` examples at once (0: it takes no examples); `on_host` where the device is a GPU."""

    name: str
    fixed_bytes: int
    bytes_per_row: int = 0
    rows: int = 0
    on_host: bool = False

    @property
    def peak_bytes(self) -> int:
        """fixed + rows * bytes_per_row."""
        return self.fixed_bytes + self.rows * self.bytes_per_row


def row_stages(
    network: nn.Module,
    layout: WeightLayout,
    indices: Tensor,
    rows: Tensor,
    likelihood: Likelihood,
    matrix: int,
    head: LinearHead | None,
) -> list[Stage]:
    """What S weights take: the trial of the plan, the curvature with its buffer of rows, and held-out predictions."""
    made: list[SubnetworkJacobian] = []
    check = peak_bytes(lambda: made.append(make_jacobian(network, layout, indices, rows, head)))
    jacobian, each = made[0], FLOAT64 * len(indices)
    buffer = torch.empty(len(rows) * likelihood.rows, len(indices), dtype=torch.float64, device=rows.device)

    def curvature(x: Tensor) -> None:
        write_root(jacobian, x, likelihood, buffer[: len(x) * likelihood.rows])

    def held_out(x: Tensor) -> None:
        jacobian(x)[1].double()

    return [
        Stage("plan check", int(MARGIN * check)),
        _measured("curvature", curvature, rows, matrix + UPDATE_ROWS * each, likelihood.rows * each),
        # The matrix and its factor; the product with it and its squares are NumPy's, not seen by the measurement.
        _measured("held-out", held_out, rows, 2 * matrix, 3 * likelihood.outputs * each),
    ]


def diagonal_stage(
    network: nn.Module, layout: WeightLayout, positions: Tensor, rows: Tensor, likelihood: Likelihood
) -> Stage:
    """What `diagonal_ggn` of weights takes, the trial of its Jacobian included; rows (2, *input_shape)."""
    positions = positions.to(rows.device)
    sums = torch.zeros(len(positions), dtype=torch.float64, device=rows.device)
    made: list[SubnetworkJacobian] = []
    check = peak_bytes(lambda: made.append(make_jacobian(network, layout, positions, rows)))
    vectors = 4 * FLOAT64 * layout.total  # indices, positions, sums, and one on the way
    stage = _measured("curvature diagonal", lambda x: add_curvature(made[0], x, likelihood, sums), rows, vectors, 0)
    return replace(stage, fixed_bytes=max(stage.fixed_bytes, int(MARGIN * check)))


def _measured(name: str, work: Callable[[Tensor], None], rows: Tensor, fixed: int, per_row: int) -> Stage:
    """Two examples tell the bytes of one: a maximum of linear functions a + b n is at most n / 2 times its value at 2.

    The slope from one example to two could be that of another operation than the one that needs most for many.
    """
    one, two = (peak_bytes(lambda x=rows[:count]: work(x)) for count in (1, 2))  # type: ignore[misc]
    slope = max(1, two // 2)
    return Stage(name, fixed + int(MARGIN * max(0, one - slope)), per_row + int(MARGIN * slope))


def least_check(width: int, outputs: int) -> Stage:
    """A lower bound of `make_jacobian`'s trial, known without running it: float64 derivatives of two examples."""
    return Stage("plan check", 2 * 2 * FLOAT64 * outputs * width)


def export_stage(model: int, matrix: int, example: int, verified: int) -> Stage:
    """Bytes of model, of an S x S matrix, and of one example's Jacobian -> an allowance, not a measurement."""
    fixed = EXPORTER_BYTES + EXPORT_MODELS * model + EXPORT_MATRICES * matrix
    return Stage("export and verification", fixed + verified * example)


def copies(step: MatrixStep) -> int:
    """How many S x S matrices a step holds at once: its argument, what it makes, and LAPACK's work space."""
    trial = torch.eye(TRIAL_SIZE, dtype=torch.float64) + torch.ones(TRIAL_SIZE, TRIAL_SIZE, dtype=torch.float64)
    return 1 + WORKSPACE_COPIES + -(-peak_bytes(lambda: step(trial)) // (FLOAT64 * TRIAL_SIZE**2))
