"""service/inference/predictor.py: the whole prediction against NumPy in float64."""

import dataclasses
import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from demur.service.inference.graph import CHUNK_BYTES
from demur.service.inference.predictor import NonFinitePrediction, Prediction, Predictor, check_finite
from demur.service.maths.outcomes import ClassOutcomes
from tests import reference
from tests.support.bundles import FEATURE_SPEC, Synthetic, in_chunks, rewrite, write_linear
from tests.support.manifests import slow_threshold

Array = npt.NDArray[Any]


def draw_inputs(synthetic: Synthetic, rows: int, seed: int = 0, scale: float = 1.0) -> Array:
    shape = (rows, *synthetic.manifest.input.shape)
    return np.random.default_rng(seed).normal(scale=scale, size=shape).astype(np.float32)


def slow_probabilities(scaled: Array) -> Array:
    exponentials = np.exp(scaled - scaled.max(axis=1, keepdims=True))
    probabilities: Array = exponentials / exponentials.sum(axis=1, keepdims=True)
    return probabilities


def slow_entropy(probabilities: Array) -> Array:
    return np.array([-sum(p * math.log(p) for p in row if p > 0) for row in probabilities])


def slow_p_values(score: Array, calibration: Array) -> Array:
    return np.array([(1 + sum(other >= s for other in calibration)) / (len(calibration) + 1) for s in score])


def per_example(kind: type) -> list[Any]:
    """The fields with a row for each example."""
    return [field for field in dataclasses.fields(kind) if field.name not in ("names", "multilabel")]


def assert_same(one: Prediction, other: Prediction, rtol: float = 0) -> None:
    for field in per_example(Prediction):
        first, second = getattr(one, field.name), getattr(other, field.name)
        assert (first is None) == (second is None)
        if first is not None:
            np.testing.assert_allclose(first, second, rtol=rtol, err_msg=field.name)


def rows(prediction: Prediction, start: int, stop: int) -> Prediction:
    parts = {f.name: getattr(prediction, f.name) for f in per_example(Prediction)}
    cut: dict[str, Any] = {name: None if part is None else part[start:stop] for name, part in parts.items()}
    return Prediction(**cut, names=prediction.names, multilabel=prediction.multilabel)


@pytest.mark.parametrize("scale", [0.01, 1.0, 30.0])
@pytest.mark.parametrize("name", ["classification", "images"])
def test_a_classification_is_what_numpy_says(name: str, scale: float, request: pytest.FixtureRequest) -> None:
    synthetic: Synthetic = request.getfixturevalue(name)
    inputs = draw_inputs(synthetic, 50, scale=scale)
    prediction = Predictor.load(synthetic.path).predict(inputs)
    mean, variance = synthetic.mean(inputs), synthetic.variance(inputs)
    assert prediction.mean.dtype == prediction.variance.dtype == np.float32
    np.testing.assert_allclose(prediction.mean, mean, rtol=1e-4, atol=1e-4 * scale)
    np.testing.assert_allclose(prediction.variance, variance, rtol=1e-4, atol=1e-6)
    probabilities = slow_probabilities(mean / reference.probit_divisor(variance))
    plain = slow_probabilities(mean)
    for found, expected in [
        (prediction.probabilities, probabilities),
        (prediction.map_probabilities, plain),
        (prediction.total, slow_entropy(probabilities)),
        (prediction.aleatoric, np.minimum(slow_entropy(plain), slow_entropy(probabilities))),
        (prediction.score, slow_entropy(probabilities)),
    ]:
        assert found is not None
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)
    assert prediction.std is None
    check_decision(synthetic, prediction)


@pytest.mark.parametrize("name", ["regression", "single_regression"])
def test_a_regression_is_what_numpy_says(name: str, request: pytest.FixtureRequest) -> None:
    synthetic: Synthetic = request.getfixturevalue(name)
    inputs = draw_inputs(synthetic, 50)
    prediction = Predictor.load(synthetic.path).predict(inputs)
    variance = synthetic.variance(inputs)
    np.testing.assert_allclose(prediction.mean, synthetic.mean(inputs), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(prediction.variance, variance, rtol=1e-4, atol=1e-6)
    assert prediction.std is not None
    np.testing.assert_allclose(prediction.std, np.sqrt(variance + 0.5**2), rtol=1e-4)
    np.testing.assert_allclose(prediction.score, np.sqrt(variance.mean(axis=1)), rtol=1e-4)
    assert prediction.probabilities is None
    assert prediction.total is None
    check_decision(synthetic, prediction)


def check_decision(synthetic: Synthetic, prediction: Prediction) -> None:
    expected = slow_p_values(prediction.score, synthetic.scores)
    np.testing.assert_allclose(prediction.p_value, expected)
    np.testing.assert_array_equal(
        prediction.rejected, prediction.score > slow_threshold(synthetic.scores, synthetic.alpha)
    )
    np.testing.assert_array_equal(prediction.rejected, expected <= synthetic.alpha)


def test_usual_classes_are_those_of_held_out_examples(tmp_path: Path) -> None:
    bundle = write_linear(tmp_path / "bundle", outputs=4, spec=FEATURE_SPEC).path
    decision = Predictor.load(bundle).decision
    assert isinstance(decision.outcomes, ClassOutcomes)
    predicted = np.array([2, 2, 3, 0, 3, 3])
    known = dataclasses.replace(decision.outcomes.calibration, predicted=predicted)
    found = dataclasses.replace(decision, outcomes=dataclasses.replace(decision.outcomes, calibration=known))
    assert found.usual_classes == [3, 2, 0, 1]


def test_temperature_divides_the_logits(tmp_path: Path) -> None:
    warm = write_linear(tmp_path / "warm", outputs=3, spec=FEATURE_SPEC, temperature=2.5)
    inputs = draw_inputs(warm, 20)
    prediction = Predictor.load(warm.path).predict(inputs)
    mean, variance = warm.mean(inputs), warm.variance(inputs)
    expected = slow_probabilities(mean / reference.probit_divisor(variance, 2.5))
    assert prediction.probabilities is not None
    assert prediction.map_probabilities is not None
    np.testing.assert_allclose(prediction.probabilities, expected, rtol=1e-4)
    np.testing.assert_allclose(prediction.map_probabilities, slow_probabilities(mean / 2.5), rtol=1e-4)
    np.testing.assert_allclose(prediction.mean, mean, rtol=1e-4, atol=1e-5)


def test_a_batch_is_its_examples_one_by_one(any_bundle: Synthetic) -> None:
    predictor = Predictor.load(any_bundle.path)
    inputs = draw_inputs(any_bundle, 17, seed=1)
    batched = predictor.predict(inputs)
    for i in range(len(inputs)):
        assert_same(predictor.predict(inputs[i : i + 1]), rows(batched, i, i + 1), rtol=1e-4)
        assert predictor.predict(inputs[i : i + 1]).rejected[0] == batched.rejected[i]


def test_chunks_change_nothing(any_bundle: Synthetic, tmp_path: Path) -> None:
    inputs = draw_inputs(any_bundle, 23, seed=2)
    whole = Predictor.load(any_bundle.path)
    assert whole.graph.chunk_rows > len(inputs)
    for per_chunk in (1, 4, 23):
        chunked = Predictor.load(in_chunks(any_bundle.path, tmp_path / str(per_chunk), per_chunk))
        assert chunked.graph.chunk_rows == per_chunk
        assert_same(chunked.predict(inputs), whole.predict(inputs), rtol=1e-4)


def test_an_example_larger_than_a_chunk_is_one(classification: Synthetic, tmp_path: Path) -> None:
    graph = dataclasses.replace(classification.manifest.graph, row_numbers=CHUNK_BYTES)
    manifest = dataclasses.replace(classification.manifest, graph=graph)
    path = rewrite(classification.path, tmp_path / "large", manifest=manifest)
    assert Predictor.load(path).graph.chunk_rows == 1


def test_inputs_are_cast_and_may_be_in_any_memory_order(classification: Synthetic) -> None:
    predictor = Predictor.load(classification.path)
    inputs = draw_inputs(classification, 6)
    expected = predictor.predict(inputs)
    assert_same(predictor.predict(inputs.astype(np.float64)), expected)
    assert_same(predictor.predict(np.asfortranarray(inputs)), expected)
    assert_same(predictor.predict(np.repeat(inputs, 2, axis=0)[::2]), expected)
    whole = np.arange(-4, 4).reshape(2, 4)
    assert_same(predictor.predict(whole), predictor.predict(whole.astype(np.float32)))


@pytest.mark.parametrize("shape", [(0, 4), (4,), (2, 3), (2, 4, 1), (2, 5), ()], ids=str)
def test_a_wrong_shape_is_refused(classification: Synthetic, shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"inputs: found shape .*expected \(n, .*of at least one example"):
        Predictor.load(classification.path).predict(np.zeros(shape, np.float32))


@pytest.mark.parametrize("value", [np.nan, np.inf, 3e38, 1e25])
@pytest.mark.parametrize("together", [1, 5])
def test_an_output_that_is_not_finite_is_rejected_and_leaves_the_others_alone(
    classification: Synthetic, value: float, together: int, tmp_path: Path
) -> None:
    inputs = draw_inputs(classification, 5)
    predictor = Predictor.load(in_chunks(classification.path, tmp_path / "bundle", together))
    expected = predictor.predict(inputs)
    inputs[3] = value
    found = predictor.predict(inputs)
    assert found.finite.tolist() == [True, True, True, False, True]
    assert found.rejected[3]
    assert found.score[3] == np.inf
    assert found.p_value[3] == 1 / (len(classification.scores) + 1)
    assert found.probabilities is not None
    assert expected.probabilities is not None
    for place in (0, 1, 2, 4):
        np.testing.assert_allclose(found.probabilities[place], expected.probabilities[place], rtol=1e-6)
        assert found.rejected[place] == expected.rejected[place]
    with pytest.raises(NonFinitePrediction, match="example 3 is not finite") as caught:
        check_finite(found)
    assert pickle.loads(pickle.dumps(caught.value)).index == caught.value.index == 3


def test_a_flood_is_never_one_chunk(classification: Synthetic) -> None:
    """The graph's own activations are bounded too, not only its derivatives."""
    assert Predictor.load(classification.path).graph.chunk_rows <= 64


def test_what_a_predictor_knows_of_its_bundle(classification: Synthetic) -> None:
    predictor = Predictor.load(str(classification.path))
    assert dataclasses.replace(predictor.manifest, files={}) == classification.manifest
    assert len(predictor.digest) == 64
    assert predictor.decision.pooled.threshold == slow_threshold(classification.scores, classification.alpha)
    assert predictor.decision.pooled.false_reject_rate == classification.alpha


def test_integers_go_in_as_integers(tokens: Synthetic) -> None:
    prediction = Predictor.load(tokens.path).predict(np.array([[0, 1], [4, 4]]))
    table = tokens.weight
    np.testing.assert_allclose(prediction.mean, [table[0] + table[1], 2 * table[4]], rtol=1e-6)
    np.testing.assert_allclose(prediction.variance, np.full((2, 2), 1.0**2 + 0.2**2), rtol=1e-6)
