"""The memory plan of a job, before it starts."""

import torch
from torch import Tensor

from ..job import Job
from ..laplace.added_fit import added_bytes
from ..laplace.inference import needs_spectrum
from ..laplace.posterior import factor
from ..network.unsupported import differentiated_for_the_first_time
from ..selection.registry import strategy_of
from ..selection.select import spread
from .memory import MemoryPlan, plan_memory
from .stage_memory import MatrixStep


def plan_stand_in(job: Job, reach: Tensor, held_bytes: int) -> MemoryPlan:
    """Before the selection, with S weights spread over those that may be chosen, `reach` (C,), in place of the chosen
    ones."""
    with differentiated_for_the_first_time():
        return _plan(job, job.size, spread(reach, job.size), held_bytes, reach)


def plan_job(job: Job, indices: Tensor, held_bytes: int) -> MemoryPlan:
    """For the chosen weights."""
    return _plan(job, len(indices), indices, held_bytes)


def _plan(job: Job, size: int, indices: Tensor, held_bytes: int, reach: Tensor | None = None) -> MemoryPlan:
    """reach: where the selection is yet to come."""
    return plan_memory(
        job.network,
        job.layout,
        size,
        job.likelihood,
        job.example,
        job.memory_bytes,
        job.device,
        indices=indices.to(job.device),
        diagonal=None if reach is None else _differentiated(job, reach),
        matrix_steps=_matrix_steps(job),
        held_bytes=held_bytes + added_bytes(job),
        head=job.head,
    )


def _differentiated(job: Job, reach: Tensor) -> Tensor | None:
    """The weights whose squared derivatives the selection takes."""
    return reach if strategy_of(job.config.selection).diagonal else None


def _matrix_steps(job: Job) -> dict[str, MatrixStep]:
    """The matrix operations on H_S after the pass over the data."""
    steps: dict[str, MatrixStep] = {}
    if needs_spectrum(job.config):
        steps["eigenvalues"] = torch.linalg.eigh
    return steps | {"factor": factor}
