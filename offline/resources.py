"""Memory and time of a job, known before it starts."""

import torch
from torch import Tensor

from offline.choosing import jacobian_of, needs_covariance
from offline.inference import PICTURED_SIZE
from offline.jacobians import SubnetworkJacobian
from offline.job import Job
from offline.memory import MemoryPlan, plan_memory
from offline.posterior import factor
from offline.progress import length_of
from offline.stages import MatrixStep
from offline.strategies.greedy import POOL
from offline.timing import describe_time, seconds_per_example

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
    fixed = isinstance(job.config.prior_precision, float) and job.config.posterior == "cholesky"
    if not fixed or size <= PICTURED_SIZE:
        steps["eigenvalues"] = torch.linalg.eigh
    if job.config.posterior == "cholesky":
        steps["factor"] = factor
    return steps


def describe_job(job: Job, memory: MemoryPlan, jacobian: SubnetworkJacobian | None = None) -> list[str]:
    """D, S, K, memory and the time that the curvature will take, measured on one small chunk."""
    if jacobian is None:
        places = torch.unique(torch.linspace(0, job.layout.total - 1, job.size, dtype=torch.float64).round().long())
        jacobian = jacobian_of(job, places)
    rows = memory.rows("curvature")
    seconds = seconds_per_example(jacobian, job.example, job.outputs, job.config.likelihood, rows)
    dataset = getattr(job.train, "dataset", None)
    examples = job.passes.examples or (length_of(dataset) if dataset is not None else None)
    shared = seconds / job.shard.world_size
    return [*memory.describe(), describe_time(shared, examples)]
