"""Predictor: the ONNX session and the rejection rule of one bundle -> Prediction."""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from probity.service.bundle import MANIFEST, Bundle, BundleError, Calibration, Manifest, read_bundle
from probity.service.inference.deciding import Policy, Rule, deciding_rule
from probity.service.inference.expected_accuracy import expected_accuracy
from probity.service.inference.frames import frame_array, is_frame, numbers_of
from probity.service.inference.input_range import RangeCheck
from probity.service.inference.parts import packed
from probity.service.inference.prediction import NonFinitePrediction as NonFinitePrediction
from probity.service.inference.prediction import PlainPrediction as PlainPrediction
from probity.service.inference.prediction import Prediction as Prediction
from probity.service.inference.prediction import check_finite as check_finite
from probity.service.inference.prediction import decide as decide
from probity.service.inference.prediction import decided_by as decided_by
from probity.service.inference.prediction import undecided_prediction as undecided_prediction
from probity.service.inference.session import NetworkError, open_plain, open_session, run
from probity.service.maths.outcomes import ClassOutcomes, LabelOutcomes, Outcomes, RegressionOutcomes
from probity.service.maths.prediction_sets import ConformalIntervals, LabelSets, PredictionSets
from probity.service.maths.predictive import link_approx
from probity.service.maths.rejection import RejectionRule
from probity.service.maths.score_outputs import NO_FEATURES
from probity.service.maths.scores import SCORES, Scoring

Array = npt.NDArray[Any]
MAX_CHUNK_ROWS = 64  # more rows at once gain no speed
CHUNK_BYTES = 64 * 2**20  # of the derivatives and products inside the graph, of all rows at once


@dataclass(frozen=True)
class GraphOutputs:
    """What the graph gives: mean and variance (B, K) float32, the feature scores (B,) float32, by
    name, and the part `added` (B,) of each variance that is that of added weights; None without any."""

    mean: Array
    variance: Array
    features: Mapping[str, Array] = field(default_factory=dict)
    added: Array | None = None

    @classmethod
    def concatenate(cls, parts: Sequence["GraphOutputs"]) -> "GraphOutputs":
        """The examples of all parts, in order."""
        features = {name: np.concatenate([part.features[name] for part in parts]) for name in parts[0].features}
        mean, variance = (np.concatenate(each) for each in zip(*((p.mean, p.variance) for p in parts), strict=True))
        added = [part.added for part in parts if part.added is not None]
        return cls(mean, variance, features, np.concatenate(added) if added else None)


class Predictor:
    """Answers for one bundle. Thread-safe: nothing changes after construction.

    A pickle holds the bundle's path and digest: unpickling reads the bundle again, and refuses another digest.
    """

    def __init__(
        self,
        bundle: Bundle,
        *,
        threads: int | None = None,
        plain_too: bool = False,
        false_reject_rate: float | None = None,
        policy: Policy | None = None,
    ) -> None:
        """`threads`: those of onnxruntime (None: its default).

        `plain_too` opens the network a second time without its variances, which `predict_plain` needs.

        `false_reject_rate`, in (0, 1): in place of the bundle's own; `BundleError` where the bundle has too few
        calibration scores to reject anything at that rate. `policy`: the same and more, in its place.

        `rule` compares a score with all calibration scores, and `decides` rejects; they differ where each class has a
        rule of its own. `outcomes`, and what follows from them, `sets`, `intervals`, and `expected_accuracy`, that of
        accepted predictions: None where the task has none.
        """
        self.path = bundle.path
        self.manifest: Manifest = bundle.manifest
        self.digest, self.manifest_sha256 = bundle.digest, bundle.manifest_sha256
        self.reference = dict(bundle.calibration.reference)
        self.range_check = None if self.manifest.input.range is None else RangeCheck(self.manifest.input)
        own = RejectionRule(bundle.calibration.scores, self.manifest.calibration.false_reject_rate)
        _check_threshold(own, self.manifest.calibration.threshold, bundle)
        outcomes, described = bundle.calibration.outcomes, self.manifest.calibration
        self.policy = policy or Policy(false_reject_rate)
        self.decides: Rule = deciding_rule(own, outcomes, self.policy, bundle)
        self.rule = self.decides if isinstance(self.decides, RejectionRule) else own.at(self.decides.false_reject_rate)
        self.expected_accuracy = expected_accuracy(self.decides, outcomes)
        self.outcomes, self.sets = outcomes, _sets(outcomes, described)
        self.intervals = ConformalIntervals(outcomes.residuals) if isinstance(outcomes, RegressionOutcomes) else None
        self.chunk_rows = max(1, min(MAX_CHUNK_ROWS, CHUNK_BYTES // (4 * self.manifest.graph.row_numbers)))
        self.threads = threads
        self.scoring: Scoring = bundle.calibration.scoring or SCORES[self.manifest.calibration.score]
        self._session = open_session(bundle, threads)
        self._plain_session = open_plain(bundle, threads) if plain_too else None

    @classmethod
    def load(
        cls,
        path: Path | str,
        *,
        threads: int | None = None,
        plain_too: bool = False,
        false_reject_rate: float | None = None,
        policy: Policy | None = None,
    ) -> "Predictor":
        """Read, check and open the bundle at `path`; raises `BundleError`."""
        return cls(
            read_bundle(path),
            threads=threads,
            plain_too=plain_too,
            false_reject_rate=false_reject_rate,
            policy=policy,
        )

    def __reduce__(self) -> tuple[Any, ...]:
        options = {"threads": self.threads, "plain_too": self.has_plain, "policy": self.policy}
        return _reopen, (str(self.path.resolve()), self.digest, options)

    def predict(self, inputs: Any) -> Prediction:
        """inputs (B, *input_shape), B >= 1, or a data frame -> Prediction; raises `ValueError` for a wrong shape.

        The columns of a data frame are found by the bundle's feature names, whatever their order, and others are left
        out; `ValueError` for missing ones, and for a bundle without feature names. Several inputs are given by name, as
        a mapping of arrays (B, *shape), or as a tuple in the order of the manifest.

        An example for which the network's output is not finite is rejected whatever the threshold, with an infinite
        score; its other values are the network's. `Prediction.finite` marks such examples, `check_finite` raises for
        them.
        """
        inputs = self._check_inputs(inputs)
        found = self._in_chunks(inputs)
        with np.errstate(invalid="ignore", over="ignore"):
            outside = self._outside(inputs)
            return decide(
                found.mean,
                found.variance,
                self.manifest,
                self.decides,
                outside,
                self.scoring,
                found.features,
                found.added,
            )

    def predict_plain(self, inputs: Any) -> PlainPrediction:
        """Run the network alone: one forward pass an example, no variances. As with `predict`, rows may be infinite.

        Needs `plain_too`; raises `RuntimeError` without.
        """
        inputs = self._check_inputs(inputs)
        mean = self.mean(inputs)
        outside = self._outside(inputs)
        if self.manifest.sigma_noise is not None:
            return PlainPrediction(mean, out_of_range=outside)
        with np.errstate(invalid="ignore", over="ignore"):
            probabilities = link_approx(mean, 0.0 * mean, self.manifest.map_temperature, self.manifest.link)
        return PlainPrediction(mean, probabilities, outside)

    def mean(self, inputs: Array) -> Array:
        """The outputs of the plain network alone: inputs (B, *input_shape) -> (B, K), float32; one forward pass.

        Needs `plain_too`; raises `RuntimeError` without, and `NetworkError`.
        """
        if self._plain_session is None:
            raise RuntimeError("found a predictor without the plain network, expected one made with plain_too=True")
        (mean,) = run(self._plain_session, ["mean"], inputs)
        return mean

    @property
    def has_plain(self) -> bool:
        """Whether `predict_plain` can answer."""
        return self._plain_session is not None

    def takes_longer_than(self, seconds: float, attempts: int = 3) -> bool:
        """Whether the graph needs more than `seconds` for one example, at the best of a few attempts."""
        inputs = np.zeros((1, *self.manifest.input.shape), self.manifest.input.dtype)
        for _ in range(attempts):
            start = time.perf_counter()
            self.outputs(inputs)
            if time.perf_counter() - start <= seconds:
                return False
        return True

    def _outside(self, inputs: Array) -> Array | None:
        return None if self.range_check is None else self.range_check.outside(inputs)

    def mean_and_variance(self, inputs: Array) -> tuple[Array, Array]:
        """The outputs and their variances alone: inputs (B, *input_shape) -> (B, K) both, float32.

        Raises `NetworkError`.
        """
        found = self.outputs(inputs)
        return found.mean, found.variance

    def outputs(self, inputs: Array) -> GraphOutputs:
        """Everything that a prediction is made of: inputs (B, *input_shape); raises `NetworkError`."""
        names = list(self._session.shapes)
        found = dict(zip(names, run(self._session, names, inputs), strict=True))
        columns = found.get("feature_scores")
        scores = NO_FEATURES if columns is None else dict(zip(self.manifest.feature_scores, columns.T, strict=True))
        return GraphOutputs(found["mean"], found["variance"], scores, found.get("added_variance"))

    def _in_chunks(self, inputs: Array) -> GraphOutputs:
        """`outputs`, at most `chunk_rows` examples at a time."""
        if len(inputs) <= self.chunk_rows:
            return self.outputs(inputs)
        found = []
        for start in range(0, len(inputs), self.chunk_rows):
            try:
                found.append(self.outputs(inputs[start : start + self.chunk_rows]))
            except NetworkError as error:
                raise error.after(start) from error.__cause__
        return GraphOutputs.concatenate(found)

    def _check_inputs(self, inputs: Any) -> Array:
        spec = self.manifest.input
        values = inputs
        if is_frame(inputs):
            values = frame_array(inputs, spec.feature_names, "inputs")
        elif isinstance(inputs, tuple) and spec.parts is not None:
            if len(inputs) != len(spec.parts):
                names = ", ".join(repr(part.name) for part in spec.parts)
                raise ValueError(f"inputs: found {len(inputs)} arrays, expected those of {names}, in this order")
            named = {part.name: value for part, value in zip(spec.parts, inputs, strict=True)}
            values = packed(named, spec.parts, "inputs")
        elif isinstance(inputs, Mapping):
            if spec.parts is None:
                raise ValueError(f"inputs: found {', '.join(map(repr, inputs))}, expected a single array")
            values = packed(inputs, spec.parts, "inputs")
        array: Array = np.ascontiguousarray(numbers_of(values, "inputs"), np.dtype(spec.dtype))
        if array.shape[1:] != spec.shape or not len(array):
            shape = ", ".join(map(str, ("n", *spec.shape)))
            raise ValueError(f"inputs: found shape {array.shape}, expected ({shape}) of at least one example")
        return array


def _reopen(path: str, digest: str, options: dict[str, Any]) -> Predictor:
    """The predictor that was pickled; raises `BundleError` where the path holds another bundle now."""
    bundle = read_bundle(path)
    if bundle.digest != digest:
        problem = f"found a bundle of digest {bundle.digest}, expected the one that was pickled, {digest}"
        raise BundleError(bundle.path, problem, "load it again with Predictor.load")
    return Predictor(bundle, **options)


def _sets(outcomes: Outcomes, described: Calibration) -> PredictionSets | LabelSets | None:
    if isinstance(outcomes, LabelOutcomes):
        return LabelSets(outcomes.set_scores)
    score = described.outcomes.set_score
    if not isinstance(outcomes, ClassOutcomes) or score is None:
        return None
    return PredictionSets(outcomes.set_scores, score.penalty, score.unpenalised)


def _check_threshold(rule: RejectionRule, stated: float, bundle: Bundle) -> None:
    found = rule.threshold
    if not math.isclose(stated, found, rel_tol=1e-9, abs_tol=1e-12):
        problem = f"calibration.threshold: found {stated}, the calibration scores give {found}"
        raise BundleError(bundle.path / MANIFEST, problem)
