"""Predictor: the ONNX session and the posterior factor of one bundle -> Prediction."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from service.bundle import MANIFEST, Bundle, BundleError, Manifest, read_bundle
from service.inference.input_range import RangeCheck
from service.inference.matrix_threads import matrix_threads
from service.inference.session import open_plain, open_session, run
from service.maths.predictive import class_probabilities, entropy_parts, predictive_std, softmax
from service.maths.rejection import RejectionRule, regression_score

Array = npt.NDArray[Any]
P = TypeVar("P", "Prediction", "PlainPrediction")
DEFAULT_JACOBIAN_BYTES = 256 * 2**20
MAX_CHUNK_ROWS = 64  # the graph's activations take memory too: more rows at once gain no speed


class NonFinitePrediction(ValueError):
    """The network's output is not finite for the example at `index`."""

    def __init__(self, index: int) -> None:
        self.index = index
        super().__init__(f"the network's output for example {index} is not finite")

    def __reduce__(self) -> tuple[type["NonFinitePrediction"], tuple[int]]:
        return NonFinitePrediction, (self.index,)


@dataclass(frozen=True)
class Prediction:
    """A batch of B predictions with K outputs.

    mean (B, K) float32: network outputs (logits before any temperature, or regression means); variance (B, K)
    float32: diagonal of J Sigma J^T; score, p_value (B,) and rejected (B,) bool: the out-of-distribution
    decision. Classification only: probabilities and map_probabilities (B, K), entropies total, aleatoric and
    epistemic (B,) in nats. Regression only: std (B, K), sqrt(variance + sigma_noise^2). out_of_range (B,) bool, where
    the bundle says what inputs to expect: whether the example holds values far outside.
    """

    mean: Array
    variance: Array
    score: Array
    p_value: Array
    rejected: Array
    probabilities: Array | None = None
    map_probabilities: Array | None = None
    total: Array | None = None
    aleatoric: Array | None = None
    epistemic: Array | None = None
    std: Array | None = None
    out_of_range: Array | None = None

    def __len__(self) -> int:
        return len(self.mean)

    def rows(self, start: int, stop: int) -> "Prediction":
        """Examples `start` to `stop`."""
        return _slice(self, start, stop)

    @classmethod
    def concatenate(cls, parts: "Sequence[Prediction]") -> "Prediction":
        """The examples of all parts, in order."""
        return _concatenate(parts)

    @property
    def finite(self) -> Array:
        """(B,) bool: whether the network's output is finite, and with it everything else about the example."""
        return _finite(self.mean, self.variance)


@dataclass(frozen=True)
class PlainPrediction:
    """The output of the network alone, without uncertainty: mean (B, K) float32, and for a classification its
    probabilities map_probabilities (B, K); out_of_range (B,) bool as in `Prediction`."""

    mean: Array
    map_probabilities: Array | None = None
    out_of_range: Array | None = None

    def __len__(self) -> int:
        return len(self.mean)

    def rows(self, start: int, stop: int) -> "PlainPrediction":
        """Examples `start` to `stop`."""
        return _slice(self, start, stop)

    @classmethod
    def concatenate(cls, parts: "Sequence[PlainPrediction]") -> "PlainPrediction":
        """The examples of all parts, in order."""
        return _concatenate(parts)

    @property
    def finite(self) -> Array:
        """(B,) bool: whether the network's output is finite."""
        return _finite(self.mean)


def _slice(prediction: P, start: int, stop: int) -> P:
    fields = vars(prediction).items()
    return type(prediction)(**{name: values[start:stop] for name, values in fields if values is not None})


def _concatenate(parts: Sequence[P]) -> P:
    names = [name for name, values in vars(parts[0]).items() if values is not None]
    return type(parts[0])(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in names})


class Predictor:
    """Answers for one bundle. Thread-safe: nothing changes after construction.

    A pickle holds the bundle's path and digest: unpickling reads the bundle again, and refuses another digest.
    """

    def __init__(
        self,
        bundle: Bundle,
        *,
        threads: int | None = None,
        jacobian_bytes: int = DEFAULT_JACOBIAN_BYTES,
        plain_too: bool = False,
        false_reject_rate: float | None = None,
    ) -> None:
        """`threads`: those of onnxruntime, and the most that NumPy's matrix products use meanwhile (None: their own
        defaults); `jacobian_bytes` bounds one chunk's Jacobian in memory.

        `plain_too` opens the network a second time without its Jacobian, which `predict_plain` needs.

        `false_reject_rate`, in (0, 1): in place of the bundle's own; `BundleError` where the bundle has too few
        calibration scores to reject anything at that rate.
        """
        self.path = bundle.path
        self.manifest: Manifest = bundle.manifest
        self.digest, self.manifest_sha256 = bundle.digest, bundle.manifest_sha256
        self.reference = bundle.reference
        self.range_check = None if self.manifest.input.range is None else RangeCheck(self.manifest.input)
        own = RejectionRule(bundle.calibration_scores, self.manifest.calibration.false_reject_rate)
        _check_threshold(own, bundle)
        self.rule = own if false_reject_rate is None else _at_rate(own, false_reject_rate, bundle)
        row_bytes = 4 * self.manifest.row_numbers(bundle.posterior.working_size)
        self.chunk_rows = max(1, min(MAX_CHUNK_ROWS, jacobian_bytes // row_bytes))
        self.threads, self._jacobian_bytes, self._false_reject_rate = threads, jacobian_bytes, false_reject_rate
        self._posterior = None if self.manifest.gives_variance else bundle.posterior
        self._session = open_session(bundle, threads)
        self._plain_session = open_plain(bundle, threads) if plain_too else None

    @classmethod
    def load(
        cls,
        path: Path | str,
        *,
        threads: int | None = None,
        jacobian_bytes: int = DEFAULT_JACOBIAN_BYTES,
        plain_too: bool = False,
        false_reject_rate: float | None = None,
    ) -> "Predictor":
        """Read, check and open the bundle at `path`; raises `BundleError`."""
        return cls(
            read_bundle(path),
            threads=threads,
            jacobian_bytes=jacobian_bytes,
            plain_too=plain_too,
            false_reject_rate=false_reject_rate,
        )

    def __reduce__(self) -> tuple[Any, ...]:
        options = {
            "threads": self.threads,
            "jacobian_bytes": self._jacobian_bytes,
            "plain_too": self.has_plain,
            "false_reject_rate": self._false_reject_rate,
        }
        return _reopen, (str(self.path.resolve()), self.digest, options)

    def predict(self, inputs: Array) -> Prediction:
        """inputs (B, *input_shape), B >= 1 -> Prediction; raises `ValueError` for a wrong shape.

        An example for which the network's output is not finite is rejected whatever the threshold, with an infinite
        score; its other values are the network's. `Prediction.finite` marks such examples, `check_finite` raises for
        them.
        """
        inputs = self._check_inputs(inputs)
        mean, variance = self._in_chunks(inputs)
        with np.errstate(invalid="ignore", over="ignore"):
            return decide(mean, variance, self.manifest, self.rule, self._outside(inputs))

    def predict_plain(self, inputs: Array) -> PlainPrediction:
        """Run the network alone: one forward pass an example, no Jacobian. As with `predict`, rows may be infinite.

        Needs `plain_too`; raises `RuntimeError` without.
        """
        inputs = self._check_inputs(inputs)
        mean = self.mean(inputs)
        outside = self._outside(inputs)
        if self.manifest.sigma_noise is not None:
            return PlainPrediction(mean, out_of_range=outside)
        with np.errstate(invalid="ignore", over="ignore"):
            probabilities = softmax(np.asarray(mean, np.float64) / self.manifest.temperature)
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
            self.mean_and_variance(inputs)
            if time.perf_counter() - start <= seconds:
                return False
        return True

    def mean_and_jacobian(self, inputs: Array) -> tuple[Array, Array]:
        """The exported graph alone: inputs -> mean (B, K), jacobian (B, K, S), float32; raises `NetworkError`, and
        `RuntimeError` where the graph gives the variances instead."""
        if self.manifest.gives_variance:
            raise RuntimeError("found a graph that gives the variances, expected one that gives the Jacobian")
        mean, jacobian = run(self._session, ["mean", "jacobian"], inputs)
        return mean, jacobian

    def _outside(self, inputs: Array) -> Array | None:
        return None if self.range_check is None else self.range_check.outside(inputs)

    def mean_and_variance(self, inputs: Array) -> tuple[Array, Array]:
        """The outputs and their variances alone: inputs (B, *input_shape) -> (B, K) both, float32.

        Raises `NetworkError`.
        """
        if self.manifest.gives_variance:
            mean, variance = run(self._session, ["mean", "variance"], inputs)
            return mean, variance
        assert self._posterior is not None
        mean, jacobian = self.mean_and_jacobian(inputs)
        with np.errstate(over="ignore", invalid="ignore"), matrix_threads().at_most(self.threads):
            return mean, self._posterior.variance(jacobian)

    def _in_chunks(self, inputs: Array) -> tuple[Array, Array]:
        """`mean_and_variance`, at most `chunk_rows` examples at a time."""
        if len(inputs) <= self.chunk_rows:
            return self.mean_and_variance(inputs)
        starts = range(0, len(inputs), self.chunk_rows)
        chunks = [self.mean_and_variance(inputs[start : start + self.chunk_rows]) for start in starts]
        means, variances = zip(*chunks, strict=True)
        return np.concatenate(means), np.concatenate(variances)

    def _check_inputs(self, inputs: Array) -> Array:
        spec = self.manifest.input
        inputs = np.ascontiguousarray(inputs, np.dtype(spec.dtype))
        if inputs.shape[1:] != spec.shape or not len(inputs):
            raise ValueError(f"inputs: found shape {inputs.shape}, expected (batch of at least 1, *{spec.shape})")
        return inputs


def _reopen(path: str, digest: str, options: dict[str, Any]) -> Predictor:
    """The predictor that was pickled; raises `BundleError` where the path holds another bundle now."""
    bundle = read_bundle(path)
    if bundle.digest != digest:
        problem = f"found a bundle of digest {bundle.digest}, expected the one that was pickled, {digest}"
        raise BundleError(bundle.path, problem, "load it again with Predictor.load")
    return Predictor(bundle, **options)


def check_finite(prediction: Prediction | PlainPrediction) -> None:
    """Raises `NonFinitePrediction` for the first example whose output is not finite."""
    finite = prediction.finite
    if not finite.all():
        raise NonFinitePrediction(int(np.argmin(finite)))


def decide(
    mean: Array, variance: Array, manifest: Manifest, rule: RejectionRule, out_of_range: Array | None = None
) -> Prediction:
    """From outputs and their variances to probabilities, score and decision; mean, variance (B, K)."""
    found = _uncertainties(mean, variance, manifest.sigma_noise, manifest.temperature)
    finite, score = _finite(mean, variance), found.pop("score")
    if not finite.all():
        score = np.where(finite, score, np.inf)
    return Prediction(
        mean,
        variance,
        score,
        p_value=rule.p_value(score),
        rejected=rule.rejected(score) | ~finite,  # even where the threshold is infinite
        out_of_range=out_of_range,
        **found,
    )


def decided_by(rule: RejectionRule, prediction: Prediction) -> Prediction:
    """The same prediction with the decisions of another rule over the same calibration scores."""
    return replace(prediction, rejected=rule.rejected(prediction.score) | ~prediction.finite)


def undecided_prediction(mean: Array, variance: Array, sigma_noise: float | None, temperature: float) -> Prediction:
    """Everything about a prediction but the decision: p-values are 1 and nothing is rejected.

    `sigma_noise` None means classification.
    """
    found = _uncertainties(mean, variance, sigma_noise, temperature)
    return Prediction(mean, variance, p_value=np.ones(len(mean)), rejected=np.zeros(len(mean), bool), **found)


def _uncertainties(mean: Array, variance: Array, sigma_noise: float | None, temperature: float) -> dict[str, Array]:
    """The score, and the fields of a `Prediction` that only its task has."""
    if sigma_noise is not None:
        return {"score": regression_score(variance), "std": predictive_std(variance, sigma_noise)}
    probabilities = class_probabilities(mean, variance, temperature)
    total, aleatoric, epistemic = entropy_parts(probabilities)
    return {
        "score": total,
        "probabilities": probabilities[0],
        "map_probabilities": probabilities[1],
        "total": total,
        "aleatoric": aleatoric,
        "epistemic": epistemic,
    }


def _finite(*outputs: Array) -> Array:
    """(B,) bool: whether all of an example's outputs, (B, K) each, are finite."""
    usable = np.isfinite(outputs[0])
    for other in outputs[1:]:
        usable &= np.isfinite(other)
    return np.asarray(usable.all(axis=1))


def _at_rate(rule: RejectionRule, rate: float, bundle: Bundle) -> RejectionRule:
    if not rule.least_rate <= rate < 1:
        found = f"false_reject_rate: found {rate:g} for a bundle with {len(rule.scores)} calibration scores"
        raise BundleError(
            bundle.path, f"{found}, expected {rule.least_rate:.3g} to 1", "give another rate, or fit anew"
        )
    return rule.at(rate)


def _check_threshold(rule: RejectionRule, bundle: Bundle) -> None:
    stated, found = bundle.manifest.calibration.threshold, rule.threshold
    if not math.isclose(stated, found, rel_tol=1e-9, abs_tol=1e-12):
        problem = f"calibration.threshold: found {stated}, the calibration scores give {found}"
        raise BundleError(bundle.path / MANIFEST, problem)
