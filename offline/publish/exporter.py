"""The graph of a bundle, and what is measured on the bundle once the graph is in it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch

from demur.service.bundle import RejectedShare, Verification

from ..data.typical_rows import Rows
from ..export.graph import export_variance
from ..export.verify import Truth, verify
from ..job import Job
from ..runtime.progress import one_step
from .fitted import Fitted
from .foreign_rejection import foreign_rejection
from .plain_answers import PlainAnswers, WholePosterior
from .usual_rows import usual_rows

VERIFY_EXAMPLES = 8


@dataclass(frozen=True)
class Measured:
    """On the finished bundle: how far its answers are from torch's, what it rejects of foreigners, warnings, and rows
    that it takes for usual."""

    verification: Verification | None
    rejection: tuple[RejectedShare, ...] | None
    warnings: tuple[str, ...]
    typical: Rows = ()


class Exporter(Protocol):
    """Makes the graph, and measures the bundle that holds it."""

    def export(self, job: Job, fitted: Fitted) -> tuple[bytes, int]:
        """The graph, serialised, and its opset; raises `ExportError`."""

    def measure(self, job: Job, fitted: Fitted, folder: Path) -> Measured:
        """On the sealed bundle in `folder`; raises `VerificationError`."""


class OnnxExporter:
    """Exports to ONNX, and measures with the code that serves it."""

    def export(self, job: Job, fitted: Fitted) -> tuple[bytes, int]:
        """The graph of mean, variance and distance."""
        outputs, added = job.likelihood.outputs, job.likelihood.added_share
        share = None if (added == 1).all() else torch.as_tensor(added)
        form, weights = fitted.form, fitted.inference.added_weights
        return export_variance(form.jacobian, job.example, outputs, form.factor, weights, share)

    def measure(self, job: Job, fitted: Fitted, folder: Path) -> Measured:
        """Verification and foreign inputs."""
        full = _plain_answers(job, fitted)
        truth = full.truth()
        verification = one_step(job.track, "Verification", lambda: verify(folder, truth, lambda: full.rounding(truth)))
        inputs, seed = fitted.calibrated.data.inputs, job.config.seed
        rejection = one_step(job.track, "Foreign inputs", lambda: foreign_rejection(folder, inputs, seed))
        typical = usual_rows(fitted.description.typical, folder)
        return Measured(verification, rejection, _imprecise(truth), typical)


def _plain_answers(job: Job, fitted: Fitted) -> PlainAnswers:
    inputs, form = fitted.calibrated.data.inputs[:VERIFY_EXAMPLES], fitted.form
    whole = None if form.reduced is None else WholePosterior(fitted.inference.factor, form.reduced.error_bound)
    return PlainAnswers(job, form.jacobian, form.posterior, inputs, whole, fitted.inference.added_weights)


def _imprecise(truth: Truth) -> tuple[str, ...]:
    if truth.precision == "float64":
        return ()
    return (
        "the network does not run in float64 (it casts to float32, or makes float32 tensors): its derivatives were "
        "tried, and the bundle was verified, against plain torch in float32",
    )
