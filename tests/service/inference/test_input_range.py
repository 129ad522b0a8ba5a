"""Inputs far outside the values that a network was fitted on are named in the answer and counted, never refused."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from demur.service.bundle import InputRange, InputSpec
from demur.service.inference.input_range import MAX_NAMED, RangeCheck
from demur.service.inference.predictor import Predictor
from demur.service.schemas import PredictResponse
from tests.support.bundles import FEATURE_SPEC, IMAGE_SPEC, write_linear
from tests.support.client import Client, serving
from tests.support.metrics import metric

UNIT = InputRange((0.0,), (1.0,))


def check_of(low: tuple[float, ...], high: tuple[float, ...], shape: tuple[int, ...]) -> RangeCheck:
    return RangeCheck(InputSpec(shape=shape, range=InputRange(low, high)))


@pytest.mark.parametrize(
    ("value", "outside"), [(0.5, False), (1.9, False), (-0.9, False), (2.1, True), (-1.1, True), (255.0, True)]
)
def test_far_is_beyond_the_range_by_more_than_its_width(value: float, outside: bool) -> None:
    inputs = np.full((3, 1, 4, 5), 0.5, np.float32)
    inputs[1, 0, 2, 2] = value
    assert check_of((0.0,), (1.0,), (1, 4, 5)).outside(inputs).tolist() == [False, outside, False]


def test_each_feature_has_a_range_of_its_own() -> None:
    check = check_of((0.0, 0.0, 5.0), (1.0, 1000.0, 5.0), (3,))
    inputs = np.array([[0.5, 500, 5], [500, 500, 5], [0.5, 1900, 5], [0.5, 0, 900], [0.5, 0, 1100]], np.float32)
    assert check.outside(inputs).tolist() == [False, True, False, False, True]


def test_each_channel_has_a_range_of_its_own() -> None:
    check = check_of((0.0, 0.0), (1.0, 10.0), (2, 2, 2))
    inputs = np.zeros((3, 2, 2, 2), np.float32)
    inputs[1, 0, 1, 1] = inputs[2, 1, 1, 1] = 15
    assert check.outside(inputs).tolist() == [False, True, False]


def test_nothing_but_constants_was_met() -> None:
    check = check_of((0.0,), (0.0,), (2,))
    assert check.outside(np.array([[0, 0.5], [0, 2]], np.float32)).tolist() == [False, True]


def test_random_batches_by_counting() -> None:
    rng = np.random.default_rng(0)
    low, high = np.array([-1.0, 0.0, 10.0, 3.0]), np.array([1.0, 0.1, 90.0, 3.5])
    check = check_of(tuple(low), tuple(high), (4,))
    inputs = (low + (high - low) * rng.normal(0.5, 1.0, (500, 4))).astype(np.float32)
    expected = [bool(np.any((x > 2 * high - low) | (x < 2 * low - high))) for x in inputs]
    assert check.outside(inputs).tolist() == expected
    assert 50 < sum(expected) < 450


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    spec = replace(IMAGE_SPEC, range=UNIT)
    path = write_linear(tmp_path_factory.mktemp("range") / "a", outputs=3, spec=spec).path
    with serving(Predictor.load(path)) as client:
        yield client


def ask(client: Client, inputs: Any) -> PredictResponse:
    response = client.predict({"inputs": np.asarray(inputs).tolist()})
    assert response.status_code == 200, response.text
    return PredictResponse.model_validate_json(response.content)


def counted(client: Client) -> float:
    return metric(client.get("/metrics").text, "demur_inputs_out_of_range_total")


def test_pixels_that_were_not_scaled_are_named_and_counted(pictures: Client) -> None:
    before = counted(pictures)
    inputs = np.random.default_rng(0).random((5, 1, 4, 5))
    assert ask(pictures, inputs).warnings == []
    assert ask(pictures, 1.5 * inputs).warnings == []  # a brighter picture
    inputs[2] *= 255
    (warning,) = ask(pictures, inputs).warnings
    most = np.float32(inputs).max()
    assert warning == (
        f"inputs[2]: found the value {most:.4g}, but the network was fitted on values from 0 to 1: "
        "are the inputs scaled as they were for training?"
    )
    assert counted(pictures) == before + 1


def test_a_few_are_named_and_the_others_counted(pictures: Client) -> None:
    before = counted(pictures)
    found = ask(pictures, np.full((60, 1, 4, 5), 255.0)).warnings
    assert len(found) == MAX_NAMED + 1
    assert found[-1] == f"inputs: {60 - MAX_NAMED} more such examples"
    assert counted(pictures) == before + 60


def test_the_open_protocol_says_it_among_its_parameters(pictures: Client) -> None:
    def infer(value: float) -> Any:
        tensor = {"name": "inputs", "shape": [1, 1, 4, 5], "datatype": "FP32", "data": [value] * 20}
        response = pictures.request("POST", "/v2/models/synthetic/infer", json={"inputs": [tensor]})
        assert response.status_code == 200, response.text
        return response.json().get("parameters")

    assert infer(0.5) is None
    parameters = infer(-77.5)
    assert parameters["warnings"].startswith(
        "inputs[0]: found the value -77.5, but the network was fitted on values from 0"
    )


def test_a_feature_is_called_by_its_name_and_a_regression_warns_too(tmp_path: Path) -> None:
    spec = replace(FEATURE_SPEC, range=InputRange((0.0,) * 4, (1.0, 1.0, 10.0, 1.0)))
    path = write_linear(tmp_path / "a", outputs=2, spec=spec, regression=True).path
    with serving(Predictor.load(path)) as client:
        (warning,) = ask(client, [[0.5, 0.5, -20.0, 0.5]]).warnings
    assert warning.startswith(
        "inputs[0], feature 'c': found the value -20, but the network was fitted on values from 0"
    )


def test_a_bundle_without_a_range_never_warns(client: Client) -> None:
    assert ask(client, [[1e6] * 4]).warnings == []


def test_the_card_shows_the_range(pictures: Client) -> None:
    assert json.loads(pictures.get("/model").content)["input"]["range"] == {"low": [0.0], "high": [1.0]}


def test_nan_is_outside() -> None:
    check = RangeCheck(InputSpec(shape=(2,), range=UNIT))
    inputs = np.array([[0.5, np.nan], [0.5, 0.5], [np.nan, np.nan]], np.float32)
    assert check.outside(inputs).tolist() == [True, False, True]
