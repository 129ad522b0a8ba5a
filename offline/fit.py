"""fit_bundle: the stages in order, each handed plain values. A trained network in, a verified bundle out."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from offline.calibration import (
    HeldOut,
    check_enough,
    collect_held_out,
    describe_held_out,
    fit_temperature,
    held_out_metrics,
    predict_held_out,
    reference_quantiles,
    sweep_log_likelihood,
    to_numpy,
)
from offline.config import FitConfig
from offline.curvature import Curvature, accumulate_ggn, diagonal_ggn
from offline.data import Batches, check_loader, checked_batches
from offline.export import export_onnx
from offline.jacobians import Chosen, SubnetworkJacobian, check_output, private_copy
from offline.layout import WeightLayout
from offline.likelihood import check_targets
from offline.plan import make_jacobian, plain_jacobian
from offline.posterior import PRIOR_GRID, Spectrum, factor, posterior_precision
from offline.progress import Track, length_of, one_step, silent
from offline.record import check_class_names, check_input_spec, make_manifest, training_metrics
from offline.subnetwork import SelectionContext, SelectionResult, select
from offline.verify import Truth, verify
from service.bundle import InputSpec, Prior, check_destination, reseal_manifest, seal_bundle, staged_bundle
from service.rejection import RejectionRule

TUNING_SHARE = 0.5
VERIFY_EXAMPLES = 16


@dataclass(frozen=True)
class Job:
    """What every stage of one fit shares."""

    config: FitConfig
    network: nn.Module
    layout: WeightLayout
    device: torch.device
    train: Batches
    example: Tensor
    outputs: int
    track: Track

    def pass_over_training(self, description: str) -> Iterator[tuple[Tensor, Tensor]]:
        tracked = self.track(self.train, description, length_of(self.train))
        return checked_batches(tracked, "train_loader", self.device)


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
) -> Path:
    """Fit a subnetwork Laplace posterior around a trained network and write it to `out` as a bundle.

    model: outputs (B, K), logits or regression means; any mode; never changed, also not on an error.
    train_loader, calibration_loader: iterables of (inputs, targets) that can be read several times; the calibration
    data are held out of training, are kept in memory, and tune prior precision, temperature and reject threshold.
    out: a new folder; an existing bundle is replaced atomically, anything else there is refused.
    class_names: K names; input_spec: how the service makes inputs (images, feature names); by default, plain
    arrays of the loader's shape. progress: wraps the long loops (see `offline.progress`).

    Returns the bundle's path. Raises `ValueError` or `TypeError` for input that cannot be used,
    `offline.export.ExportError`, `offline.verify.VerificationError`; nothing is written then.
    """
    config = config or FitConfig()
    destination = Path(out)
    check_destination(destination)
    check_loader(train_loader, "train_loader")
    check_loader(calibration_loader, "calibration_loader")
    device = resolve_device(config.device)
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(config.seed)
        job = _prepare(model, train_loader, config, device, progress)
        _fit(job, calibration_loader, destination, class_names, input_spec)
    return destination


def resolve_device(name: str) -> torch.device:
    """ "auto" is the GPU where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise ValueError(f"device: found {name!r}, but no GPU can be used here; give 'cpu' or 'auto'")
    return torch.device(name)


def _prepare(model: nn.Module, train: Batches, config: FitConfig, device: torch.device, track: Track) -> Job:
    layout = WeightLayout.of(model)
    network = private_copy(model, device)
    for name, tensor in network.state_dict().items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise ValueError(f"model: found NaN or infinity in {name!r}, expected finite weights")
    inputs, targets = next(checked_batches(train, "train_loader", device))
    try:
        with torch.no_grad():
            outputs = check_output(network(inputs), len(inputs)).shape[1]
    except (RuntimeError, IndexError, TypeError) as error:
        reason = " ".join(str(error).split())[:300]
        found = f"shape {tuple(inputs.shape)} and {inputs.dtype}"
        raise ValueError(f"model: cannot process the inputs of train_loader, found {found}: {reason}") from error
    check_targets(targets, outputs, len(inputs), config.likelihood)
    return Job(config, network, layout, device, train, inputs[:2].clone(), outputs, track)


def _fit(
    job: Job,
    calibration_loader: Batches,
    destination: Path,
    class_names: Sequence[str] | None,
    input_spec: InputSpec | None,
) -> None:
    spec = check_input_spec(input_spec, job.example)
    names = check_class_names(class_names, job.outputs)
    tuning, conformal = _held_out(job, calibration_loader)
    selection = _select(job)
    jacobian = make_jacobian(job.network, job.layout, selection.indices, job.example)
    curvature = accumulate_ggn(jacobian, job.pass_over_training("Curvature"), job.outputs, job.config.likelihood)
    sigma_noise = _sigma_noise(job.config, curvature)
    ggn = curvature.ggn if sigma_noise is None else curvature.ggn / sigma_noise**2
    prior = _prior(job, jacobian, ggn, tuning, sigma_noise)
    scale_tril, jitter = factor(posterior_precision(ggn, prior.used))
    temperature = _temperature(job, jacobian, scale_tril, tuning)
    mean, variance = predict_held_out(jacobian, scale_tril, conformal, job.outputs, job.track)
    scored = describe_held_out(mean, variance, sigma_noise, temperature)
    rule = RejectionRule(np.sort(scored.score), job.config.false_reject_rate)
    model, opset = one_step(job.track, "Export to ONNX", lambda: export_onnx(jacobian, job.example, job.outputs))
    manifest = make_manifest(
        job.config,
        layout=job.layout,
        spec=spec,
        outputs=job.outputs,
        class_names=names,
        selection=selection,
        prior=prior,
        jitter=jitter,
        sigma_noise=sigma_noise,
        temperature=temperature,
        opset=opset,
        rule=rule,
        metrics=training_metrics(curvature, job.config.likelihood)
        | held_out_metrics(mean, variance, to_numpy(conformal.targets), sigma_noise, temperature),
        warnings=_warnings(job, curvature, prior, jitter, rule),
    )
    indices = to_numpy(selection.indices)
    with staged_bundle(destination) as folder:
        sealed = seal_bundle(
            folder, manifest, model, scale_tril.numpy(), indices, rule.scores, reference_quantiles(scored)
        )
        truth = _truth(job, selection.indices, scale_tril, conformal.inputs[:VERIFY_EXAMPLES])
        verification = one_step(job.track, "Verification", lambda: verify(folder, truth))
        reseal_manifest(folder, replace(sealed, verification=verification))


def _held_out(job: Job, loader: Batches) -> tuple[HeldOut, HeldOut]:
    """The part that tunes and the part that sets the threshold; all of it goes to the latter when nothing is tuned."""
    pairs = checked_batches(job.track(loader, "Calibration data", length_of(loader)), "calibration_loader", job.device)
    data = collect_held_out(pairs, job.outputs, job.config.likelihood)
    if data.inputs.shape[1:] != job.example.shape[1:] or data.inputs.dtype != job.example.dtype:
        raise ValueError(
            f"calibration_loader: found inputs of shape {tuple(data.inputs.shape[1:])} and {data.inputs.dtype}, "
            f"expected {tuple(job.example.shape[1:])} and {job.example.dtype} as in train_loader"
        )
    fits_temperature = job.config.temperature == "fit" and job.config.likelihood == "classification"
    tuned = job.config.prior_precision == "gridsearch" or fits_temperature
    tuning, conformal = data.split(TUNING_SHARE if tuned else 0.0, job.config.seed)
    check_enough(len(tuning), len(conformal), job.config.false_reject_rate, tuned)
    return tuning, conformal


def _select(job: Job) -> SelectionResult:
    config = job.config
    parameters = dict(job.network.named_parameters())
    everything = torch.arange(job.layout.total)

    def curvature_diagonal() -> Tensor:
        jacobian = make_jacobian(job.network, job.layout, everything, job.example)
        return diagonal_ggn(jacobian, job.pass_over_training("Curvature diagonal"), job.outputs, config.likelihood)

    context = SelectionContext(
        network=job.network,
        layout=job.layout,
        weights=job.layout.flatten(parameters),
        size=config.resolve_size(job.layout.total),
        outputs=job.outputs,
        seed=config.seed,
        likelihood=config.likelihood,
        batches=lambda: checked_batches(job.train, "train_loader", job.device),
        curvature_diagonal=curvature_diagonal,
        track=job.track,
    )
    return select(config.selection, context, config.selection_options)


def _sigma_noise(config: FitConfig, curvature: Curvature) -> float | None:
    """Observation noise: None for classification; "mle" is the root mean square residual on the training data."""
    if config.likelihood == "classification":
        return None
    if config.sigma_noise != "mle":
        return config.sigma_noise
    sigma = math.sqrt(curvature.squared_error / (curvature.examples * curvature.outputs))
    if sigma <= 0:
        raise ValueError(
            "sigma_noise: the model fits its training data exactly, so its noise cannot be estimated; give a number"
        )
    return sigma


def _prior(job: Job, jacobian: SubnetworkJacobian, ggn: Tensor, tuning: HeldOut, sigma_noise: float | None) -> Prior:
    """lambda and lambda_S = lambda * S / D (or lambda, without scaling)."""
    config = job.config
    share = jacobian.size / job.layout.total if config.prior_scaling == "subnetwork" else 1.0
    if isinstance(config.prior_precision, float):
        return Prior("fixed", config.prior_precision, config.prior_scaling, config.prior_precision * share)
    spectrum = Spectrum.of(ggn)
    used = PRIOR_GRID * share
    if config.prior_precision == "marglik":
        weights = job.layout.flatten(dict(job.network.named_parameters())).cpu()[jacobian.indices.cpu()]
        scores = spectrum.log_evidence(weights, used)
    else:
        temperature = 1.0 if config.temperature == "fit" else config.temperature
        scores = sweep_log_likelihood(
            jacobian, spectrum, tuning, job.outputs, used, sigma_noise, job.track, temperature
        )
    best = int(np.argmax(scores))
    return Prior(config.prior_precision, float(PRIOR_GRID[best]), config.prior_scaling, float(used[best]))


def _temperature(job: Job, jacobian: SubnetworkJacobian, scale_tril: Tensor, tuning: HeldOut) -> float:
    config = job.config
    if config.likelihood == "regression":
        return 1.0
    if config.temperature != "fit":
        return config.temperature
    mean, variance = predict_held_out(jacobian, scale_tril, tuning, job.outputs, job.track)
    return fit_temperature(mean, variance, to_numpy(tuning.targets))


def _warnings(job: Job, curvature: Curvature, prior: Prior, jitter: float, rule: RejectionRule) -> list[str]:
    """What the user should know about this fit; kept in the manifest."""
    found = []
    dataset = getattr(job.train, "dataset", None)
    expected = length_of(dataset) if dataset is not None else None
    if expected is not None and expected != curvature.examples:
        found.append(
            f"train_loader gave {curvature.examples} examples, its dataset has {expected} (drop_last, or a sampler "
            "that repeats or leaves out): the curvature sums over the examples given"
        )
    if prior.method != "fixed" and prior.precision in (float(PRIOR_GRID[0]), float(PRIOR_GRID[-1])):
        found.append(f"the prior precision {prior.precision:g} is the edge of the range searched")
    if job.config.likelihood == "classification" and rule.threshold >= 0.99 * math.log(job.outputs):
        found.append(
            f"the reject threshold {rule.threshold:.4g} is next to the largest entropy there is, log {job.outputs}: "
            "hardly anything can be rejected; the predictions are too uncertain, raise prior_precision"
        )
    if jitter:
        found.append(f"{jitter:.2e} was added to the diagonal of the posterior precision before it could be factored")
    return found


def _truth(job: Job, indices: Tensor, scale_tril: Tensor, inputs: Tensor) -> Truth:
    exact = private_copy(job.network, job.device, torch.float64)
    precise = inputs.double() if inputs.is_floating_point() else inputs
    chosen = tuple(Chosen(p, positions) for p, positions in job.layout.locate(indices.to(job.device)))
    with torch.no_grad():
        mean = exact(precise)
    jacobian = plain_jacobian(exact, chosen, precise)
    return Truth(to_numpy(inputs), to_numpy(mean), to_numpy(jacobian), scale_tril.numpy())
