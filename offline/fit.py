"""fit_bundle: a trained network in, a verified bundle out, in eight steps from top to bottom."""

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from demur.service.bundle import InputSpec, check_destination, check_writable

from .config import FitConfig
from .data.calibration_check import CalibrationCheck, target_warnings
from .data.description import Description, check_class_names, check_input_spec
from .data.given import Given, all_given
from .data.held_out import TUNING_SHARE, HeldOut, check_enough, collect_held_out
from .data.input_range import RangeMeter
from .data.likelihood import Regression
from .data.text_doubts import text_doubts
from .data.texts import with_text
from .data.typical_rows import typical_rows
from .export.graph import check_size, graph_factor
from .jacobian.jacobian import SubnetworkJacobian
from .job import Job, prepare, resolve_device
from .laplace.added_fit import fit_added_weights
from .laplace.calibration import calibrate
from .laplace.ggn import Curvature, accumulate_ggn, curvature_rows
from .laplace.inference import infer
from .laplace.noise import residual_noise
from .laplace.temperature import plain_temperature
from .network.given_network import class_names_of, read_file
from .network.model_copy import usable
from .publish.bundle import publish
from .publish.fitted import Fitted
from .runtime.arrays import to_numpy
from .runtime.available_memory import check_fits, chunk_bytes, readable
from .runtime.checkpoint import Checkpoint, checkpoint_folder, discard_checkpoint
from .runtime.distributed import environment_context, local_device, process_group
from .runtime.generators import leaves_generators, seed_generators
from .runtime.plain_torch import plain_torch
from .runtime.progress import Track, silent
from .runtime.resume import job_fingerprint, tensors_digest
from .selection.registry import check_options
from .selection.select import reachable_weights, select_subnetwork
from .trial import check_derivatives, check_whole_way

Say = Callable[[str], None]
MOST_FOREIGN = 2000  # examples, of which the report says what share is rejected
log = logging.getLogger("demur")


def quiet(line: str) -> None:
    """Say nothing."""


@leaves_generators
@plain_torch()
def fit_bundle(
    model: Any,
    train_loader: Any,
    out: str | Path,
    *,
    calibration_loader: Any,
    foreign_loader: Any = None,
    config: FitConfig | None = None,
    class_names: Sequence[str] | None = None,
    input_spec: InputSpec | None = None,
    tokenizer: Any = None,
    restart: bool = False,
    progress: Track = silent,
    say: Say = quiet,
) -> Path:
    """Fit a subnetwork Laplace posterior around a trained network and write it to `out` as a bundle.

    model: a module of torch, an ONNX model or its file's path, a perceptron of scikit-learn; outputs (B, K), logits or
    regression means, these also beside their (log) variances in a tuple of two or as (B, 2 K); or (B,), and of a
    classification one logit, that of class 1; alone, first in a tuple, or called `logits`; any mode; never changed,
    also not on an error. train_loader, calibration_loader: a pair (X, y) of tensors, arrays or data frames, a dataset,
    or batches (inputs, targets) that can be read several times; the columns of a data frame are the names of the
    features, and those of the calibration data are put in their order. The calibration data are held out of training,
    are kept in memory, and tune prior precision, observation noise, temperature and reject threshold. out: a new
    folder; an existing bundle is replaced atomically, anything else there is refused.
    class_names: K names, of classes, labels or values; by default, those of a data frame of several targets, or the
    model's own. input_spec: how the service makes inputs (images, feature names; `image_spec` reads those of timm and
    transformers); by default, plain arrays of the loader's shape. tokenizer: a fast one of transformers, or one of the
    package tokenizers; the data may be pairs (texts, y) then, and the service takes texts. progress: wraps the long
    loops (see `demur.offline.runtime.progress`). say: called with lines of text, such as the least memory before
    the work starts, and at the end what the manifest warns of; without it, that is logged by "demur". foreign_loader:
    batches of inputs unlike the training data and of anything in place of targets: the report says what share of the
    first 2,000 is rejected.

    A job that was killed resumes where it stopped, from the folder `.NAME.checkpoint` next to `out`; restart: discard
    that, and begin anew. Under torchrun
    every process calls this; each takes its share of the data, and the first one writes.

    What the caller has set of torch (gradients, default type, autocast and others) neither counts nor changes.

    Returns the bundle's path. Raises `ValueError` or `TypeError` for input that cannot be used, and the exceptions that
    `offline` exports: `CheckpointError`, `ExportError`, `VerificationError`, `FactorizationError`, `NotFiniteError`,
    `DistributedError`; nothing is written then.
    """
    config = _usable_config(config)
    destination = _usable_path(out, restart)
    model = read_file(model)
    given = all_given(train_loader, calibration_loader, foreign_loader, model, tokenizer, input_spec)
    train = given.train
    with _prepared(model, train, config, progress) as job:  # 1. prepare
        say = say if job.distributed.is_main else quiet
        for line in job.notes:
            say(line)
        spec, file = _spec(job, train, input_spec, tokenizer)
        names = check_class_names(_names(model, job, train, class_names), job.likelihood.outputs)
        checkpoint = _checkpoint(job, destination, say)

        # 2. split held-out data; a first estimate of the noise, or the temperature of the plain network
        assert given.held_out is not None
        tuning, conformal, held_out = _split_held_out(job, given.held_out)
        job = _with_scale(job, tuning)
        doubts = _doubts(job, model, train, held_out, names, say)
        if given.foreign is not None:
            job = replace(job, foreign=given.foreign.some_inputs(MOST_FOREIGN, job.device, job.like))

        # 3. try the way to onnxruntime
        for line in _price(job):
            say(line)
        reach = reachable_weights(job)
        check_derivatives(job, reach)
        if job.distributed.is_main:
            check_whole_way(job, reach, conformal.inputs)

        # 4. select
        subnetwork = select_subnetwork(job, tuning, checkpoint)
        jacobian = job.jacobian(subnetwork.indices)
        check_size(jacobian, job.likelihood.outputs)
        memory = chunk_bytes(job.network, job.device, job.memory_bytes, jacobian.size)
        rows = curvature_rows(jacobian, job.likelihood, job.example, memory)
        because = f": {subnetwork.explanation}" if subnetwork.explanation else ""
        say(f"{len(subnetwork.indices):,} weights chosen{because}")

        # 5. accumulate
        check = CalibrationCheck(held_out)
        curvature, ranges = _accumulate(job, jacobian, rows, checkpoint, check)
        spec = ranges.with_range(spec, check.data.inputs)
        warned = (*doubts, *check.warnings(ranges.ends))
        description = Description(spec, names, warned, typical_rows(spec, check.data), file)
        added = fit_added_weights(job, rows)

        if job.distributed.is_main:
            # 6. infer
            inference = infer(job, jacobian, curvature, tuning, added)
            if inference.added is not None:
                say(inference.added.explanation)

            factor = graph_factor(jacobian, inference.factor, job.likelihood.outputs)

            # 7. calibrate
            likelihood, weights = inference.likelihood, inference.added_weights
            calibrated = calibrate(job, jacobian, inference.factor, likelihood, tuning, conformal, weights)

            # 8. publish
            fitted = Fitted(description, subnetwork, curvature, inference, jacobian, factor, calibrated)
            _warn(publish(job, fitted, destination), say, destination)
        job.distributed.barrier()
        if job.distributed.is_main:
            checkpoint.remove()
    return destination


@leaves_generators
@plain_torch()
def dry_run(
    model: Any,
    train_loader: Any,
    config: FitConfig | None = None,
    *,
    calibration_loader: Any = None,
    foreign_loader: Any = None,
    class_names: Sequence[str] | None = None,
    input_spec: InputSpec | None = None,
    tokenizer: Any = None,
) -> list[str]:
    """What a fit would take, in readable lines: D, S, K and memory.

    Nothing is fitted or written. What else is given is checked as a fit does, and calibration data are counted. One
    small batch goes all the way to onnxruntime; raises `ExportError` for a model that cannot be exported.
    """
    config = _usable_config(config)
    model = read_file(model)
    given = all_given(train_loader, calibration_loader, foreign_loader, model, tokenizer, input_spec, dry=True)
    train = given.train
    with _prepared(model, train, config, silent) as job:
        _spec(job, train, input_spec, tokenizer)
        check_class_names(_names(model, job, train, class_names), job.likelihood.outputs)
        if given.held_out is not None:
            _split_held_out(job, given.held_out)
        if given.foreign is not None:
            given.foreign.some_inputs(1, job.device, job.like)
        lines, reach = _price(job), reachable_weights(job)
        check_derivatives(job, reach)
        check_whole_way(job, reach, job.example)
        return [*job.notes, *lines]


def _spec(job: Job, train: Given, given: InputSpec | None, tokenizer: Any) -> tuple[InputSpec, bytes | None]:
    """How the service makes inputs, and the file of the tokenizer, if there is one."""
    spec = check_input_spec(given, job.example, train.columns, job.takes.parts)
    learnt = getattr(job.network, "feature_names_in_", None)
    if learnt is not None and spec.feature_names is not None and tuple(learnt) != tuple(spec.feature_names):
        raise ValueError(
            f"train_loader: found the columns {', '.join(spec.feature_names)!s:.200}, expected those that the model "
            f"has learnt, in its order: {', '.join(map(str, learnt))!s:.200}; give frame[list(model.feature_names_in_)]"
        )
    return with_text(spec, tokenizer, train.encoder)


def _names(model: object, job: Job, train: Given, given: Sequence[str] | None) -> Sequence[str] | None:
    """The given names, those of a data frame of several targets, or the model's own of its classes."""
    if None not in (given, train.targets) and tuple(given or ()) != train.targets:
        raise ValueError(
            f"class_names: found {', '.join(map(str, given or ()))!s:.200}, expected those of the targets' columns, "
            f"{', '.join(train.targets or ())!s:.200}, or none; rename the columns: frame.set_axis(names, axis=1)"
        )
    if given is not None or train.targets is not None or isinstance(job.likelihood, Regression):
        return train.targets if given is None else given
    return class_names_of(model, job.likelihood.outputs)


def _usable_config(config: FitConfig | None) -> FitConfig:
    """`TypeError` for anything but a configuration, and `ValueError` for options that its strategy does not have."""
    if config is not None and not isinstance(config, FitConfig):
        raise TypeError(f"config: found {type(config).__name__}, expected a FitConfig, such as FitConfig(seed=1)")
    config = config or FitConfig()
    check_options(config.selection, config.selection_options)
    return config


def _usable_path(out: str | Path, restart: bool) -> Path:
    """`ValueError` or `BundleError` for a place where no bundle can be written. restart: no checkpoint stays."""
    if not isinstance(out, str | os.PathLike):
        raise TypeError(f"out: found {type(out).__name__}, expected a path; give the configuration as config=...")
    if "\0" in str(out):
        raise ValueError(f"out: found {str(out)!r:.100}, expected a path without null bytes")
    check_destination(Path(out))
    check_writable(Path(out))
    if restart:
        discard_checkpoint(Path(out), environment_context().rank)
    return Path(out)


@contextmanager
def _prepared(model: object, train: Given, config: FitConfig, track: Track) -> Iterator[Job]:
    """The job, inside its process group; torch's random state follows the seed and is restored afterwards."""
    device = local_device(resolve_device(config.device))
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []), process_group(device) as distributed:
        torch.manual_seed(config.seed)
        yield prepare(model, train, config, device, distributed, track)


def _checkpoint(job: Job, destination: Path, say: Say) -> Checkpoint:
    """The checkpoint next to the destination, and a word on what it holds; `CheckpointError` for another job's."""
    config = job.config.model_dump_json(exclude={"memory_budget", "name", "version"})
    own = job_fingerprint(job.network, config, job.distributed.world_size)
    if job.distributed.broadcast_json(own) != own:
        raise ValueError(
            "model: found another than in the first process, expected the same weights and configuration in every "
            "process of torchrun; load the weights from a file, or seed their training"
        )
    checkpoint = Checkpoint(
        checkpoint_folder(destination),
        own | {"sha256 of the first examples": tensors_digest({"inputs": job.example})},
        rank=job.distributed.rank,
    )
    if kept := checkpoint.check():
        say(f"going on with what an interrupted fit kept: {', '.join(kept)}")
    return checkpoint


def _split_held_out(job: Job, held_out: Given) -> tuple[HeldOut, HeldOut, HeldOut]:
    """The half that tunes, the half that sets the threshold, which gets everything where nothing is tuned, and both."""
    config = job.config
    data = collect_held_out(held_out.pairs(job.device, job.like, job.track, "Calibration data"), job.likelihood)
    share = TUNING_SHARE if config.tunes else 0.0
    tunes = int(share * len(data))
    check_enough(tunes, len(data) - tunes, config.false_reject_rate, config.tunes)
    return data.split(share, config.seed, by_class=not isinstance(job.likelihood, Regression))


def _warn(warnings: Sequence[str], say: Say, destination: Path) -> None:
    for text in warnings:
        if say is quiet:
            log.warning("%s: %s", destination, text)
        else:
            say(f"warning: {text}")


def _doubts(
    job: Job, model: object, train: Given, held_out: HeldOut, names: Sequence[str] | None, say: Say
) -> list[str]:
    """What texts, and the targets of the calibration data, make doubtful; said at once, and kept in the bundle."""
    found = target_warnings(to_numpy(held_out.targets), job.likelihood, names)
    if train.encoder is not None and train.texts:
        found += text_doubts(usable(model), job.form, job.takes, train.encoder, train.texts)
    for doubt in found:
        say(f"warning: {doubt}")
    return found


def _with_scale(job: Job, tuning: HeldOut) -> Job:
    """The job with the first estimate of a regression's observation noise, or of a classification the temperature of
    the plain network."""
    if not isinstance(job.likelihood, Regression):
        if not job.config.fits_temperature:
            return job
        fitted = plain_temperature(job.likelihood, job.network, tuning)
        return replace(job, likelihood=replace(job.likelihood, temperature=fitted, map_temperature=fitted))
    given = job.config.sigma_noise
    noise, ratios = (given, None) if isinstance(given, float) else residual_noise(job.network, tuning)
    return replace(job, likelihood=replace(job.likelihood, sigma_noise=noise, ratios=ratios))


def _accumulate(
    job: Job, jacobian: SubnetworkJacobian, rows: int, checkpoint: Checkpoint, check: CalibrationCheck
) -> tuple[Curvature, RangeMeter]:
    """One pass over the training data: the curvature, the range of the inputs, and what `check` looks for."""
    seed_generators(job.config.seed, job.train.batches)
    ranges = RangeMeter()
    pairs = check.watch(ranges.watch(job.pass_over_training("Curvature")))
    curvature = accumulate_ggn(
        jacobian, pairs, job.likelihood, rows=rows, checkpoint=checkpoint, distributed=job.distributed
    )
    return curvature, ranges


def _price(job: Job) -> list[str]:
    """What the job takes, in readable lines; `ValueError` where that is more memory than there is."""
    needed = check_fits(job.network, job.device, job.memory_bytes, job.size, job.likelihood.outputs)
    return [
        f"D = {job.layout.total:,} weights, S = {job.size:,} of them at most, outputs: {job.likelihood.outputs:,}",
        f"memory: {readable(needed)} at least, beside the data; budget {readable(job.memory_bytes)}",
        f"threads: {torch.get_num_threads()}; OMP_NUM_THREADS sets fewer, where other work shares the machine",
    ]
