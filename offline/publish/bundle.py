"""Publish a fit as a bundle: export, seal, verify with the serving code, report."""

import importlib.metadata
import platform
from dataclasses import replace
from pathlib import Path

from demur.service.bundle import Graph, Manifest, reseal_manifest, seal_bundle, staged_bundle

from ..job import Job
from ..laplace.served_factor import StructuredFactor
from ..report.page import ReportData, report_html
from ..runtime.arrays import to_numpy
from ..runtime.progress import one_step
from ..section import Section
from .exporter import Exporter, OnnxExporter
from .fitted import Fitted
from .foreign_rejection import rejection_warnings

LIBRARIES = ("demur", "torch", "onnx", "onnxscript", "onnxruntime", "numpy")


def publish(job: Job, fitted: Fitted, destination: Path, exporter: Exporter | None = None) -> tuple[str, ...]:
    """Write the bundle, all of it or nothing, and return its warnings; raises `ExportError` and `VerificationError`.

    exporter: another one than `OnnxExporter`.
    """
    exporter = exporter or OnnxExporter()
    graph, (model, opset) = one_step(
        job.track, "Export to ONNX", lambda: (_graph(fitted), exporter.export(job, fitted))
    )
    manifest = make_manifest(Section.joined([*fitted.sections(job), Section({"graph": graph, "opset": opset})]))
    indices = to_numpy(fitted.subnetwork.indices)
    with staged_bundle(destination) as folder:
        sealed = seal_bundle(
            folder,
            manifest,
            model,
            fitted.inference.factor,
            indices,
            fitted.calibrated.tensors(),
            tokenizer=fitted.description.tokenizer,
        )
        measured = exporter.measure(job, fitted, folder)
        verified = replace(
            sealed,
            input=replace(sealed.input, typical=measured.typical or sealed.input.typical),
            verification=measured.verification,
            rejection=measured.rejection,
            warnings=(
                *sealed.warnings,
                *measured.warnings,
                *rejection_warnings(measured.rejection or (), job.config),
            ),
        )
        reseal_manifest(folder, verified, _report(verified, fitted))
    return verified.warnings


def _graph(fitted: Fitted) -> Graph:
    """What the manifest says of the graph."""
    added = fitted.inference.added_weights
    return replace(_variances(fitted), feature_scores=None if added is None else added.feature_scores)


def _variances(fitted: Fitted) -> Graph:
    jacobian, factor, outputs = fitted.jacobian, fitted.factor, fitted.calibrated.likelihood.outputs
    if isinstance(factor, StructuredFactor):
        return Graph(outputs * factor.row_size)
    return Graph(outputs * (2 * jacobian.size + factor.row_size) + 2 * outputs)


def _report(manifest: Manifest, fitted: Fitted) -> bytes:
    calibrated = fitted.calibrated
    return report_html(
        ReportData(
            manifest=manifest,
            mean=calibrated.outputs.mean,
            variance=calibrated.outputs.variance,
            scoring=calibrated.likelihood.scoring,
            features=calibrated.outputs.features,
            noise_scale=calibrated.outputs.noise_scale,
            targets=calibrated.targets,
            outcomes=calibrated.outcomes,
            inputs=to_numpy(calibrated.data.inputs) if manifest.input.image else None,
        )
    )


def make_manifest(said: Section) -> Manifest:
    """Before its files are written and the bundle is verified."""
    return Manifest(
        **said.fields, verification=None, metrics=dict(said.metrics), libraries=_libraries(), warnings=said.warnings
    )


def _libraries() -> dict[str, str]:
    """Versions that made the bundle, so that a difference can be traced."""
    versions = {"python": platform.python_version()}
    for name in LIBRARIES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions
