"""The manifest of a fit."""

import importlib.metadata
import platform
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

from torch import Tensor

from probity.offline.data.likelihood import Likelihood, Regression
from probity.offline.evaluation.diagnostics import coverage_band
from probity.offline.job import Job
from probity.offline.laplace.ggn import Curvature
from probity.offline.laplace.inference import Added
from probity.offline.laplace.scoring import Compared
from probity.offline.selection.subnetwork import Subnetwork
from probity.service.bundle import (
    AddedWeights,
    Calibration,
    ComparedScore,
    Graph,
    InputPart,
    InputSpec,
    Manifest,
    ManifestError,
    Outcomes,
    ParameterSlice,
    Posterior,
    Prior,
    ScorePart,
    Selection,
    check_input,
)
from probity.service.maths.fused_score import JoinedScore
from probity.service.maths.rejection import RejectionRule
from probity.service.maths.scores import Scoring

MOST_TOGETHER = 0.02
LIBRARIES = ("probity-serve", "torch", "onnx", "onnxscript", "onnxruntime", "numpy")


def check_input_spec(
    spec: InputSpec | None,
    example: Tensor,
    columns: tuple[str, ...] | None = None,
    parts: tuple[InputPart, ...] | None = None,
) -> InputSpec:
    """The user's input spec, checked as a reader of the bundle would and against the data; without one, plain arrays
    of the data's shape. Features without names are called like the columns of a data frame. parts: several
    inputs, which are packed in the order of these."""
    shape = tuple(example.shape[1:])
    if parts is not None:
        if spec is not None:
            raise ValueError(f"input_spec: found one for a model with {len(parts)} inputs, expected None")
        return InputSpec(shape=shape, parts=parts)
    dtype: Literal["float32", "int64"] = "float32" if example.is_floating_point() else "int64"
    if spec is None:
        return InputSpec(shape=shape, dtype=dtype, feature_names=columns)
    try:
        spec = check_input(spec)
    except ManifestError as error:
        raise ValueError(f"input_spec: {error}") from None
    if spec.shape != shape or spec.dtype != dtype:
        raise ValueError(
            f"input_spec: found {spec.shape} {spec.dtype}, expected {shape} {dtype} as in the training data"
        )
    return spec if columns is None or spec.feature_names else replace(spec, feature_names=columns)


def _sigma_noise(likelihood: Likelihood) -> float | tuple[float, ...] | None:
    """One number where all outputs have the same noise."""
    if not isinstance(likelihood, Regression):
        return None
    return likelihood.noise if likelihood.ratios is None else tuple(likelihood.noises.tolist())


def check_class_names(names: Sequence[str] | None, outputs: int) -> tuple[str, ...] | None:
    """K different names, or None."""
    if names is None:
        return None
    if isinstance(names, str):
        raise ValueError(f"class_names: found the string {names!r:.100}, expected a list of {outputs} names")
    checked = tuple(map(str, names))
    if len(checked) != outputs or len(set(checked)) != outputs:
        raise ValueError(f"class_names: found {list(checked)!r:.200}, expected {outputs} names, all different")
    return checked


def training_metrics(curvature: Curvature, likelihood: Likelihood) -> dict[str, float]:
    """Number of training examples, and accuracy or root mean square error on them."""
    metrics = {"train_examples": float(curvature.examples)}
    if isinstance(likelihood, Regression):
        mean_square = curvature.squared_error / (curvature.examples * likelihood.outputs)
        return metrics | {"train_rmse": mean_square**0.5}
    metrics |= {"train_accuracy": curvature.correct / curvature.examples}
    if likelihood.rows == likelihood.outputs:
        return metrics
    share = curvature.together / curvature.examples
    return metrics | {"curvature_rows": float(likelihood.rows), "curvature_probability_together": share}


def together_warning(metrics: Mapping[str, float]) -> tuple[str, ...]:
    """A warning where the curvature leaves out more than a little for want of rows."""
    share = metrics.get("curvature_probability_together", 0.0)
    if share <= MOST_TOGETHER:
        return ()
    return (
        f"the curvature takes classes together whose probability is {100 * share:.1f} % on the training data, so the "
        f"variances are too large; give more curvature_outputs than {metrics['curvature_rows']:.0f}",
    )


def coverage_warning(metrics: Mapping[str, float], examples: int) -> tuple[str, ...]:
    """A warning where the 95 % intervals of a regression hold more or fewer held-out targets than chance explains."""
    covered = metrics.get("calibration_coverage_95")
    if covered is None:
        return ()
    low, high = coverage_band(examples, 0.95)
    if low <= covered <= high:
        return ()
    verdict = "narrow" if covered < low else "wide"
    return (
        f"the 95 % intervals are too {verdict}: they hold {100 * covered:.1f} % of the targets of {examples} held-out "
        f"examples, expected {100 * low:.1f} to {100 * high:.1f} %; sigma_noise is one number for every input: if the "
        "calibration data are like what will be served, give more of them, or set sigma_noise",
    )


def make_manifest(
    job: Job,
    *,
    spec: InputSpec,
    class_names: tuple[str, ...] | None,
    selection: Subnetwork,
    prior: Prior,
    posterior: Posterior,
    likelihood: Likelihood,
    opset: int,
    graph: Graph,
    rule: RejectionRule,
    outcomes: Outcomes,
    compared: Sequence[Compared],
    added: Added | None,
    metrics: Mapping[str, float],
    warnings: Sequence[str],
) -> Manifest:
    """The manifest before its files are written and the bundle is verified."""
    config = job.config
    return Manifest(
        name=config.name,
        version=config.version,
        task=config.likelihood,
        input=spec,
        outputs=likelihood.outputs,
        class_names=class_names,
        parameter_count=job.layout.total,
        subnetwork_size=len(selection.indices),
        selection=_selection(job, selection),
        prior=prior,
        posterior=posterior,
        sigma_noise=_sigma_noise(likelihood),
        temperature=likelihood.temperature,
        map_temperature=likelihood.plain_temperature,
        link=likelihood.link,
        opset=opset,
        graph=graph,
        calibration=Calibration(
            score=likelihood.scoring.name,
            examples=len(rule.scores),
            false_reject_rate=rule.false_reject_rate,
            threshold=rule.threshold,
            outcomes=outcomes,
            parts=score_parts(likelihood.scoring),
            compared=tuple(ComparedScore(one.name, one.shift_auroc, one.chosen) for one in compared) or None,
        ),
        verification=None,
        added_weights=None if added is None else added_part(added, job.config.budget),
        metrics=dict(metrics),
        libraries=_libraries(),
        warnings=tuple(warnings),
    )


def added_part(added: Added, budget: float) -> AddedWeights:
    """What the manifest says of the added weights."""
    weights, chosen = added.weights, added.chosen
    return AddedWeights(
        layers=weights.layers.link,
        distance_layers=weights.layers.score,
        features=len(weights.link.phases),
        prior_variance=weights.scale,
        budget=budget,
        cost=chosen.paid.cost,
        cost_error=chosen.paid.error,
        explanation=chosen.explanation,
    )


def score_parts(scoring: Scoring) -> tuple[ScorePart, ...] | None:
    """What a score is made of; None for a single one."""
    if not isinstance(scoring, JoinedScore):
        return None
    known = ((part, part.distribution) for part in scoring.components)
    return tuple(ScorePart(p.score.name, p.weight, d.scale, d.shape, p.least) for p, d in known)


def _selection(job: Job, selection: Subnetwork) -> Selection:
    chosen = {parameter.name: len(positions) for parameter, positions in job.layout.locate(selection.indices)}
    return Selection(
        strategy=selection.strategy,
        options=selection.options,
        seed=job.config.seed,
        dead_weights=selection.dead_weights,
        parameters=tuple(
            ParameterSlice(p.name, p.shape, p.offset, chosen.get(p.name, 0)) for p in job.layout.parameters
        ),
        explanation=selection.explanation,
        within=selection.within,
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
