"""Memory of a job, known before it starts."""

import torch
from torch import Tensor

from offline.estimate.memory import MemoryPlan, plan_memory
from offline.estimate.stage_memory import MatrixStep
from offline.job import Job
from offline.laplace.inference import needs_spectrum
from offline.laplace.posterior import factor
from offline.selection.select import needs_covariance
from offline.selection.strategies.greedy import POOL

DIAGONAL_STRATEGIES = ("auto", "gradient", "novelty", "novelty-sampling", "wasserstein-laplace")  # of all weights


def plan_stand_in(job: Job, held_bytes: int) -> MemoryPlan:
    """Before the weights are chosen: S weights spread over all layers stand for them."""
    return _plan(job, job.size, None, held_bytes)


def plan_job(job: Job, indices: Tensor, held_bytes: int) -> MemoryPlan:
    """For the chosen weights."""
    return _plan(job, len(indices), indices.to(job.device), held_bytes)


def _plan(job: Job, size: int, indices: Tensor | None, held_bytes: int) -> MemoryPlan:
    config = job.config
    before = indices is None
    return plan_memory(
        job.network,
        job.layout,
        size,
        job.outputs,
        job.example,
        job.memory_bytes,
        job.device,
        likelihood=config.likelihood,
        indices=indices,
        diagonal=before and config.selection in DIAGONAL_STRATEGIES,
        covariance=_covariance_size(job) if before and needs_covariance(config) else 0,
        matrix_steps=_matrix_steps(job, size),
        held_bytes=held_bytes,
    )


def _covariance_size(job: Job) -> int:
    """Of how many weights the selection forms the covariance, where it fits."""
    pool = job.config.selection_options.get("pool", POOL) if job.config.selection == "greedy" else None
    return job.layout.total if not isinstance(pool, int) else min(pool, job.layout.total)


def _matrix_steps(job: Job, size: int) -> dict[str, MatrixStep]:
    """What is done with H_S after the pass over the data."""
    steps: dict[str, MatrixStep] = {}
    if needs_spectrum(job.config, size):
        steps["eigenvalues"] = torch.linalg.eigh
    if job.config.posterior == "cholesky":
        steps["factor"] = factor
    return steps
