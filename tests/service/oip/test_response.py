"""Answers, JSON and binary: only what was asked for."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from demur.service.inference.predictor import Prediction, Predictor
from demur.service.oip import Encoded, InferRequest, RequestError, encode
from demur.service.oip.datatypes import NUMPY
from demur.service.oip.outputs import Answer, check_outputs, chosen, outputs_of
from demur.service.oip.request import Wanted
from demur.service.oip.response import Head
from demur.service.oip.tensor import Tensor
from tests.support.bundles import Synthetic

Array = npt.NDArray[Any]
TENSOR = Tensor("inputs[0]", "inputs", "FP32", (1,), [1.0], b"", 0, 0)
NAMES = ["probabilities", "map_probabilities", "mean", "variance", "score", "p_value", "rejected"]
REGRESSION_NAMES = NAMES[2:]


def asking(*names: str, binary: bool = False) -> InferRequest:
    outputs = tuple(Wanted(name, binary, f"outputs[{i}].name") for i, name in enumerate(names)) or None
    return InferRequest(None, (TENSOR,), outputs, binary, None)


def predict(synthetic: Synthetic, rows: int = 2) -> Prediction:
    inputs = np.random.default_rng(0).normal(size=(rows, *synthetic.manifest.input.shape)).astype(np.float32)
    return Predictor.load(synthetic.path).predict(inputs)


def answer(synthetic: Synthetic, request: InferRequest, prediction: Any, head: Head | None = None) -> Encoded:
    predictor = Predictor.load(synthetic.path)
    known = outputs_of(predictor.manifest)
    check_outputs(request, known)
    tensors = chosen(request, known, Answer(prediction, predictor.decision))
    return encode(head or Head("m", "1", None), tensors, known)


def read(encoded: Encoded) -> tuple[dict[str, Any], dict[str, Array]]:
    """The JSON, and each output as an array."""
    length = len(encoded.body) if encoded.header_length is None else encoded.header_length
    document, at, arrays = json.loads(encoded.body[:length]), length, {}
    for output in document["outputs"]:
        dtype = NUMPY[output["datatype"]]
        if "data" in output:
            flat = np.array(output["data"], dtype)
        else:
            size = output["parameters"]["binary_data_size"]
            flat = np.frombuffer(encoded.body[at : at + size], dtype)
            at += size
        arrays[output["name"]] = flat.reshape(output["shape"])
    assert at == len(encoded.body)
    return document, arrays


@pytest.mark.parametrize("binary", [False, True])
def test_all_outputs(classification: Synthetic, binary: bool) -> None:
    prediction = predict(classification)
    encoded = answer(classification, asking(binary=binary), prediction)
    document, arrays = read(encoded)
    assert (encoded.header_length is not None) is binary
    assert list(arrays) == NAMES
    for name, found in arrays.items():
        np.testing.assert_array_equal(found, np.asarray(getattr(prediction, name), found.dtype))
    assert document["model_name"] == "m"
    assert "parameters" not in document
    assert "id" not in document


def test_a_regression_has_no_probabilities(regression: Synthetic) -> None:
    _, arrays = read(answer(regression, asking(binary=True), predict(regression)))
    assert list(arrays) == REGRESSION_NAMES
    assert arrays["mean"].shape == (2, 2)
    assert arrays["score"].shape == (2,)
    with pytest.raises(RequestError, match="'probabilities'"):
        answer(regression, asking("mean", "probabilities"), predict(regression))


def test_only_what_was_asked_for_in_that_order(classification: Synthetic) -> None:
    wanted = (Wanted("score", True, ""), Wanted("mean", False, ""), Wanted("rejected", True, ""))
    request = InferRequest("x", (TENSOR,), wanted, False, None)
    head = Head("m", "1", 'an "id" \u00e9')
    document, arrays = read(answer(classification, request, predict(classification), head))
    assert list(arrays) == ["score", "mean", "rejected"]
    assert ["data" in output for output in document["outputs"]] == [False, True, False]
    assert document["id"] == 'an "id" \u00e9'


def test_sets_are_of_a_classification_and_intervals_of_a_regression(
    classification: Synthetic, regression: Synthetic
) -> None:
    with pytest.raises(RequestError, match="'prediction_set'"):
        answer(regression, asking("prediction_set"), predict(regression))
    with pytest.raises(RequestError, match="'interval_low'"):
        answer(classification, asking("interval_low"), predict(classification))
    prediction = predict(regression)
    _, arrays = read(answer(regression, asking("interval_high", "interval_low", binary=True), prediction))
    assert list(arrays) == ["interval_high", "interval_low"]
    decision = Predictor.load(regression.path).decision
    assert decision.interval_kind == "conformal"
    low, high = decision.intervals(prediction)
    np.testing.assert_array_equal(arrays["interval_low"], low)
    np.testing.assert_array_equal(arrays["interval_high"], high)


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("odd", [np.nan, np.inf, 1e300])
def test_what_is_not_finite_is_encoded_all_the_same(classification: Synthetic, odd: float, binary: bool) -> None:
    mean = np.array([[odd, 0.0, 1.0]])
    encoded = answer(classification, asking("mean", binary=binary), replace(predict(classification, 1), mean=mean))
    document, arrays = read(encoded)
    assert not np.isfinite(arrays["mean"][0, 0])
    if not binary:
        assert document["outputs"][0]["data"] == [None, 0.0, 1.0]


def test_the_binary_answer_of_another_model_or_size_has_its_own_json(classification: Synthetic) -> None:
    for name, rows in (("m", 2), ("m", 3), ("n", 3), ("m", 2)):
        prediction = predict(classification, rows)
        document, arrays = read(answer(classification, asking(binary=True), prediction, Head(name, "1", None)))
        assert document["model_name"] == name
        assert arrays["mean"].shape == prediction.mean.shape
