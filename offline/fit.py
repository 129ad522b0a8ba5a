"""fit_bundle: the stages in order, each handed plain values. A trained network in, a verified bundle out."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from offline.config import FitConfig
from offline.data.held_out import HeldOut, check_enough, collect_held_out
from offline.data.input_range import RangeMeter
from offline.data.loaders import Batches, check_loader, checked_batches
from offline.estimate.duration import describe_duration, predict_duration
from offline.estimate.job_memory import plan_job, plan_stand_in
from offline.estimate.memory import MemoryPlan
from offline.estimate.trial import check_whole_way
from offline.jacobian.jacobian import SubnetworkJacobian
from offline.job import Job, prepare, resolve_device
from offline.laplace.calibration import describe_held_out, fit_temperature, predict_held_out, rows_for
from offline.laplace.ggn import Curvature, accumulate_ggn
from offline.laplace.inference import Inference, infer
from offline.laplace.noise import estimates_noise, residual_noise
from offline.publish.bundle import Fitted, publish
from offline.publish.manifest import check_class_names, check_input_spec
from offline.runtime.arrays import to_numpy
from offline.runtime.checkpoint import Checkpoint
from offline.runtime.distributed import local_device, process_group
from offline.runtime.progress import Track, length_of, silent
from offline.runtime.resume import job_fingerprint, tensors_digest
from offline.selection.select import select_subnetwork
from service.bundle import InputSpec, check_destination, check_writable
from service.rejection import RejectionRule

TUNING_SHARE = 0.5
Say = Callable[[str], None]


def quiet(line: str) -> None:
    """Say nothing."""


def fit_bundle(
    model: nn.Module,
    train_loader: Batches,
    out: str | Path,
    *,
    calibration_loader: Batches,
    config: FitConfig | None = None,
    class_names: Sequence[str] | None = None,
    input_spec: InputSpec | None = None,
    progress: Track = silent,
    say: Say = quiet,
) -> Path:
    """Fit a subnetwork Laplace posterior around a trained network and write it to `out` as a bundle.

    model: outputs (B, K), logits or regression means; any mode; never changed, also not on an error. train_loader,
    calibration_loader: iterables of (inputs, targets) that can be read several times; the calibration data are held out
    of training, are kept in memory, and tune prior precision, observation noise, temperature and reject threshold. out:
    a new folder; an existing bundle is replaced atomically, anything else there is refused. class_names: K names;
    input_spec: how the service makes inputs (images, feature names); by default, plain arrays of the loader's shape.
    progress: wraps the long loops (see `offline.runtime.progress`). say: takes lines for people, the predicted memory
    among them, before the work starts.

    A job that was killed goes on where it was: what it had done stands in a folder beside `out`, named
    `.NAME.checkpoint`. Under torchrun every process calls this; the data are shared out and the first one writes.

    Returns the bundle's path. Raises `ValueError` or `TypeError` for input that cannot be used,
    `offline.runtime.checkpoint.CheckpointError`, `offline.export.graph.ExportError`,
    `offline.export.verify.VerificationError`, `offline.runtime.distributed.PeerError`; nothing is written then.
    """
    config = config or FitConfig()
    destination = Path(out)
    check_destination(destination)
    check_writable(destination)
    check_loader(train_loader, "train_loader")
    check_loader(calibration_loader, "calibration_loader")
    device = local_device(resolve_device(config.device))
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []), process_group(device) as shard:
        torch.manual_seed(config.seed)
        job = prepare(model, train_loader, config, device, shard, progress)
        spec = check_input_spec(input_spec, job.example)
        names = check_class_names(class_names, job.outputs)
        checkpoint = _checkpoint(job, destination)
        _fit(job, calibration_loader, destination, names, spec, say, checkpoint)
        shard.barrier()
        if shard.is_main:
            checkpoint.remove()
    return destination


def dry_run(
    model: nn.Module,
    train_loader: Batches,
    config: FitConfig | None = None,
    *,
    calibration_loader: Batches | None = None,
) -> list[str]:
    """What a fit would take, as lines for people: D, S, K, memory, and the time of every stage.

    Nothing is fitted and nothing written. The calibration data, where given, are checked and counted. One small batch
    goes the whole way to onnxruntime, so that a model that cannot be exported is known: raises `ExportError` then.
    """
    config = config or FitConfig()
    check_loader(train_loader, "train_loader")
    device = local_device(resolve_device(config.device))
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []), process_group(device) as shard:
        torch.manual_seed(config.seed)
        job = prepare(model, train_loader, config, device, shard, silent)
        halves = () if calibration_loader is None else _held_out(job, calibration_loader)
        expected = plan_stand_in(job, _bytes_of(*halves))
        start = time.perf_counter()
        check_whole_way(job, job.example)
        seconds = time.perf_counter() - start
        stages = predict_duration(job, expected, sum(map(len, halves)), seconds)
        return [*expected.describe(), describe_duration(stages)]


def _fit(
    job: Job,
    calibration_loader: Batches,
    destination: Path,
    names: tuple[str, ...] | None,
    spec: InputSpec,
    say: Say,
    checkpoint: Checkpoint,
) -> None:
    tuning, conformal = _held_out(job, calibration_loader)
    held_bytes = _bytes_of(tuning, conformal)
    job = replace(job, sigma_noise=_first_noise(job, tuning))
    expected = plan_stand_in(job, held_bytes)  # refuses at once what cannot fit
    if job.shard.is_main:
        for line in expected.describe()[:2]:
            say(line)
        start = time.perf_counter()
        check_whole_way(job, conformal.inputs)
        seconds = time.perf_counter() - start
        say(describe_duration(predict_duration(job, expected, len(tuning) + len(conformal), seconds)))
    selection = select_subnetwork(job, tuning, checkpoint)
    jacobian = job.jacobian(selection.indices)
    memory = plan_job(job, selection.indices, held_bytes)
    if job.shard.is_main:
        say(f"{len(selection.indices):,} weights chosen" + _because(selection.explanation))
    torch.manual_seed(job.config.seed)  # a loader that shuffles gives an interrupted pass its order again
    ranges = RangeMeter()
    curvature = accumulate_ggn(
        jacobian,
        ranges.watch(job.pass_over_training("Curvature")),
        job.outputs,
        job.config.likelihood,
        rows=memory.rows("curvature"),
        checkpoint=checkpoint,
        shard=job.shard,
    )
    if job.shard.is_main:
        found = infer(job, jacobian, curvature, tuning)
        for note in found.notes:
            say(note)
        fitted = _calibrated(job, jacobian, curvature, found, tuning, conformal, memory)
        publish(job, fitted, selection, destination, names, ranges.describe(spec, _inputs_of(tuning, conformal)))


def _inputs_of(*held: HeldOut) -> Tensor:
    return torch.cat([h.inputs for h in held])


def _because(explanation: str | None) -> str:
    return "" if explanation is None else f": {explanation}"


def _first_noise(job: Job, tuning: HeldOut) -> float | None:
    """The observation noise before anything is known of the weights; None for classification."""
    given = job.config.sigma_noise
    if job.config.likelihood == "classification":
        return None
    return given if isinstance(given, float) else residual_noise(job.network, tuning)


def _bytes_of(*held: HeldOut) -> int:
    return sum(t.numel() * t.element_size() for h in held for t in (h.inputs, h.targets))


def _checkpoint(job: Job, destination: Path) -> Checkpoint:
    """Beside the destination, and only for this very job."""
    config = job.config.model_dump_json(exclude={"checkpoint_seconds", "memory_budget", "name", "version"})
    checkpoint = Checkpoint(
        destination.absolute().parent / f".{destination.name}.checkpoint",
        job_fingerprint(job.network, config, job.shard.world_size)
        | {"sha256 of the first examples": tensors_digest({"inputs": job.example})},
        every_seconds=job.config.checkpoint_seconds,
        rank=job.shard.rank,
    )
    checkpoint.check()
    return checkpoint


def _held_out(job: Job, loader: Batches) -> tuple[HeldOut, HeldOut]:
    """The part that tunes and the part that sets the threshold; all of it goes to the latter when nothing is tuned."""
    config = job.config
    pairs = checked_batches(job.track(loader, "Calibration data", length_of(loader)), "calibration_loader", job.device)
    data = collect_held_out(pairs, job.outputs, config.likelihood)
    if data.inputs.shape[1:] != job.example.shape[1:] or data.inputs.dtype != job.example.dtype:
        raise ValueError(
            f"calibration_loader: found inputs of shape {tuple(data.inputs.shape[1:])} and {data.inputs.dtype}, "
            f"expected {tuple(job.example.shape[1:])} and {job.example.dtype} as in train_loader"
        )
    fits_temperature = config.temperature == "fit" and config.likelihood == "classification"
    searched = config.prior_precision in ("budget", "gridsearch")
    for_weights = config.selection == "auto" or config.posterior == "low-rank"
    tuned = searched or fits_temperature or for_weights or estimates_noise(config)
    tuning, conformal = data.split(TUNING_SHARE if tuned else 0.0, config.seed)
    check_enough(len(tuning), len(conformal), config.false_reject_rate, tuned)
    return tuning, conformal


def _calibrated(
    job: Job,
    jacobian: SubnetworkJacobian,
    curvature: Curvature,
    found: Inference,
    tuning: HeldOut,
    conformal: HeldOut,
    memory: MemoryPlan,
) -> Fitted:
    lines = tuple(memory.record())
    rows = min(rows_for(jacobian, job.outputs), memory.rows("held-out"))
    temperature = _temperature(job, jacobian, found, tuning, rows)
    mean, variance = predict_held_out(jacobian, found.factor, conformal, rows, job.track)
    scored = describe_held_out(mean, variance, found.sigma_noise, temperature)
    rule = RejectionRule(np.sort(scored.score), job.config.false_reject_rate)
    return Fitted(jacobian, curvature, found, temperature, conformal, mean, variance, scored, rule, lines, len(tuning))


def _temperature(job: Job, jacobian: SubnetworkJacobian, found: Inference, tuning: HeldOut, rows: int) -> float:
    config = job.config
    if config.likelihood == "regression":
        return 1.0
    if config.temperature != "fit":
        return config.temperature
    mean, variance = predict_held_out(jacobian, found.factor, tuning, rows, job.track)
    return fit_temperature(mean, variance, to_numpy(tuning.targets))
