"""A synthetic bundle with a cascade: the first stage's variance is c_k (1 + |x|^2), in closed form."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

from service.bundle import (
    Calibration,
    CalibrationTensors,
    Cascade,
    CascadeAgreement,
    CascadeFiles,
    InputSpec,
    MeasuredPrice,
    Prior,
    Verification,
)
from service.inference.predictor import undecided_prediction
from tests import reference
from tests.support.bundles import FEATURE_SPEC, Array, Synthetic, model_bytes, rewrite, value_info, write_linear
from tests.support.manifests import slow_threshold

EXAMPLES = 40
AGREEMENT = CascadeAgreement(
    examples=EXAMPLES,
    decided=30,
    agreement=1.0,
    lower_bound=0.9,
    verdicts_changed=0.025,
    log_likelihood_difference=-0.001,
    shift_decided=0.5,
    shift_agreement=0.99,
)


@dataclass(frozen=True)
class CascadeBundle:
    """The bundle at `path`: the full stage is `full`, the first has the variances `scale` (K,) times 1 + |x|^2."""

    path: Path
    full: Synthetic
    scale: Array
    cascade: Cascade
    scores: Array

    @property
    def high(self) -> float:
        return np.inf if self.cascade.high is None else self.cascade.high

    def first_variance(self, inputs: Array) -> Array:
        """(B, K)."""
        flat = np.asarray(inputs, np.float64).reshape(len(inputs), -1)
        variance: Array = (1 + np.square(flat).sum(axis=1, keepdims=True)) * self.scale.astype(np.float64)
        return variance

    def stage_scores(self, inputs: Array) -> tuple[Array, Array]:
        """The scores of first and full stage, (B,) both."""
        mean, manifest = self.full.mean(inputs), self.full.manifest
        first, full = (
            undecided_prediction(mean, variance, manifest.sigma_noise, manifest.temperature).score
            for variance in (self.first_variance(inputs), self.full.variance(inputs))
        )
        return first, full

    def score(self, inputs: Array) -> Array:
        """The cascade's, one example after the other."""
        low, high, threshold = self.cascade.low, self.high, self.cascade.threshold
        pairs = zip(*self.stage_scores(inputs), strict=True)
        return np.array([reference.cascade_score(float(s), float(t), low, high, threshold) for s, t in pairs])


def write_cascade(
    out: Path,
    band: tuple[float, float] = (0.3, 0.7),
    *,
    regression: bool = False,
    outputs: int = 3,
    spec: InputSpec = FEATURE_SPEC,
    name: str = "synthetic",
) -> CascadeBundle:
    """Write the bundle to `out`. band: quantiles of the first stage's score on ordinary inputs, 0 and 1 for none."""
    full = write_linear(out.with_name(f"{out.name} full"), outputs=outputs, spec=spec, regression=regression, name=name)
    scale = np.linspace(0.05, 0.15, outputs).astype(np.float32)
    rng = np.random.default_rng(5)
    ordinary = rng.normal(size=(EXAMPLES, *spec.shape)).astype(np.float32)
    manifest, calibration = full.manifest, full.manifest.calibration
    found = CascadeBundle(out, full, scale, _described(0.0, None, 1.0, calibration, 1.0), np.zeros(0))
    first, second = found.stage_scores(ordinary)
    low = 0.0 if band[0] == 0 else float(np.quantile(first, band[0]))
    high = None if band[1] == 1 else float(np.quantile(first, band[1]))
    threshold = float(np.quantile(second, 0.8))
    found = replace(found, cascade=_described(low, high, threshold, calibration, 1.0))
    scores = np.sort(found.score(ordinary))
    rule = slow_threshold(scores, calibration.false_reject_rate)
    cascade = _described(low, high, threshold, calibration, rule)
    rewrite(
        full.path,
        out,
        manifest=replace(manifest, cascade=cascade),
        cascade=CascadeFiles(
            model_bytes(first_graph(full, scale)),
            CalibrationTensors(scores, {"ood_score": np.linspace(0.1, 0.9, 5)}),
        ),
    )
    return replace(found, cascade=cascade, scores=scores)


def _described(low: float, high: float | None, threshold: float, full: Calibration, rule: float) -> Cascade:
    return Cascade(
        size=4,
        prior=Prior(method="fixed", precision=1.0, scaling="none", used=1.0),
        low=low,
        high=high,
        threshold=threshold,
        target=0.99,
        agreement=AGREEMENT,
        calibration=Calibration(full.score, EXAMPLES, full.false_reject_rate, rule),
        row_numbers=8,
        price=(MeasuredPrice(1, 1.25),),
        verification=Verification(4, 1e-4, 1e-7, None, 1e-7),
    )


def first_graph(full: Synthetic, scale: Array) -> onnx.GraphProto:
    """inputs (B, *shape) -> mean (B, K), variance (B, K)."""
    outputs, width = full.weight.shape
    constants = {
        "weight": full.weight.T,
        "bias": full.bias,
        "scale": scale.reshape(1, outputs),
        "flat_shape": np.array([-1, width], np.int64),
        "axis": np.array([1], np.int64),
        "one": np.ones(1, np.float32),
    }
    nodes = [
        helper.make_node("Reshape", ["inputs", "flat_shape"], ["flat"]),
        helper.make_node("MatMul", ["flat", "weight"], ["scaled"]),
        helper.make_node("Add", ["scaled", "bias"], ["mean"]),
        helper.make_node("Mul", ["flat", "flat"], ["squares"]),
        helper.make_node("ReduceSum", ["squares", "axis"], ["norm"]),
        helper.make_node("Add", ["norm", "one"], ["extended"]),
        helper.make_node("Mul", ["extended", "scale"], ["variance"]),
    ]
    shape = full.manifest.input.shape
    return helper.make_graph(
        nodes,
        "first",
        [value_info("inputs", ("batch", *shape))],
        [value_info("mean", ("batch", outputs)), value_info("variance", ("batch", outputs))],
        [numpy_helper.from_array(np.ascontiguousarray(array), name) for name, array in constants.items()],
    )
