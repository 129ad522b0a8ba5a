"""The job's choice of weights: in the main process, or from the checkpoint of an interrupted job."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from ..data.held_out import HeldOut
from ..job import Job
from ..runtime.available_memory import chunk_bytes
from ..runtime.checkpoint import Checkpoint
from ..runtime.resume import tensors_digest
from .candidate_weights import candidate_positions
from .context import SelectionContext
from .registry import select, strategy_of
from .subnetwork import Subnetwork

STAGE = "selection"


def select_subnetwork(job: Job, tuning: HeldOut, checkpoint: Checkpoint) -> Subnetwork:
    """The same in every process: the main one chooses by the configured strategy, or reads what it had chosen."""
    identity = {"sha256 of the calibration data": tensors_digest({"inputs": tuning.inputs, "targets": tuning.targets})}
    saved = checkpoint.load(STAGE, identity)
    chosen = Subnetwork.from_json(*saved) if saved is not None else None
    if chosen is None and job.distributed.is_main:
        context = selection_context(job, job.size, job.config.within)
        chosen = select(job.config.selection, context, job.config.selection_options)
        chosen = chosen if chosen.within is not None else replace(chosen, within=job.config.within)
    indices = job.distributed.broadcast(None if chosen is None else chosen.indices)
    values = job.distributed.broadcast_json(None if chosen is None else chosen.to_json())
    if saved is None and checkpoint.due():  # what took no time is chosen again
        checkpoint.save(STAGE, indices, values, identity)
    return Subnetwork.from_json(indices, values)


def selection_context(job: Job, size: int, within: Sequence[str] | None) -> SelectionContext:
    """What a strategy may use; `within` restricts it to modules."""
    config = job.config
    return SelectionContext(
        job=job,
        size=size,
        candidate_weights=candidate_positions(job.network, job.layout, within, job.reached),
        memory_bytes=chunk_bytes(job.network, job.device, job.memory_bytes),
        limit="subnetwork_size" not in config.model_fields_set,
    )


def reachable_weights(job: Job) -> Tensor:
    """The positions that the configured strategy may choose, (C,) ascending."""
    return strategy_of(job.config.selection).reach(selection_context(job, job.size, job.config.within))


def spread(positions: Tensor, count: int) -> Tensor:
    """At most `count` of the positions (C,), at equal distances."""
    if len(positions) <= count:
        return positions
    return positions[torch.arange(count) * len(positions) // count]
