"""A graph that fails when it is computed: refused where two examples show it, and a 503 with a reason where not."""

import logging
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from demur.service.bundle import MODEL
from demur.service.inference.graph import NetworkFailed
from demur.service.inference.predictor import Predictor
from tests.support.bundles import Synthetic
from tests.support.client import Client, problem, serving
from tests.support.tamper import put, refusal

ZERO, BAD, MISSHAPEN = [0.0] * 4, [7.0, 0.0, 0.0, 0.0], [3.0, 0.0, 0.0, 0.0]


def capricious(folder: Path, offset: int = 0) -> Path:
    """The mean is cut anew into rows of 3 + the sum of all inputs + `offset` numbers: what does not fit fails."""
    model = onnx.load_from_string((folder / MODEL).read_bytes())
    nodes = model.graph.node
    (add,) = (node for node in nodes if node.output[0] == "mean")
    add.output[0] = "whole"
    constants = {"three": np.array([3 + offset], np.int64), "minus": np.array([-1], np.int64)}
    nodes.extend(
        [
            helper.make_node("ReduceSum", ["inputs"], ["sum"], keepdims=0),
            helper.make_node("Cast", ["sum"], ["more"], to=TensorProto.INT64),
            helper.make_node("Add", ["more", "three"], ["width"]),
            helper.make_node("Concat", ["minus", "width"], ["shape"], axis=0),
            helper.make_node("Reshape", ["whole", "shape"], ["mean"]),
        ]
    )
    model.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in constants.items())
    put(folder, MODEL, model.SerializeToString())
    return folder


@pytest.mark.parametrize("offset", [4, 3])
def test_what_two_examples_show_is_refused(folder: Path, offset: int) -> None:
    capricious(folder, offset)
    refusal(
        folder, MODEL, {4: "onnxruntime cannot run it", 3: "found the shape (1, 6) of 'mean', expected (2, 3)"}[offset]
    )


@pytest.mark.parametrize("rows", [[BAD], [MISSHAPEN, ZERO]])
def test_later_it_is_the_bundles_fault(folder: Path, rows: list[list[float]]) -> None:
    predictor = Predictor.load(capricious(folder))
    assert len(predictor.predict(np.array([ZERO], np.float32))) == 1
    with pytest.raises(NetworkFailed, match=MODEL):
        predictor.predict(np.array(rows, np.float32))


def failures(client: Client, code: str) -> float:
    text = client.get("/metrics").text
    return sum(
        float(line.split()[-1]) for line in text.splitlines() if f'demur_errors_total{{reason="{code}"}}' in line
    )


def test_the_client_gets_a_503_that_is_counted_and_logged_in_one_line(
    classification: Synthetic, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with serving(Predictor.load(capricious(folder))) as client, caplog.at_level(logging.ERROR):
        assert client.predict({"inputs": [ZERO]}).status_code == 200
        detail = problem(client.predict({"inputs": [BAD]}), 503, "network_failed").detail
        assert str(folder) not in detail
        assert "Reshape" not in detail
        tensor = {"name": "inputs", "shape": [1, 4], "datatype": "FP32", "data": BAD}
        answer = client.request("POST", "/v2/models/synthetic/infer", json={"inputs": [tensor]})
        assert (answer.status_code, set(answer.json())) == (503, {"error"})
        assert failures(client, "network_failed") == 2
        assert failures(client, "internal") == 0
        assert client.predict({"inputs": [ZERO]}).status_code == 200
    lines = [record.getMessage() for record in caplog.records if str(folder / MODEL) in record.getMessage()]
    assert len(lines) == 2
    assert all(line.isprintable() for line in lines)
