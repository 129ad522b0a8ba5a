"""Compare a standalone model with the predictor of its bundle before it is published."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from demur.service.bundle import InputSpec
from demur.service.inference.graph import NetworkError
from demur.service.inference.onnx_runtime import onnxruntime
from demur.service.inference.predictor import Prediction, Predictor
from demur.service.maths.scores import Scoring
from demur.service.maths.surprise import LargestSurprise

from .errors import StandaloneError

Array = npt.NDArray[Any]
TOLERANCE = 1e-5
TINY = 1e-12  # an entropy near 0 has no digits left
EXAMPLES = 3


def verify_standalone(model: bytes, predictor: Predictor) -> None:
    """Raises `StandaloneError` where a value differs from the predictor's by more than 1e-5, relative to the
    largest of its kind in the batch, or a decision for another reason.

    The examples are drawn from the range of the fit where the bundle has it, and predicted in one batch and alone.
    """
    session = open_model(model)
    inputs = example_inputs(predictor)
    for batch in (inputs, inputs[:1]):
        found = run_standalone(session, batch)
        for problem in differences(found, predictor.predict(batch), predictor):
            raise StandaloneError(f"{predictor.path}: {problem}; nothing was written: please report this bundle")


def open_model(model: bytes) -> onnxruntime.InferenceSession:
    """The model in onnxruntime; `StandaloneError` where it cannot be opened."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # errors are raised
    try:
        return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime raises a family of unrelated exceptions
        raise StandaloneError(f"onnxruntime cannot open the new model: {error!s:.300}") from error


def run_standalone(session: onnxruntime.InferenceSession, inputs: Array) -> dict[str, Array]:
    """Every output for inputs (B, *input_shape), by name; `StandaloneError` where it cannot be run."""
    names = [output.name for output in session.get_outputs()]
    try:
        found = session.run(names, {"inputs": inputs})
    except Exception as error:  # onnxruntime raises a family of unrelated exceptions
        raise StandaloneError(f"onnxruntime cannot run the new model: {error!s:.300}") from error
    return dict(zip(names, found, strict=True))


def example_inputs(predictor: Predictor) -> Array:
    """(3, *input_shape) that the network takes: drawn with a fixed seed from the range of each column or channel, or
    whole numbers of that range where it looks values up; zeros where no range is known, or nothing else is taken."""
    spec = predictor.manifest.input
    zeros = np.zeros((EXAMPLES, *spec.shape), spec.dtype)
    each = ((-1.0,), (1.0,)) if spec.range is None else (spec.range.low, spec.range.high)
    low, high = (_by_first_axis(numbers, spec) for numbers in each)
    drawn = np.random.default_rng(0).uniform(low, high, zeros.shape).astype(np.float32)
    possible = (each.astype(spec.dtype) for each in (drawn, np.floor(drawn), zeros, zeros + 1))
    return next((inputs for inputs in possible if _takes(predictor, inputs)), zeros)


def _by_first_axis(numbers: Sequence[float], spec: InputSpec) -> Array:
    """One number for all entries, or one for each place on the first axis, beside (B, *input_shape)."""
    return np.reshape(numbers, (-1,) + (1,) * (len(spec.shape) - 1))


def _takes(predictor: Predictor, inputs: Array) -> bool:
    try:
        predictor.predict(inputs)
    except NetworkError:
        return False
    return True


def differences(found: dict[str, Array], expected: Prediction, predictor: Predictor) -> Iterator[str]:
    """What differs, one sentence each.

    A p-value counts calibration scores: it must lie between those of scores larger and smaller by the tolerance. A
    surprise may also differ by what its parts do (`_steepness`).
    """
    steepness = _steepness(predictor.decision.predictive.score, expected.score)
    for name in (name for name in found if name not in ("p_value", "rejected")):
        wanted = np.asarray(getattr(expected, name), np.float64)
        atol = TINY + TOLERANCE * np.abs(wanted[np.isfinite(wanted)]).max(initial=0.0)
        atol += steepness if name == "score" else 0.0
        if not np.allclose(found[name], wanted, rtol=TOLERANCE, atol=atol, equal_nan=True):
            yield f"{name}: found {found[name]!s:.200}, expected {wanted!s:.200} up to {TOLERANCE:g} (relative)"
    slack = np.where(np.isfinite(expected.score), TOLERANCE * np.abs(expected.score) + TINY + steepness, 0.0)
    least, most = (predictor.decision.pooled.p_value(expected.score + sign * slack) for sign in (1, -1))
    p = found["p_value"]
    if not ((least <= p) & (p <= most)).all():
        yield f"p_value: found {p}, expected {expected.p_value}"
    if not (found["rejected"] == ((p <= predictor.decision.pooled.false_reject_rate) | ~expected.finite)).all():
        yield f"rejected: found {found['rejected']}, expected {expected.rejected}"


def _steepness(scoring: Scoring, scores: Array) -> float:
    """How much a largest surprise may differ where its parts differ by the tolerance; 0 for a single score.

    How surprising a value is rises by a step between two held-out values, however close they are: where few examples
    are held out, a rounding of the part is a thousand times as large in the whole.
    """
    if not isinstance(scoring, LargestSurprise):
        return 0.0
    reached = scores[np.isfinite(scores)]
    most = 0.0
    for part in scoring.components:
        known = part.distribution
        values = np.interp(reached, known.surprise, known.values)
        step = TOLERANCE * np.abs(values)
        rise = known.surprise_at(values + step) - known.surprise_at(values - step)
        most = max(most, float(rise.max(initial=0.0)))
    return most
