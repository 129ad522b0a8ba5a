"""Which weights: a strategy by name, or `auto`, with what the job knows."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor

from offline.config import FitConfig
from offline.data.held_out import HeldOut
from offline.jacobian.jacobian import SubnetworkJacobian
from offline.jacobian.plan import make_jacobian
from offline.job import Job
from offline.laplace.prior import prior_share
from offline.runtime.available_memory import selection_bytes
from offline.runtime.checkpoint import Checkpoint
from offline.runtime.resume import tensors_digest
from offline.selection.auto.choose import choose_automatically
from offline.selection.auto.context import AutoContext
from offline.selection.candidates import candidate_positions
from offline.selection.context import SelectionContext
from offline.selection.live_weights import live_candidates
from offline.selection.registry import select
from offline.selection.subnetwork import Subnetwork

STAGE = "selection"
COVARIANCE_STRATEGIES = ("wasserstein-exact", "leverage", "greedy")
AUTO_OPTIONS = ("strategies", "shifts", "judged_weights", "judged_examples", "training_examples")


def choose_weights(job: Job, tuning: HeldOut, checkpoint: Checkpoint) -> Subnetwork:
    """By the main process, or from the checkpoint of an interrupted job; every process gets the same."""
    identity = {"sha256 of the calibration data": tensors_digest({"inputs": tuning.inputs, "targets": tuning.targets})}
    saved = checkpoint.load(STAGE, identity)
    chosen = Subnetwork.from_json(*saved) if saved is not None else None
    if chosen is None and job.shard.is_main:
        chosen = _auto(job, tuning) if job.config.selection == "auto" else _by_name(job)
    indices = job.shard.broadcast(None if chosen is None else chosen.indices)
    values = job.shard.broadcast_json(None if chosen is None else chosen.to_json())
    if saved is None and checkpoint.due():  # what took no time is chosen again
        checkpoint.save(STAGE, indices, values, identity)
    return Subnetwork.from_json(indices, values)


def needs_covariance(config: FitConfig) -> bool:
    """Whether the selection, or a candidate of `auto`, forms a covariance of many weights."""
    candidates = config.selection_options.get("strategies", ())
    named = candidates if isinstance(candidates, list | tuple) else ()  # anything else is refused with the options
    return any(name in COVARIANCE_STRATEGIES for name in (config.selection, *named))


def selection_context(job: Job, size: int, within: Sequence[str] | None) -> SelectionContext:
    """What a strategy may use; `within` restricts it to modules."""
    config = job.config
    prior = config.prior_precision
    return SelectionContext(
        network=job.network,
        layout=job.layout,
        weights=job.layout.flatten(dict(job.network.named_parameters())),
        size=size,
        outputs=job.outputs,
        seed=config.seed,
        likelihood=config.likelihood,
        batches=job.pass_over_training,
        jacobian=lambda indices: jacobian_of(job, indices),
        candidates=candidate_positions(job.network, job.layout, within, config.kinds),
        prior_precision=prior if isinstance(prior, float) else 1.0,
        memory_bytes=selection_bytes(job.network, job.device, job.memory_bytes, needs_covariance(config)),
        track=job.track,
        sigma_noise=job.sigma_noise,
        prior_scaling=config.prior_scaling,
    )


def jacobian_of(job: Job, indices: Tensor) -> SubnetworkJacobian:
    """The Jacobian of ascending positions."""
    return make_jacobian(job.network, job.layout, indices.to(job.device), job.example)


def _by_name(job: Job) -> Subnetwork:
    config = job.config
    context = selection_context(job, job.size, config.within)
    return replace(select(config.selection, context, config.selection_options), within=config.within)


def _auto(job: Job, tuning: HeldOut) -> Subnetwork:
    config, context = job.config, selection_context(job, job.size, job.config.within)
    unknown = sorted(set(config.selection_options) - set(AUTO_OPTIONS))
    if unknown:
        raise ValueError(
            f"selection_options: found {unknown[0]!r}, expected {', '.join(AUTO_OPTIONS)} for selection='auto'"
        )
    live, dead = live_candidates(context)

    def by_name(strategy: str, options: dict[str, Any], size: int) -> Subnetwork:
        return select(strategy, selection_context(job, size, config.within), options)

    found = choose_automatically(
        AutoContext(
            network=job.network,
            layout=job.layout,
            live=live.cpu(),
            dead_weights=dead,
            size=job.size,
            outputs=job.outputs,
            seed=config.seed,
            likelihood=config.likelihood,
            batches=job.pass_over_training,
            tuning=tuning,
            jacobian=lambda indices: jacobian_of(job, indices),
            select=by_name,
            share=lambda size: prior_share(size, job.layout.total, config.prior_scaling),
            budget=config.uncertainty_budget,
            sigma_noise=context.sigma_noise,
            temperature=1.0 if config.temperature == "fit" else config.temperature,
            track=job.track,
            **config.selection_options,
        )
    )
    return replace(found, within=config.within if found.within is None else found.within)
