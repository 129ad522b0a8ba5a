"""The report of a fitted bundle: one page for the person who must decide whether to put it into production.

It needs nothing but itself: figures are in the page, there are no scripts, and its own policy forbids it to load
anything. Names are whatever a user typed, so the template escapes everything that it is given.
"""

import importlib.resources
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from demur.service.bundle import Manifest
from demur.service.format.steps import STEPS
from demur.service.inference.graph import GraphOutputs
from demur.service.inference.prediction import Prediction, Predictive
from demur.service.maths.outcomes import Outcomes, RegressionOutcomes
from demur.service.maths.prediction_sets import LIKELY
from demur.service.maths.scores import Scoring

from ..evaluation.diagnostics import coverage_curve, each_label, rejection_curve, reliability
from ..evaluation.fifths import fifths_covered
from ..runtime.arrays import Array
from .examples import Examples, example_groups
from .figures import coverage_picture, rejection_picture, reliability_picture, residual_picture, score_picture
from .style import Picture
from .words import (
    added_rows,
    bought_rows,
    cards,
    certified_rows,
    checks,
    foreign_rows,
    number,
    parameter_rows,
    percent,
    posterior_rows,
    prior_rows,
    selection_rows,
    set_rows,
    verification_rows,
)


@dataclass(frozen=True)
class ReportData:
    """What the report shows; everything but the manifest may be absent, and the page says less then.

    mean, variance (n, K) and targets (n,) class numbers or (n, K) values or labels: the held-out examples that set the
    threshold, all three or none. scores: theirs, (n,) in any order; by default computed from mean and variance.
    scoring: what makes the scores; by default the single score that the manifest names. outcomes: how held-out examples
    turned out, as the bundle keeps it. features: the feature scores of the same examples, (n,) by name. inputs (n,
    *shape): theirs, shown where they are images. noise_scale (n, K): where the noise depends on the input. Raises
    `ValueError` for arrays that do not fit together or are not finite.
    """

    manifest: Manifest
    mean: Array | None = None
    variance: Array | None = None
    targets: Array | None = None
    scores: Array | None = None
    scoring: Scoring | None = None
    outcomes: Outcomes | None = None
    features: Mapping[str, Array] = field(default_factory=dict)
    inputs: Array | None = None
    noise_scale: Array | None = None

    def __post_init__(self) -> None:
        outputs = self.manifest.outputs
        row = () if self.manifest.task == "classification" else (outputs,)
        count = None if self.mean is None else len(self.mean)
        present = [value is not None for value in (self.mean, self.variance, self.targets)]
        if any(present) and not all(present):
            raise ValueError(f"mean, variance, targets: found {sum(present)} of them, expected all three or none")
        _check("mean", self.mean, (count, outputs))
        _check("variance", self.variance, (count, outputs))
        _check("targets", self.targets, (count, *row))
        _check("scores", self.scores, (count,))
        _check("inputs", self.inputs, (count, *self.manifest.input.shape), finite=False)  # many, and looked at before


def _check(name: str, array: Array | None, shape: tuple[int | None, ...], finite: bool = True) -> None:
    """Shape (None: any length of at least 1) and finiteness of an array that is there."""
    if array is None:
        return
    fits = array.ndim == len(shape) and all(want in (None, have) for want, have in zip(shape, array.shape, strict=True))
    if not fits or not array.size:
        expected = ", ".join("n" if size is None else str(size) for size in shape)
        raise ValueError(f"{name}: found shape {array.shape}, expected ({expected})")
    if finite and not np.isfinite(array).all():
        raise ValueError(f"{name}: found NaN or infinity, expected finite numbers")


@dataclass(frozen=True)
class _HeldOut:
    """What the held-out examples have to say: of the decision, and of the predictions."""

    rejecting: list[Picture]
    pictures: list[Picture]
    scores: Array
    calibration_error: tuple[float, float] | None = None
    coverage: float | None = None
    examples: list[Examples] = field(default_factory=list)
    fifths: dict[str, str] = field(default_factory=dict)


def report_html(data: ReportData) -> bytes:
    """The page, UTF-8; the same data give the same bytes."""
    manifest = data.manifest
    held_out = _held_out(data)
    scores = data.scores if held_out is None else held_out.scores
    rejecting = [] if held_out is None else list(held_out.rejecting)
    if scores is not None:
        rejecting.insert(0, score_picture(scores, manifest.calibration.threshold, manifest.calibration.score))
    folder = importlib.resources.files(__package__) / "templates"
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    page = environment.from_string((folder / "report.html").read_text("utf-8")).render(
        style=Markup((folder / "report.css").read_text("utf-8")),  # noqa: S704 - ours, and no place for a name
        manifest=manifest,
        share=percent(manifest.subnetwork_size / manifest.parameter_count),
        cards=cards(
            manifest,
            None if held_out is None else held_out.calibration_error,
            None if held_out is None else held_out.coverage,
        ),
        checks=checks(manifest),
        selection=selection_rows(manifest),
        parameters=parameter_rows(manifest),
        prior=prior_rows(manifest),
        rejecting=rejecting,
        examples=[] if held_out is None else held_out.examples,
        calibration=[] if held_out is None else held_out.pictures,
        fifths={} if held_out is None else held_out.fifths,
        foreign=foreign_rows(manifest),
        certified=certified_rows(data.outcomes),
        sets=set_rows(manifest, data.outcomes),
        added=added_rows(manifest),
        bought=bought_rows(manifest),
        posterior=posterior_rows(manifest),
        verification=verification_rows(manifest),
        metrics={name.replace("_", " "): number(value) for name, value in sorted(manifest.metrics.items())},
    )
    return page.encode("utf-8", "replace")  # a lone surrogate in a name must not lose the report


def _held_out(data: ReportData) -> _HeldOut | None:
    manifest = data.manifest
    if data.mean is None or data.variance is None or data.targets is None:
        return None
    outputs = GraphOutputs(data.mean, data.variance, data.features, noise_scale=data.noise_scale)
    prediction = Predictive.of(manifest, data.scoring).undecided(outputs)
    in_use = float((prediction.score > manifest.calibration.threshold).mean())
    scores = prediction.score if data.scores is None else data.scores
    described = _regression if manifest.task == "regression" else _classification
    found = described(prediction, data.targets, scores, in_use)
    if isinstance(data.outcomes, RegressionOutcomes):
        found = replace(found, fifths=_fifths(fifths_covered(prediction, data.targets, data.outcomes), manifest.labels))
    return replace(found, examples=example_groups(manifest, data.inputs, prediction, data.targets))


def _fifths(covered: Mapping[str, Array], labels: Sequence[str]) -> dict[str, str]:
    """Of each output, from the lowest fifth to the highest."""
    return {
        f"By the {by}{f' of {label}' if len(labels) > 1 else ''}": ", ".join(percent(share) for share in shares[:, k])
        for by, shares in covered.items()
        for k, label in enumerate(labels)
    }


def _classification(prediction: Prediction, y: Array, scores: Array, in_use: float) -> _HeldOut:
    assert prediction.probabilities is not None
    assert prediction.map_probabilities is not None
    p, q = prediction.probabilities, prediction.map_probabilities
    if prediction.multilabel:
        plain, full = reliability(*each_label(q, y)), reliability(*each_label(p, y))
        wrong = ((p >= LIKELY) != (y > 0)).any(axis=1)
    else:
        plain, full = reliability(q, y), reliability(p, y)
        wrong = p.argmax(axis=1) != y
    share, error = rejection_curve(prediction.score, wrong)
    rejecting = [rejection_picture(share, 100 * (1 - error), in_use, "Accuracy of the accepted (%)")]
    return _HeldOut(
        rejecting,
        [reliability_picture(plain, full, STEPS["classification"]["_map"])],
        scores,
        calibration_error=(plain.ece, full.ece),
    )


def _regression(prediction: Prediction, y: Array, scores: Array, in_use: float) -> _HeldOut:
    mean, std = prediction.mean, prediction.std
    assert std is not None
    share, square = rejection_curve(prediction.score, np.square(mean - y).mean(axis=1))
    rejecting = [rejection_picture(share, np.sqrt(square), in_use, "RMSE of the accepted (target's units)")]
    pictures = [coverage_picture(mean, std, y), residual_picture(mean, std, y)]
    return _HeldOut(rejecting, pictures, scores, coverage=float(coverage_curve(mean, std, y, np.array([0.95]))[0]))
