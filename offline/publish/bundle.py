"""Publish a fit as a bundle: export, seal, verify with the serving code, report."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from probity.offline.data.calibration_check import quality_warnings
from probity.offline.export.price import published
from probity.offline.job import Job
from probity.offline.laplace.calibration import Predicted, held_out_metrics, reference_quantiles
from probity.offline.laplace.served_factor import StructuredFactor
from probity.offline.publish.exporter import Exporter, OnnxExporter
from probity.offline.publish.fill_effect import fill_effect, fill_warnings
from probity.offline.publish.fitted import Fitted
from probity.offline.publish.foreign_rejection import rejection_warnings
from probity.offline.publish.manifest import coverage_warning, make_manifest, together_warning, training_metrics
from probity.offline.publish.outcomes import outcomes_of
from probity.offline.report.page import ReportData, report_html
from probity.offline.runtime.arrays import to_numpy
from probity.offline.runtime.progress import length_of, one_step
from probity.service.bundle import (
    CalibrationTensors,
    ComputedVariances,
    Graph,
    InputSpec,
    Manifest,
    reseal_manifest,
    seal_bundle,
    staged_bundle,
)
from probity.service.maths.outcomes import Outcomes
from probity.service.maths.scores import PREDICTIVE_ENTROPY, FeatureScoreName


def publish(
    job: Job,
    fitted: Fitted,
    destination: Path,
    names: tuple[str, ...] | None,
    spec: InputSpec,
    exporter: Exporter | None = None,
) -> tuple[str, ...]:
    """Write the bundle, all of it or nothing, and return its warnings; raises `ExportError` and `VerificationError`.

    exporter: another one than `OnnxExporter`.
    """
    exporter = exporter or OnnxExporter()
    calibrated, metrics = fitted.calibrated, _metrics(job, fitted)
    outcomes, kept = outcomes_of(Predicted(calibrated.data, calibrated.prediction), calibrated.tuning)
    graph, (model, opset) = one_step(
        job.track, "Export to ONNX", lambda: (_graph(job, fitted), exporter.export(job, fitted))
    )
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
        warnings=[*_warnings(job, fitted, metrics, names), *fitted.inference.warnings, *_filled_in(graph)],
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
        measured = exporter.measure(job, fitted, folder)
        verified = replace(
            sealed,
            verification=measured.verification,
            rejection=measured.rejection,
            graph=replace(graph, price=published(measured.timings) if measured.timings else None),
            warnings=(
                *sealed.warnings,
                *measured.warnings,
                *rejection_warnings(measured.rejection or (), job.config),
            ),
        )
        reseal_manifest(folder, verified, _report(verified, fitted, outcomes))
    return verified.warnings


def _graph(job: Job, fitted: Fitted) -> Graph:
    """What the manifest says of the graph."""
    names: tuple[FeatureScoreName, ...] | None = None if fitted.added is None else ("distance",)
    return replace(_variances(job, fitted), feature_scores=names)


def _variances(job: Job, fitted: Fitted) -> Graph:
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


def _warnings(job: Job, fitted: Fitted, metrics: Mapping[str, float], names: Sequence[str] | None) -> list[str]:
    """Warnings for the user, kept in the manifest."""
    warnings = []
    dataset = getattr(job.train, "dataset", None)
    expected, examples = length_of(dataset) if dataset is not None else None, fitted.curvature.examples
    if expected is not None and expected != examples:
        warnings.append(
            f"train_loader gave {examples} examples, its dataset has {expected} (drop_last, or a sampler that repeats "
            "or leaves out): the curvature sums over the examples given"
        )
    warnings.extend(fitted.doubts)
    targets = to_numpy(fitted.calibrated.data.targets)
    warnings.extend(quality_warnings(metrics, fitted.calibrated.mean, targets, fitted.calibrated.likelihood, names))
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
