"""POST /feedback of a running service: labels are matched with answers by their ids, counted once, and tested."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from probity.service.inference.deciding import Policy
from probity.service.inference.predictor import Predictor
from probity.service.security.api_keys import new_key
from probity.service.settings import Settings
from tests.support.bundles import Synthetic
from tests.support.client import Client, problem, serving
from tests.support.outcomes import keeping_outcomes
from tests.support.server import Server, run_to_end, running
from tests.support.v2 import GOOD, post

Json = dict[str, Any]
ROWS = [[0.5, -1.0, 2.0, 0.25], [1.0, 2.0, 3.0, 4.0], [9.0, 9.0, -9.0, 9.0]]
OTHERS = {"class 0": "class 1", "class 1": "class 2", "class 2": "class 0"}


@pytest.fixture
def watched(classification: Synthetic, tmp_path: Path) -> Iterator[Client]:
    with serving(Predictor.load(classification.path), Settings(feedback_file=tmp_path / "feedback.db")) as client:
        yield client


def predict(client: Client, rows: list[list[float]] = ROWS, **headers: str) -> Json:
    response = client.predict({"inputs": rows}, **headers)
    assert response.status_code == 200, response.text
    found: Json = response.json()
    return found


def send(client: Client, **body: Any) -> Json:
    response = client.request("POST", "/feedback", content=json.dumps(body))
    assert response.status_code == 200, response.text
    found: Json = response.json()
    return found


def refused(client: Client, status: int, code: str, **body: Any) -> str:
    return problem(client.request("POST", "/feedback", content=json.dumps(body)), status, code).detail


def samples(client: Client, name: str) -> dict[str, float]:
    """Series -> value, of one metric, without those at zero."""
    lines = [line.rpartition(" ") for line in client.get("/metrics").text.splitlines() if line.startswith(name)]
    return {series.removeprefix(name): float(value) for series, _, value in lines if float(value)}


def test_labels_are_counted_by_what_was_decided(watched: Client) -> None:
    answer = predict(watched)
    labels = [one["label"] for one in answer["predictions"]]
    labels[1] = OTHERS[labels[1]]
    found = send(watched, id=answer["id"], labels=labels)
    assert found == {
        "id": answer["id"],
        "model": answer["model"],
        "examples": 3,
        "counted": 3,
        "already_labelled": 0,
    }
    decided = ["rejected" if one["ood"]["rejected"] else "accepted" for one in answer["predictions"]]
    model = f'model="{answer["model"]["name"]}",version="{answer["model"]["version"]}"'
    expected, right = dict[str, float](), dict[str, float]()
    for decision, correct in zip(decided, (1, 0, 1), strict=True):
        series = f'{{decision="{decision}",{model}}}'
        expected[series] = expected.get(series, 0) + 1
        right[series] = right.get(series, 0) + correct
    assert samples(watched, "probity_feedback_examples_total") == expected
    assert samples(watched, "probity_feedback_correct_total") == {k: v for k, v in right.items() if v}
    confidences = samples(watched, "probity_feedback_bin_confidence_total")
    assert sum(confidences.values()) == pytest.approx(sum(one["probability"] for one in answer["predictions"]))
    assert sum(samples(watched, "probity_feedback_bin_correct_total").values()) == 2


def test_the_first_label_stays_and_null_is_not_known_yet(watched: Client) -> None:
    answer = predict(watched, x_request_id="mine")
    labels = [one["label"] for one in answer["predictions"]]
    first = send(watched, id="mine", labels=[labels[0], None, None])
    second = send(watched, id="mine", labels=[OTHERS[labels[0]], labels[1], None])
    assert (first["counted"], first["already_labelled"]) == (1, 0)
    assert (second["counted"], second["already_labelled"]) == (1, 1)
    assert sum(samples(watched, "probity_feedback_correct_total").values()) == 2


def test_labels_of_v2_requests_too(watched: Client) -> None:
    rows = post(watched, GOOD | {"id": "theirs"}).json()["outputs"][0]["shape"][0]
    assert send(watched, id="theirs", labels=["class 0"] * rows)["counted"] == rows


def test_a_regression_counts_intervals_that_hold_the_truth(regression: Synthetic, tmp_path: Path) -> None:
    settings = Settings(feedback_file=tmp_path / "feedback.db", interval_level=0.8, intervals="gaussian")
    with serving(Predictor.load(regression.path), settings) as client:
        answer = predict(client, [row[:3] for row in ROWS])
        found = [one["interval"] for one in answer["predictions"]]
        low, high = np.array(found[0]["low"]), np.array(found[1]["high"])
        values = [low.tolist(), (high + 1).tolist(), None]
        assert send(client, id=answer["id"], values=values)["counted"] == 2
        assert sum(samples(client, "probity_feedback_correct_total").values()) == 1
        means = [np.array(one["mean"]) for one in answer["predictions"]]
        expected = np.square(means[0] - low).mean() + np.square(means[1] - high - 1).mean()
        assert sum(samples(client, "probity_feedback_squared_error_total").values()) == pytest.approx(expected)
        assert not samples(client, "probity_expected_accuracy")
        for wrong in ([1.0], [[1.0], [1.0], [1.0]], ["1", None, None], [[1e200, 1.0], None, None], [True, None, None]):
            assert "expected" in refused(client, 422, "field", id=answer["id"], values=wrong)


def test_intervals_are_expected_to_hold_what_they_hold_surely(regression: Synthetic, tmp_path: Path) -> None:
    """On average over held-out data they hold their level; given these data, less with a probability of a half."""
    path = keeping_outcomes(regression.path, tmp_path / "bundle", 100)
    settings = Settings(feedback_file=tmp_path / "feedback.db", interval_level=0.9)
    with serving(Predictor.load(path), settings) as client:
        (found,) = samples(client, "probity_expected_accuracy").values()
    drawn = np.random.default_rng(0).random((20_000, 100))
    assert found == pytest.approx(np.quantile(np.sort(drawn, axis=1)[:, 90], 0.05), abs=0.003)


def test_the_models_own_rule_decides_what_is_counted(classification: Synthetic, tmp_path: Path) -> None:
    settings = Settings(feedback_file=tmp_path / "feedback.db", requested_rates=(0.01, 0.99))
    counted = []
    for rate in ("", "?false_reject_rate=0.9"):
        with serving(Predictor.load(classification.path), settings) as client:
            body = json.dumps({"inputs": ROWS})
            answer = client.request("POST", f"/predict{rate}", content=body).json()
            send(client, id=answer["id"], labels=["class 0"] * 3)
            counted.append(samples(client, "probity_feedback_examples_total"))
    assert counted[0] == counted[1]


def test_an_id_of_several_requests_is_refused(watched: Client) -> None:
    """Unless they were answered alike, as a request that is sent again."""
    first = predict(watched, x_request_id="trace")
    predict(watched, x_request_id="trace")
    labels = [one["label"] for one in first["predictions"]]
    assert send(watched, id="trace", labels=labels)["counted"] == 3
    predict(watched, x_request_id="trace")
    assert send(watched, id="trace", labels=labels)["already_labelled"] == 3
    predict(watched, ROWS[:2], x_request_id="trace")
    assert "several requests" in refused(watched, 409, "feedback_repeated", id="trace", labels=labels[:2])


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"labels": ["class 0"] * 2}, "labels: found 2, expected 3, one for each example; null is unknown"),
        ({}, "labels: found none, expected a list of class names, one for each example of the request"),
        ({"values": [1, 2, 3]}, "values: found some for a classification model, expected labels alone"),
        ({"labels": [None] * 3, "values": [1, 2, 3]}, "values: found some for a classification model"),
        ({"labels": ["class 0", "cat", None]}, r"labels\[1\]: found 'cat', expected one of 'class 0', 'class 1'"),
        ({"labels": [0, None, None]}, r"labels\[0\]: found 0, expected one of 'class 0'"),
        ({"labels": [True, None, None]}, r"labels\[0\]: found True, expected one of 'class 0'"),
        ({"labels": [{"a": 1}, None, None]}, r"labels\[0\]: found {'a': 1}, expected"),
        ({"labels": "class 0"}, "labels: expected a list"),
        ({"label": ["class 0"]}, r"label: unknown field \(did you mean .labels.\?\)"),
    ],
)
def test_labels_that_do_not_fit_are_refused_and_none_is_counted(watched: Client, body: Json, message: str) -> None:
    answer = predict(watched)
    assert re.match(message, refused(watched, 422, "field", id=answer["id"], **body))
    assert not samples(watched, "probity_feedback_examples_total")


def test_what_is_not_known_is_said(watched: Client) -> None:
    assert "found 'nothing'" in refused(watched, 404, "feedback_unknown", id="nothing", labels=["class 0"])
    assert problem(watched.request("POST", "/feedback", content=b"{"), 400, "json")
    text = {"content-type": "text/csv"}
    assert problem(watched.request("POST", "/feedback", content=b"x", headers=text), 415, "media_type")
    assert problem(watched.request("POST", "/feedback", content=b" " * (2**20 + 1)), 413, "body_too_large")
    refused(watched, 422, "field", id="x" * 129, labels=[])


def test_without_a_file_there_is_no_feedback(client: Client) -> None:
    assert "PROBITY_FEEDBACK_FILE" in refused(client, 404, "feedback_off", id="a", labels=["class 0"])


def test_degraded_answers_are_counted_by_themselves(classification: Synthetic, tmp_path: Path) -> None:
    settings = Settings(feedback_file=tmp_path / "feedback.db", degrade_after_seconds=1e-9)
    with serving(Predictor.load(classification.path, plain_too=True), settings) as client:
        answer = predict(client)
        assert answer["degraded"]
        assert send(client, id=answer["id"], labels=["class 0"] * 3)["counted"] == 3
        assert all('decision="degraded"' in series for series in samples(client, "probity_feedback_examples_total"))


def test_accuracy_below_the_certified_one_raises_an_alarm(classification: Synthetic, tmp_path: Path) -> None:
    """And labels that are as accurate as certified do not."""
    path = keeping_outcomes(classification.path, tmp_path / "bundle", 2000, 2000)
    predictor = Predictor.load(path, policy=Policy(accepted_accuracy=0.7))
    assert predictor.expected_accuracy == 0.7
    with serving(predictor, Settings(feedback_file=tmp_path / "feedback.db")) as client:
        assert [*samples(client, "probity_expected_accuracy").values()] == [0.7]
        rows = np.random.default_rng(0).normal(size=(400, 4)).tolist()
        answer = predict(client, rows)
        labels = [one["label"] for one in answer["predictions"]]
        send(client, id=answer["id"], labels=labels)
        assert not samples(client, "probity_accuracy_alarms_total")
        assert next(iter(samples(client, "probity_accuracy_evidence").values())) < 0
        answer = predict(client, rows)
        send(client, id=answer["id"], labels=[OTHERS[one["label"]] for one in answer["predictions"]])
        assert next(iter(samples(client, "probity_accuracy_alarms_total").values())) >= 1


def test_without_a_certificate_held_out_data_say_what_to_expect(classification: Synthetic, tmp_path: Path) -> None:
    path = keeping_outcomes(classification.path, tmp_path / "bundle", 500, 0)
    predictor = Predictor.load(path)
    verdicts = predictor.expected_accuracy
    assert verdicts is not None
    assert 0.3 < verdicts < 1
    by_class = Predictor.load(path, policy=Policy(0.2, by_class=True)).expected_accuracy
    assert by_class is not None
    assert abs(by_class - verdicts) < 0.2


def test_feedback_may_have_keys_of_its_own(classification: Synthetic, tmp_path: Path) -> None:
    keys = {}
    for name in ("all", "feedback"):
        keys[name], entry = new_key(name)
        (tmp_path / name).write_text(entry.line)
    settings = Settings(
        feedback_file=tmp_path / "feedback.db", api_keys_file=tmp_path / "all", feedback_keys_file=tmp_path / "feedback"
    )
    with serving(Predictor.load(classification.path), settings) as client:
        for path, right, wrong in (("/model", "all", "feedback"), ("/feedback", "feedback", "all")):
            method = "GET" if path == "/model" else "POST"
            statuses = [
                client.request(method, path, content=b"{}", headers={"X-API-Key": keys[name]}).status_code
                for name in (right, wrong)
            ]
            assert statuses == [200 if path == "/model" else 422, 401]
    only = Settings(feedback_file=tmp_path / "feedback.db", feedback_keys_file=tmp_path / "feedback")
    with serving(Predictor.load(classification.path), only) as client:
        assert client.get("/model").status_code == 200
        assert client.request("POST", "/feedback", content=b"{}").status_code == 401


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_file_that_cannot_be_used_is_known_at_the_start(
    classification: Synthetic, tmp_path: Path, workers: str
) -> None:
    missing = tmp_path / "missing" / "feedback.db"
    status, _, message = run_to_end(
        str(classification.path), "--port", "0", PROBITY_FEEDBACK_FILE=str(missing), PROBITY_WORKERS=workers
    )
    assert status == 2
    assert message.startswith(f"error: {missing}: cannot be used (No such file or directory)")


@pytest.mark.slow
def test_workers_share_the_memory_and_the_test_and_it_outlives_them(classification: Synthetic, tmp_path: Path) -> None:
    variables = {"PROBITY_FEEDBACK_FILE": str(tmp_path / "feedback.db"), "PROBITY_WORKERS": "2"}

    def ask(server: Server, path: str, body: Json) -> Json:
        status, _, text = server.request("POST", path, json.dumps(body).encode(), {"Content-Type": "application/json"})
        assert status == 200, text
        found: Json = json.loads(text)
        return found

    with running(classification.path, **variables) as server:
        answers = [ask(server, "/predict", {"inputs": ROWS}) for _ in range(12)]
        for answer in answers[:8]:
            ask(server, "/feedback", {"id": answer["id"], "labels": [one["label"] for one in answer["predictions"]]})
        lines = server.request("GET", "/metrics")[2].decode().splitlines()
        counted = [line.rpartition(" ")[2] for line in lines if line.startswith("probity_feedback_examples_total")]
        assert sum(map(float, counted)) == 8 * len(ROWS)
        assert server.terminate() == 0
    with running(classification.path, **variables) as server:
        for answer, expected in ((answers[0], 0), (answers[11], len(ROWS))):
            found = ask(server, "/feedback", {"id": answer["id"], "labels": ["class 0"] * len(ROWS)})
            assert found["counted"] == expected
