"""Publish a fit as a bundle: export, seal, verify with the serving code, report."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from offline.export.graph import export_variance
from offline.export.price import Price, Timing, published, time_both
from offline.export.verify import Truth, verify
from offline.features.added_weights import AddedWeights
from offline.jacobian.jacobian import SubnetworkJacobian
from offline.job import Job
from offline.laplace.calibration import Calibrated, Predicted, held_out_metrics, reference_quantiles
from offline.laplace.ggn import Curvature
from offline.laplace.inference import Inference
from offline.laplace.served_factor import StructuredFactor
from offline.publish.fill_effect import fill_effect, fill_warnings
from offline.publish.foreign_rejection import foreign_rejection, rejection_warnings
from offline.publish.manifest import coverage_warning, make_manifest, together_warning, training_metrics
from offline.publish.outcomes import outcomes_of
from offline.publish.plain_answers import PlainAnswers, WholePosterior
from offline.publish.served_form import ServedForm
from offline.report.page import ReportData, report_html
from offline.runtime.arrays import to_numpy
from offline.runtime.progress import length_of, one_step
from offline.selection.subnetwork import Subnetwork
from service.bundle import (
    CalibrationTensors,
    ComputedVariances,
    Graph,
    InputSpec,
    Manifest,
    RejectedShare,
    reseal_manifest,
    seal_bundle,
    staged_bundle,
)
from service.inference.predictor import Predictor
from service.maths.outcomes import Outcomes
from service.maths.scores import PREDICTIVE_ENTROPY, FeatureScoreName

VERIFY_EXAMPLES = 8
COUNT_ERROR = 1.5  # of the counted prices by which weights are chosen, on the networks that were tried


@dataclass(frozen=True)
class Fitted:
    """Everything about the fit that is published; `memory`: the lines of its plan."""

    subnetwork: Subnetwork
    jacobian: SubnetworkJacobian
    curvature: Curvature
    inference: Inference
    form: ServedForm
    calibrated: Calibrated
    memory: tuple[str, ...]
    tuning_examples: int

    @property
    def added(self) -> AddedWeights | None:
        """The added weights, if there are any."""
        return None if self.inference.added is None else self.inference.added.weights


def publish(job: Job, fitted: Fitted, destination: Path, names: tuple[str, ...] | None, spec: InputSpec) -> None:
    """Write the bundle, all of it or nothing; raises `ExportError` and `VerificationError`."""
    calibrated, metrics = fitted.calibrated, _metrics(job, fitted)
    outcomes, kept = outcomes_of(Predicted(calibrated.data, calibrated.prediction), calibrated.tuning)
    graph, (model, opset) = one_step(job.track, "Export to ONNX", lambda: _export(job, fitted))
    manifest = make_manifest(
        job,
        spec=spec,
        class_names=names,
        selection=fitted.subnetwork,
        prior=fitted.inference.prior,
        posterior=fitted.inference.posterior,
        likelihood=calibrated.likelihood,
        opset=opset,
        graph=graph,
        rule=calibrated.rule,
        outcomes=kept,
        compared=calibrated.compared,
        added=fitted.inference.added,
        metrics=metrics,
        warnings=[*_warnings(job, fitted, metrics), *fitted.inference.warnings, *_filled_in(graph)],
    )
    indices = to_numpy(fitted.subnetwork.indices)
    with staged_bundle(destination) as folder:
        calibration = CalibrationTensors(
            calibrated.rule.scores,
            outcomes,
            reference_quantiles(calibrated.prediction),
            calibrated.likelihood.scoring,
        )
        sealed = seal_bundle(folder, manifest, model, fitted.inference.factor, indices, calibration)
        full = _plain_answers(job, fitted)
        truth = full.truth()
        verification = one_step(job.track, "Verification", lambda: verify(folder, truth, lambda: full.rounding(truth)))
        rejection = _rejection(job, fitted, folder)
        timings = _timings(job, folder, truth)
        verified = replace(
            sealed,
            verification=verification,
            rejection=rejection,
            graph=replace(graph, price=published(timings) if timings else None),
            warnings=(
                *sealed.warnings,
                *_imprecise(truth),
                *rejection_warnings(rejection or (), job.config),
                *_dearer(job, timings),
            ),
        )
        reseal_manifest(folder, verified, _report(verified, fitted, outcomes))


def _export(job: Job, fitted: Fitted) -> tuple[Graph, tuple[bytes, int]]:
    """The graph, and what the manifest says of it."""
    factor, added = fitted.form.factor, fitted.added
    names: tuple[FeatureScoreName, ...] | None = None if added is None else ("distance",)
    graph = replace(_graph(job, fitted), feature_scores=names)
    return graph, export_variance(fitted.jacobian, job.example, job.likelihood.outputs, factor, added)


def _graph(job: Job, fitted: Fitted) -> Graph:
    jacobian, factor, outputs = fitted.jacobian, fitted.form.factor, job.likelihood.outputs
    if isinstance(factor, StructuredFactor):
        return Graph(outputs * factor.row_size, reduced=fitted.form.reduced)
    count = jacobian.rule.count(outputs)
    graph = Graph(count * (2 * jacobian.size + factor.row_size) + 2 * outputs)
    kind = jacobian.rule.kind
    if kind == "all":
        return graph
    effect = fill_effect(jacobian, fitted.inference.factor, fitted.calibrated)
    return replace(graph, computed=ComputedVariances(kind, count, effect))


def _filled_in(graph: Graph) -> list[str]:
    return [] if graph.computed is None else fill_warnings(graph.computed.effect)


def _rejection(job: Job, fitted: Fitted, folder: Path) -> tuple[RejectedShare, ...] | None:
    """What the bundle rejects of foreigners made of the examples that set its threshold."""
    inputs, seed = fitted.calibrated.data.inputs, job.config.seed
    return one_step(job.track, "Foreign inputs", lambda: foreign_rejection(folder, inputs, seed))


def _timings(job: Job, folder: Path, truth: Truth) -> tuple[Timing, ...]:
    """What a prediction costs; nothing where that is not asked for."""
    if not job.config.measure_price:
        return ()
    predictor = Predictor.load(folder, threads=1, plain_too=True)
    full, plain = predictor.outputs, predictor.mean
    return one_step(job.track, "Price", lambda: time_both(full, plain, truth.inputs[:1]))


def _dearer(job: Job, timings: Sequence[Timing]) -> list[str]:
    """A warning where the bundle costs more than the user's limit, which `auto` compared with a count."""
    most = job.config.max_cost
    if most is None or not timings or (found := Price.of(timings).weighed) <= COUNT_ERROR * most:
        return []
    return [
        f"a prediction costs {found:.2g} forward passes, measured on the finished bundle, more than max_cost={most:g}, "
        "which limits the counted cost; give fewer weights (subnetwork_size), or a smaller max_cost"
    ]


def _metrics(job: Job, fitted: Fitted) -> dict[str, float]:
    """Quality on the training data and on the conformal half; how many held-out examples the noise came from."""
    served = fitted.calibrated
    metrics = training_metrics(fitted.curvature, job.likelihood)
    metrics |= held_out_metrics(
        served.mean, served.variance, to_numpy(served.data.targets), served.likelihood, job.likelihood
    )
    if job.config.estimates_noise:
        metrics["noise_examples"] = float(fitted.tuning_examples)
    return metrics


def _warnings(job: Job, fitted: Fitted, metrics: Mapping[str, float]) -> list[str]:
    """Warnings for the user, kept in the manifest."""
    warnings = []
    dataset = getattr(job.train, "dataset", None)
    expected, examples = length_of(dataset) if dataset is not None else None, fitted.curvature.examples
    if expected is not None and expected != examples:
        warnings.append(
            f"train_loader gave {examples} examples, its dataset has {expected} (drop_last, or a sampler that repeats "
            "or leaves out): the curvature sums over the examples given"
        )
    warnings.extend(coverage_warning(metrics, len(fitted.calibrated.data)))
    warnings.extend(together_warning(metrics))
    threshold, outputs = fitted.calibrated.rule.threshold, job.likelihood.outputs
    by_entropy = fitted.calibrated.likelihood.scoring is PREDICTIVE_ENTROPY
    if by_entropy and threshold >= 0.99 * math.log(outputs):
        warnings.append(
            f"the reject threshold {threshold:.4g} is next to the largest entropy there is, log {outputs}: "
            "hardly anything can be rejected; the predictions are too uncertain, raise prior_precision"
        )
    return warnings


def _imprecise(truth: Truth) -> list[str]:
    if truth.precision == "float64":
        return []
    return [
        "the network does not run in float64 (it casts to float32, or makes float32 tensors): its derivatives were "
        "tried, and the bundle was verified, against plain torch in float32"
    ]


def _plain_answers(job: Job, fitted: Fitted) -> PlainAnswers:
    inputs, form = fitted.calibrated.data.inputs[:VERIFY_EXAMPLES], fitted.form
    whole = None if form.reduced is None else WholePosterior(fitted.inference.factor, form.reduced.error_bound)
    return PlainAnswers(job, fitted.jacobian, form.posterior, inputs, whole, fitted.added)


def _report(manifest: Manifest, fitted: Fitted, outcomes: Outcomes) -> bytes:
    values = fitted.inference.eigenvalues
    return report_html(
        ReportData(
            manifest=manifest,
            mean=fitted.calibrated.mean,
            variance=fitted.calibrated.variance,
            scoring=fitted.calibrated.likelihood.scoring,
            features=fitted.calibrated.features,
            targets=to_numpy(fitted.calibrated.data.targets),
            eigenvalues=None if values is None else values.numpy(),
            memory=fitted.memory,
            outcomes=outcomes,
        )
    )
