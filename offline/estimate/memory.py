"""The memory that a job will take, measured on one and two examples before it starts, and never exceeded.

A stage takes fixed + rows * bytes_per_row, and takes as many examples (rows) at once as its budget allows. The S x S
matrices are known; what an example takes is measured by running the very code of the stage
(`demur.offline.estimate.stage_memory`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from ..data.likelihood import Likelihood
from ..jacobian.linear_head import LinearHead
from ..laplace.ggn import MAX_ROWS
from ..network.weights import WeightLayout
from ..runtime.available_memory import CHUNK_BYTES, OVERHEAD_BYTES, default_budget, model_bytes
from ..runtime.peak_memory import FLOAT64
from .stage_memory import MatrixStep, Stage, copies, diagonal_stage, export_stage, least_check, row_stages

MIB = 2**20
EIGENVALUES: Mapping[str, MatrixStep] = {"eigenvalues": torch.linalg.eigh}


@dataclass(frozen=True)
class MemoryPlan:
    """Bytes and chunk rows of every stage. `resident_bytes`: kept throughout (the model, held-out data, libraries)."""

    weights: int
    size: int
    outputs: int
    budget_bytes: int
    resident_bytes: int
    stages: tuple[Stage, ...]

    def stage(self, name: str) -> Stage:
        """A stage by name."""
        return next(stage for stage in self.stages if stage.name == name)

    def rows(self, name: str) -> int:
        """Examples at once in a stage."""
        return self.stage(name).rows

    def peak_of(self, name: str) -> int:
        """Bytes above the process's baseline while a stage runs."""
        return self.resident_bytes + self.stage(name).peak_bytes

    @property
    def peak_bytes(self) -> int:
        """Predicted peak of the job above the process's baseline."""
        return max(self.peak_of(stage.name) for stage in self.stages)

    def lines(self) -> list[str]:
        """Readable lines, shown before the work starts."""
        peak = f"{readable(self.peak_bytes)} predicted at most, {readable(self.resident_bytes)} of it throughout"
        lines = [
            f"D = {self.weights:,} weights, S = {self.size:,} of them at most, outputs: {self.outputs:,}",
            f"memory: {peak}; budget {readable(self.budget_bytes)}",
        ]
        for stage in self.stages:
            chunk = f", {stage.rows} examples at once of {readable(stage.bytes_per_row)} each" if stage.rows else ""
            lines.append(f"  {stage.name}: {readable(stage.fixed_bytes)}{chunk}")
        return lines


def plan_memory(
    network: nn.Module,
    layout: WeightLayout,
    size: int,
    likelihood: Likelihood,
    example: Tensor,
    budget_bytes: int,
    device: torch.device,
    *,
    indices: Tensor | None = None,
    diagonal: Tensor | None = None,
    matrix_steps: Mapping[str, MatrixStep] = EIGENVALUES,
    held_bytes: int = 0,
    verified: int = 16,
    head: LinearHead | None = None,
) -> MemoryPlan:
    """Chunk rows for each stage, so that the job stays within `budget_bytes` above the process's baseline.

    network: from `private_copy`, on `device`; example (>= 1, *input_shape). indices (S,): the chosen weights; before
    they are known, S weights spread evenly over all layers stand for them: plan again with the indices before the
    curvature. diagonal: the weights of which the selection needs squared derivatives. matrix_steps: what is done with
    H_S afterwards, each a function of it that is tried on a small matrix to count its copies. held_bytes: what else
    the job keeps (held-out data). verified: examples that a bundle is verified with; 0: no bundle is written. head:
    as for `make_jacobian`. On a GPU the matrix steps, export and verification run on the host and are held to its
    default budget.

    Stages: "curvature diagonal" (if asked), "plan check", "curvature", "held-out",
    the matrix steps, and "export and verification".
    Raises `ValueError` when a stage does not fit with a single example.
    """
    rows = example[:1].expand(2, *example.shape[1:]).contiguous()
    resident = OVERHEAD_BYTES[device.type] + model_bytes(network) + held_bytes
    room, host = budget_bytes - resident, device.type != "cpu"
    matrix = FLOAT64 * size * size
    _refuse(least_check(size, likelihood.outputs), room, budget_bytes)
    stages = []
    if diagonal is not None:
        stages.append(diagonal_stage(network, layout, diagonal, rows, likelihood))
    stages += row_stages(network, layout, _stand_in(layout, size, indices), rows, likelihood, matrix, head)
    stages += [Stage(name, copies(step) * matrix, on_host=host) for name, step in matrix_steps.items()]
    if verified:
        example_bytes = next(stage.bytes_per_row for stage in stages if stage.name == "held-out")
        stages.append(replace(export_stage(model_bytes(network), matrix, example_bytes, verified), on_host=host))
    most = CHUNK_BYTES[device.type]
    rooms = {False: (room, budget_bytes)} | ({True: (default_budget(torch.device("cpu")),) * 2} if host else {})
    fitted = tuple(_fit(stage, *rooms[stage.on_host], most) for stage in stages)
    return MemoryPlan(layout.total, size, likelihood.outputs, budget_bytes, resident, fitted)


def readable(count: int) -> str:
    """A readable number of bytes."""
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / MIB:.1f} MiB"


def _fit(stage: Stage, room: int, budget_bytes: int, most: int) -> Stage:
    """The stage with as many rows as there is room for, in `most` bytes; `ValueError` when there is none for one."""
    if not stage.bytes_per_row:
        _refuse(stage, room, budget_bytes)
        return stage
    _refuse(replace(stage, rows=1), room, budget_bytes)
    return replace(stage, rows=max(1, min(MAX_ROWS, min(room - stage.fixed_bytes, most) // stage.bytes_per_row)))


def _refuse(stage: Stage, room: int, budget_bytes: int) -> None:
    """`ValueError` where the stage needs more than there is room for."""
    missing = stage.peak_bytes - room
    if missing > 0:
        what = f"the stage {stage.name!r}" + (" with one example at a time" if stage.rows else "")
        machine = "the host's memory" if stage.on_host else "memory_budget"
        raise ValueError(
            f"{machine}: found {budget_bytes} bytes ({readable(budget_bytes)}), expected at least "
            f"{budget_bytes + missing} ({readable(budget_bytes + missing)}) for {what}; give a larger memory_budget, "
            "fewer weights (subnetwork_size), or a machine with more memory"
        )


def _stand_in(layout: WeightLayout, size: int, indices: Tensor | None) -> Tensor:
    if indices is not None:
        return indices
    return torch.arange(size) * layout.total // size
