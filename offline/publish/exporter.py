"""The graph of a bundle, and what is measured on the bundle once the graph is in it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import torch

from demur.service.bundle import RejectedShare, Verification
from demur.service.inference.predictor import Predictor

from ..data.typical_rows import MOST_ROWS, Rows
from ..export.graph import export_variance
from ..export.verify import Truth, VerificationError, verify
from ..job import Job
from ..laplace.outcomes import Predicted
from ..runtime.progress import one_step
from .every_example import FAR, EveryExample
from .fitted import Fitted
from .foreign_rejection import foreign_rejection
from .plain_answers import PlainAnswers

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
        weights = fitted.inference.added_weights
        return export_variance(fitted.jacobian, job.example, outputs, fitted.factor, weights, share)

    def measure(self, job: Job, fitted: Fitted, folder: Path) -> Measured:
        """Verification, of all held-out examples and precisely of those that are furthest off, and foreign inputs."""
        calibrated = fitted.calibrated
        halves = [*filter(None, [calibrated.tuning]), Predicted(calibrated.data, calibrated.prediction)]
        predictor = Predictor.load(folder)
        every = EveryExample.served(predictor, halves, job.track)
        inference, furthest = fitted.inference, every.furthest(VERIFY_EXAMPLES)
        full = PlainAnswers(job, fitted.jacobian, inference.factor, furthest, inference.added_weights)
        truth = full.truth()
        try:
            verification = one_step(
                job.track, "Verification", lambda: verify(folder, truth, lambda: full.rounding(truth))
            )
        except VerificationError as error:
            raise VerificationError(f"{error}{_where(every)}") from None
        every.check()
        inputs, seed = fitted.calibrated.data.inputs, job.config.seed
        rejection = one_step(
            job.track, "Foreign inputs", lambda: foreign_rejection(predictor, inputs, seed, job.foreign)
        )
        typical = usual_rows(fitted.description.typical, predictor)
        return Measured(verification, rejection, _imprecise(truth), typical)


def _where(every: EveryExample) -> str:
    """How many held-out examples are far off; nothing where none is."""
    far = int(np.count_nonzero(every.off > FAR))
    return f". The mean differs for {far} of {len(every.off)} held-out examples" if far else ""


def _imprecise(truth: Truth) -> tuple[str, ...]:
    if truth.precision == "float64":
        return ()
    return (
        "the network does not run in float64 (it casts to float32, or makes float32 tensors): its derivatives were "
        "tried, and the bundle was verified, against plain torch in float32",
    )


def usual_rows(candidates: Rows, predictor: Predictor) -> Rows:
    """At most `MOST_ROWS` of them that the predictor accepts: of every label that is predicted the one with
    the largest p-value, then the others, by their p-values."""
    if not candidates:
        return ()
    prediction = predictor.predict(np.array(candidates, np.float32))
    order = [i for i in np.argsort(-prediction.p_value, kind="stable").tolist() if not prediction.rejected[i]]
    labels = [""] * len(candidates) if prediction.labels is None else [str(label) for label in prediction.labels]
    first = {labels[i]: i for i in reversed(order)}.values()
    return tuple(candidates[i] for i in sorted(order, key=lambda i: i not in first)[:MOST_ROWS])
