"""The false-reject rate at serving time: the operator's for every model, and a request's own within bounds."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from demur.service.bundle import BundleError
from demur.service.inference.policy import Policy
from demur.service.inference.predictor import Predictor
from demur.service.maths.rejection import RejectionRule
from demur.service.models.rates import RateBounds, RateError
from demur.service.settings import Settings
from tests.support.bundles import Synthetic
from tests.support.client import Client, problem, serving
from tests.support.decisions import decision_of
from tests.support.v2 import GOOD, INFER, binary, post, refused

BOUNDS = (0.03, 0.6)
FIELDS = ("score", "p_value", "threshold", "false_reject_rate", "rejected")
CHOOSING = Settings(requested_rates=BOUNDS)


def rows(count: int) -> list[list[float]]:
    return np.random.default_rng(0).normal(size=(count, 4)).tolist()


def decisions(client: Client, count: int = 64, query: str = "") -> list[dict[str, Any]]:
    asked = f"/predict?fields={','.join(FIELDS)}{query}"
    response = client.request("POST", asked, content=json.dumps({"inputs": rows(count)}).encode())
    assert response.status_code == 200, response.text
    found: list[dict[str, Any]] = response.json()["predictions"]
    return found


def test_the_operators_rate_decides_without_a_new_fit(classification: Synthetic) -> None:
    for rate in (0.03, 0.3, 0.7):
        predictor = Predictor.load(classification.path, policy=Policy(false_reject_rate=rate))
        with serving(predictor) as client:
            found = decisions(client)
            assert all(one["false_reject_rate"] == rate for one in found)
            assert all(one["rejected"] is (one["p_value"] <= rate) for one in found)
            assert all(one["rejected"] is (one["score"] > one["threshold"]) for one in found)
            metrics = client.get("/metrics").text
            assert f"{rate}\n" in metrics.partition("\ndemur_false_reject_rate{")[2]


def test_scores_and_p_values_do_not_depend_on_the_rate(classification: Synthetic) -> None:
    inputs = np.asarray(rows(8), np.float32)
    one, other = (
        Predictor.load(classification.path, policy=Policy(false_reject_rate=rate)).predict(inputs)
        for rate in (0.05, 0.5)
    )
    np.testing.assert_array_equal(one.score, other.score)
    np.testing.assert_array_equal(one.p_value, other.p_value)
    assert (one.rejected <= other.rejected).all()


def test_a_rate_that_the_bundle_cannot_keep_is_refused(classification: Synthetic) -> None:
    least = 1 / (len(classification.scores) + 1)
    Predictor.load(classification.path, policy=Policy(false_reject_rate=least))
    with pytest.raises(
        BundleError, match=rf"false_reject_rate: found .* for a bundle with {len(classification.scores)}"
    ):
        Predictor.load(classification.path, policy=Policy(false_reject_rate=least / 2))


def test_a_request_chooses_within_the_bounds(classification: Synthetic) -> None:
    with serving(Predictor.load(classification.path), CHOOSING) as client:
        own = decisions(client)
        for rate in (*BOUNDS, 0.25):
            found = decisions(client, query=f"&false_reject_rate={rate}")
            assert [one["p_value"] for one in found] == [one["p_value"] for one in own]
            assert all(one["false_reject_rate"] == rate for one in found)
            assert all(one["rejected"] is (one["p_value"] <= rate) for one in found)
            assert any(one["rejected"] for one in found) or rate == BOUNDS[0]
        assert decisions(client) == own


def test_the_metrics_count_by_the_models_own_rate(classification: Synthetic) -> None:
    """A strict client is no change of the inputs."""
    with serving(Predictor.load(classification.path), CHOOSING) as client:
        own = sum(one["rejected"] for one in decisions(client))
        before = rejections(client)
        assert sum(one["rejected"] for one in decisions(client, query=f"&false_reject_rate={BOUNDS[1]}")) > own
        assert rejections(client) == before + own


def rejections(client: Client) -> float:
    lines = client.get("/metrics").text.splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith("demur_rejections_total{"))


@pytest.mark.parametrize("text", ["0", "1", "-0.1", "nan", "inf", "", "many"])
def test_what_is_no_rate_is_refused(classification: Synthetic, text: str) -> None:
    with serving(Predictor.load(classification.path), CHOOSING) as client:
        response = client.request("POST", f"/predict?false_reject_rate={text}", content=b'{"inputs": [1, 2, 3, 4]}')
        assert "expected one number between 0 and 1" in problem(response, 422, "false_reject_rate").detail


@pytest.mark.parametrize(
    ("settings", "rate", "expected"),
    [(CHOOSING, 0.01, "0.03 to 0.6"), (CHOOSING, 0.61, "0.03 to 0.6"), (Settings(), 0.1, "none: this service sets")],
)
def test_the_operator_has_the_last_word(
    classification: Synthetic, settings: Settings, rate: float, expected: str
) -> None:
    with serving(Predictor.load(classification.path), settings) as client:
        response = client.request("POST", f"/predict?false_reject_rate={rate}", content=b'{"inputs": [1, 2, 3, 4]}')
        found = problem(response, 422, "false_reject_rate")
        assert f"false_reject_rate: found {rate:g}, expected {expected}" in found.detail
        assert f"expected {expected}" in refused(post(client, GOOD | {"parameters": {"false_reject_rate": rate}}), 422)
        assert 'demur_errors_total{reason="false_reject_rate"} 2.0' in client.get("/metrics").text


def test_a_rate_below_what_a_model_can_keep_names_the_least(classification: Synthetic) -> None:
    own, bounds = decision_of(classification.manifest, RejectionRule(np.arange(9.0), 0.2)), RateBounds((0.01, 0.5))
    assert bounds.decision(own, 0.1).rule.false_reject_rate == 0.1
    with pytest.raises(RateError, match=r"expected at least 0\.1: the model has 9 calibration scores"):
        bounds.decision(own, 0.05)


def test_v2_takes_it_as_a_parameter(classification: Synthetic) -> None:
    with serving(Predictor.load(classification.path), CHOOSING) as client:
        for rate in (*BOUNDS, None):
            parameters = {} if rate is None else {"parameters": {"false_reject_rate": rate}}
            body, headers = binary(np.asarray(rows(32), np.float32), **parameters)
            for response in (
                client.request("POST", INFER, content=body, headers=headers),
                post(client, json.loads(json.dumps(of_rows(rows(32)) | parameters))),
            ):
                outputs = {one["name"]: np.array(one["data"]) for one in response.json()["outputs"]}
                used = classification.alpha if rate is None else rate
                np.testing.assert_array_equal(outputs["rejected"].astype(bool), outputs["p_value"] <= used)
        assert "expected" in refused(post(client, GOOD | {"parameters": {"false_reject_rate": "0.1"}}), 422)


def of_rows(values: list[list[float]]) -> dict[str, Any]:
    return {"inputs": [{"name": "inputs", "shape": [len(values), 4], "datatype": "FP32", "data": values}]}


def test_a_pickle_keeps_the_rate(classification: Synthetic, tmp_path: Path) -> None:
    import pickle

    predictor = Predictor.load(classification.path, policy=Policy(false_reject_rate=0.3))
    (tmp_path / "kept").write_bytes(pickle.dumps(predictor))
    assert pickle.loads((tmp_path / "kept").read_bytes()).decision.rule.false_reject_rate == 0.3


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("trial=yes", "trial: found 'yes', expected 'true', or no such parameter"),
        ("false_reject_rat=0.1", "(did you mean 'false_reject_rate'?)"),
        ("x=1", "expected false_reject_rate, detail, fields, top, trial or none"),
    ],
)
def test_other_query_parameters_are_refused(classification: Synthetic, query: str, words: str) -> None:
    with serving(Predictor.load(classification.path)) as client:
        response = client.request("POST", f"/predict?{query}", content=json.dumps({"inputs": rows(1)}).encode())
    found = problem(response, 422, "field")
    assert words in found.detail
    assert found.field == query.split("=", maxsplit=1)[0]


def test_a_trial_is_answered_and_not_counted(classification: Synthetic) -> None:
    body = {"inputs": rows(3)}
    with serving(Predictor.load(classification.path)) as client:
        trial, usual = client.predict(body, "?trial=true").json(), client.predict(body).json()
        assert trial["predictions"] == usual["predictions"]
        counted = [line for line in client.get("/metrics").text.splitlines() if line.startswith("demur_predictions_")]
    assert sum(float(line.rsplit(" ", 1)[1]) for line in counted if "_total" in line) == 3
