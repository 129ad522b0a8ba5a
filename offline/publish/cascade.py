"""Publish a cascade: the graph of its first stage, its part of the manifest, and what verification and clock say."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
from torch import Tensor

from offline.cascade.fit import FittedCascade
from offline.export.graph import export_variance
from offline.export.price import published, time_both
from offline.export.verify import verify_first_stage
from offline.job import Job
from offline.laplace.block_factor import factor_of
from offline.laplace.calibration import reference_quantiles
from offline.publish.plain_answers import PlainAnswers
from offline.runtime.arrays import to_numpy
from offline.runtime.progress import one_step
from service.bundle import Calibration, CalibrationTensors, Cascade, CascadeFiles, Manifest, MeasuredPrice
from service.bundle import Outcomes as OutcomesPart
from service.inference.predictor import Predictor
from service.maths.outcomes import Outcomes
from service.maths.posterior_factor import CholeskyPosterior


def export_first_stage(job: Job, cascade: FittedCascade) -> tuple[bytes, int]:
    """The ONNX model of mean and variance, and how many numbers it takes in memory for one example at most."""
    posterior, outputs = cascade.inference.factor, job.likelihood.outputs
    assert isinstance(posterior, CholeskyPosterior)
    factor = factor_of(cascade.jacobian, posterior.scale_tril, outputs)
    return export_variance(cascade.jacobian, job.example, outputs, factor)[0], outputs * factor.row_size


def cascade_files(cascade: FittedCascade, model: bytes, outcomes: Outcomes) -> CascadeFiles:
    """The files beside those of the bundle."""
    return CascadeFiles(
        model, CalibrationTensors(cascade.rule.scores, reference_quantiles(cascade.prediction), outcomes)
    )


def cascade_part(
    job: Job, manifest: Manifest, cascade: FittedCascade, row_numbers: int, outcomes: OutcomesPart
) -> Manifest:
    """The manifest with the cascade, before it is verified and timed."""
    band, rule = cascade.band, cascade.rule
    described = Cascade(
        size=cascade.jacobian.size,
        prior=replace(cascade.inference.prior, tried=None),
        low=band.low,
        high=band.high if math.isfinite(band.high) else None,
        threshold=band.threshold,
        target=job.config.cascade_agreement,
        agreement=cascade.agreement,
        calibration=Calibration(
            manifest.calibration.score, len(rule.scores), rule.false_reject_rate, rule.threshold, outcomes
        ),
        row_numbers=row_numbers,
        price=None,
        verification=None,
    )
    return replace(manifest, cascade=described, warnings=(*manifest.warnings, *cascade.warnings))


def measured_first_stage(
    job: Job, manifest: Manifest, cascade: FittedCascade, folder: Path, inputs: Tensor
) -> Manifest:
    """The manifest with the first stage verified on the inputs (n, *input_shape), and timed where that is asked for.

    Raises `VerificationError`.
    """
    plain = PlainAnswers(job, cascade.jacobian, cascade.inference.factor, inputs)
    truth = plain.truth()
    verification = one_step(
        job.track,
        "Verification of the first stage",
        lambda: verify_first_stage(folder, truth, lambda: plain.rounding(truth)),
    )
    assert manifest.cascade is not None
    measured = replace(manifest.cascade, verification=verification, price=_price(job, folder, inputs))
    return replace(manifest, cascade=measured)


def _price(job: Job, folder: Path, inputs: Tensor) -> tuple[MeasuredPrice, ...] | None:
    if not job.config.measure_price:
        return None
    predictor = Predictor.load(folder, threads=1, plain_too=True, cascade=True)
    assert predictor.first_stage is not None
    first, example = predictor.first_stage.mean_and_variance, np.ascontiguousarray(to_numpy(inputs[:1]))
    return one_step(job.track, "Price of the first stage", lambda: published(time_both(first, predictor.mean, example)))
