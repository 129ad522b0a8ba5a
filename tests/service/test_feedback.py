"""POST /feedback of a running service: labels come with the receipts of answers, are counted once, and tested."""

import hashlib
import io
import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from itsdangerous import TimestampSigner
from itsdangerous.encoding import base64_encode

from demur.service.feedback import receipts
from demur.service.feedback.receipts import ReceiptSigner
from demur.service.inference.policy import Policy
from demur.service.inference.predictor import Predictor
from demur.service.maths.accuracy_evidence import LEVEL
from demur.service.security.api_keys import new_key
from demur.service.settings import Settings
from tests.support.bundles import Synthetic
from tests.support.client import Client, problem, serving
from tests.support.outcomes import keeping_outcomes
from tests.support.secrets import OTHER_SECRET, SECRET, secret_file
from tests.support.server import Server, run_to_end, running
from tests.support.v2 import GOOD, post

Json = dict[str, Any]
ROWS = [[0.5, -1.0, 2.0, 0.25], [1.0, 2.0, 3.0, 4.0], [9.0, 9.0, -9.0, 9.0]]
MODEL_NAME = ("name", "version", "digest")
OTHERS = {"class 0": "class 1", "class 1": "class 2", "class 2": "class 0"}


@pytest.fixture
def watched(classification: Synthetic, tmp_path: Path) -> Iterator[Client]:
    with serving(Predictor.load(classification.path), Settings(feedback_secret_file=secret_file(tmp_path))) as client:
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
    found = send(watched, receipt=answer["receipt"], labels=labels)
    assert found == {
        "model": answer["model"],
        "examples": 3,
        "counted": 3,
        "already_labelled": 0,
    }
    decided = ["rejected" if one["rejected"] else "accepted" for one in answer["predictions"]]
    model = f'model="{answer["model"]["name"]}",version="{answer["model"]["version"]}"'
    expected, right = dict[str, float](), dict[str, float]()
    for decision, correct in zip(decided, (1, 0, 1), strict=True):
        series = f'{{decision="{decision}",{model}}}'
        expected[series] = expected.get(series, 0) + 1
        right[series] = right.get(series, 0) + correct
    assert samples(watched, "demur_feedback_examples_total") == expected
    assert samples(watched, "demur_feedback_correct_total") == {k: v for k, v in right.items() if v}
    confidences = samples(watched, "demur_feedback_bin_confidence_total")
    assert sum(confidences.values()) == pytest.approx(sum(one["probability"] for one in answer["predictions"]))
    assert sum(samples(watched, "demur_feedback_bin_correct_total").values()) == 2


def test_the_first_label_stays_and_null_is_not_known_yet(watched: Client) -> None:
    answer = predict(watched)
    labels = [one["label"] for one in answer["predictions"]]
    first = send(watched, receipt=answer["receipt"], labels=[labels[0], None, None])
    second = send(watched, receipt=answer["receipt"], labels=[OTHERS[labels[0]], labels[1], None])
    assert (first["counted"], first["already_labelled"]) == (1, 0)
    assert (second["counted"], second["already_labelled"]) == (1, 1)
    assert sum(samples(watched, "demur_feedback_correct_total").values()) == 2


def test_labels_of_v2_requests_too(watched: Client) -> None:
    for asked in (GOOD, GOOD | {"parameters": {"binary_data_output": True}}):
        for _ in range(2):  # the second answer, too, has a receipt of its own
            response = post(watched, asked)
            length = int(response.headers.get("inference-header-content-length", len(response.content)))
            answer = json.loads(response.content[:length])
            labels = ["class 0"] * answer["outputs"][0]["shape"][0]
            assert send(watched, receipt=answer["parameters"]["receipt"], labels=labels)["counted"] == len(labels)


def test_a_regression_counts_intervals_that_hold_the_truth(regression: Synthetic, tmp_path: Path) -> None:
    settings = Settings(feedback_secret_file=secret_file(tmp_path))
    predictor = Predictor.load(regression.path, policy=Policy(interval_level=0.8))
    with serving(predictor, settings) as client:
        answer = predict(client, [row[:3] for row in ROWS])
        found = [one["interval"] for one in answer["predictions"]]
        low, high = np.array(found[0]["low"]) + 1e-4, np.array(found[1]["high"])  # ends are rounded
        values = [low.tolist(), (high + 1).tolist(), None]
        assert send(client, receipt=answer["receipt"], values=values)["counted"] == 2
        assert sum(samples(client, "demur_feedback_correct_total").values()) == 1
        means = [np.array(one["mean"]) for one in answer["predictions"]]
        expected = np.square(means[0] - low).mean() + np.square(means[1] - high - 1).mean()
        assert sum(samples(client, "demur_feedback_squared_error_total").values()) == pytest.approx(expected, rel=1e-5)
        for wrong in ([1.0], [[1.0], [1.0], [1.0]], ["1", None, None], [[1e200, 1.0], None, None], [True, None, None]):
            assert "expected" in refused(client, 422, "field", receipt=answer["receipt"], values=wrong)


def test_intervals_are_expected_to_hold_what_they_hold_surely(regression: Synthetic, tmp_path: Path) -> None:
    """On average over held-out data they hold their level; given these data, less with a probability of a half."""
    path = keeping_outcomes(regression.path, tmp_path / "bundle", 100)
    settings = Settings(feedback_secret_file=secret_file(tmp_path))
    with serving(Predictor.load(path, policy=Policy(interval_level=0.9)), settings) as client:
        (found,) = samples(client, "demur_expected_accuracy").values()
    drawn = np.random.default_rng(0).random((20_000, 100))
    assert found == pytest.approx(np.quantile(np.sort(drawn, axis=1)[:, 90], 0.05), abs=0.003)


def test_the_models_own_rule_decides_what_is_counted(classification: Synthetic, tmp_path: Path) -> None:
    settings = Settings(feedback_secret_file=secret_file(tmp_path), requested_rates=(0.01, 0.99))
    counted = []
    for rate in ("", "?false_reject_rate=0.9"):
        with serving(Predictor.load(classification.path), settings) as client:
            body = json.dumps({"inputs": ROWS})
            answer = client.request("POST", f"/predict{rate}", content=body).json()
            send(client, receipt=answer["receipt"], labels=["class 0"] * 3)
            counted.append(samples(client, "demur_feedback_examples_total"))
    assert counted[0] == counted[1]


@pytest.mark.parametrize("count", [1, 3, 100])
def test_a_trial_has_no_receipt(classification: Synthetic, tmp_path: Path, count: int) -> None:
    """So its labels cannot be counted as those of traffic, however it was sent."""
    array = np.tile(np.array(ROWS[0], np.float32), (count, 1))
    settings = Settings(feedback_secret_file=secret_file(tmp_path), requested_rates=(0.01, 0.99))
    npy = io.BytesIO()
    np.save(npy, array)
    bodies = {
        "application/json": json.dumps({"inputs": array.tolist()}).encode(),
        "application/x-npy": npy.getvalue(),
    }
    with serving(Predictor.load(classification.path), settings) as client:
        queries = ("", "detail=full&", "top=1&", "fields=label&", "false_reject_rate=0.9&")
        for query, (kind, body) in itertools.product(queries, bodies.items()):
            usual, trial = (
                client.request("POST", f"/predict?{query}{end}", content=body, headers={"Content-Type": kind}).json()
                for end in ("", "trial=true")
            )
            assert trial["predictions"] == usual["predictions"]
            assert "receipt" in usual
            assert "receipt" not in trial


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"labels": ["class 0"] * 2}, "labels: found 2, expected 3, one for each example; null is unknown"),
        ({}, "labels: found none, expected a list of class names, one for each example of the answer"),
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
    assert re.match(message, refused(watched, 422, "field", receipt=answer["receipt"], **body))
    assert not samples(watched, "demur_feedback_examples_total")


@pytest.mark.parametrize(
    ("receipt", "message"),
    [
        ("nothing", "receipt: found 'nothing', expected the unchanged receipt of an answer"),
        ("", "receipt: found '', expected the unchanged receipt"),
        (None, "receipt: expected"),
        (7, "receipt: expected"),
    ],
)
def test_what_is_no_receipt(watched: Client, receipt: Any, message: str) -> None:
    assert message in refused(watched, 422, "field", receipt=receipt, labels=["class 0"])


def test_a_changed_receipt_is_refused_in_each_of_its_parts(watched: Client) -> None:
    receipt: str = predict(watched)["receipt"]
    places = [0, receipt.index("."), receipt.index(".") + 1, receipt.rindex("."), receipt.rindex(".") + 1, -2]
    for place in places:
        changed = [*receipt]
        changed[place] = "A" if changed[place] != "A" else "B"
        found = refused(watched, 422, "field", receipt="".join(changed), labels=[None] * 3)
        assert "receipt: found" in found
    assert send(watched, receipt=receipt, labels=["class 0"] * 3)["counted"] == 3


def test_what_is_signed_and_does_not_fit_the_model_is_refused(watched: Client) -> None:
    """Of another version of the service, that is; nobody else has the secret."""
    model = watched.get("/model").json()
    signer = ReceiptSigner([SECRET.encode()], 1)
    for answers in (b"", bytes(5), b"\xff" * 6, bytes(7)):
        receipt = signer.sign(model["name"], model["version"], model["digest"], answers)
        found = problem(
            watched.request("POST", "/feedback", content=json.dumps({"receipt": receipt, "labels": ["class 0"]})),
            422,
            "field",
        )
        assert found.field == "receipt"


def test_other_requests_than_json_of_some_size_are_refused(watched: Client) -> None:
    assert problem(watched.request("POST", "/feedback", content=b"{"), 400, "json")
    text = {"content-type": "text/csv"}
    assert problem(watched.request("POST", "/feedback", content=b"x", headers=text), 415, "media_type")
    for body, code in ((b" " * (2**24 + 1), "body_too_large"), (b"[" * 100_000, "input_too_large")):
        assert problem(watched.request("POST", "/feedback", content=body), 413, code)
    refused(watched, 422, "field", labels=[])


class EarlierSigner(TimestampSigner):
    """Signs as the service did so many seconds ago."""

    age = 0

    def get_timestamp(self) -> int:
        return super().get_timestamp() - self.age


def test_a_receipt_is_taken_for_so_long(classification: Synthetic, tmp_path: Path) -> None:
    settings = Settings(feedback_secret_file=secret_file(tmp_path), feedback_max_age_seconds=3600)
    with serving(Predictor.load(classification.path), settings) as client:
        model = client.get("/model").json()
        value = f"{model['name']}\0{model['version']}\0".encode() + bytes.fromhex(model["digest"][:16]) + bytes(6 + 6)
        signer = EarlierSigner(SECRET, receipts.SALT, key_derivation="hmac", digest_method=hashlib.sha256)
        for age in (3500, 3700):
            signer.age = age
            body = {"receipt": signer.sign(base64_encode(value)).decode(), "labels": ["class 0"]}
            if age < 3600:
                assert send(client, **body)["counted"] == 1
            else:
                assert "DEMUR_FEEDBACK_MAX_AGE_SECONDS" in refused(client, 422, "field", **body)


def test_a_receipt_of_a_bundle_that_is_not_served(watched: Client) -> None:
    """Another model, another version, and another bundle of this name and version."""
    model = watched.get("/model").json()
    signer, name, version, digest = (
        ReceiptSigner([SECRET.encode()], 1),
        model["name"],
        model["version"],
        model["digest"],
    )
    for other in (("other", version, digest), (name, "other", digest), (name, version, "0" * 64)):
        receipt = signer.sign(other[0], other[1], other[2], bytes(6))
        refused(watched, 404, "model_not_found", receipt=receipt, labels=["class 0"])


def test_labels_in_another_order_than_the_answers(watched: Client) -> None:
    answers = [predict(watched, ROWS[:count]) for count in (1, 2, 3)]
    for answer in (answers[2], answers[0], answers[1]):
        labels = [one["label"] for one in answer["predictions"]]
        found = send(watched, receipt=answer["receipt"], labels=labels)
        assert (found["examples"], found["counted"]) == (len(labels), len(labels))
    assert sum(samples(watched, "demur_feedback_correct_total").values()) == 6


def test_equal_answers_have_labels_of_their_own(watched: Client) -> None:
    for _ in range(3):
        assert send(watched, receipt=predict(watched, ROWS[:1])["receipt"], labels=["class 0"])["counted"] == 1


def test_without_a_secret_there_is_no_feedback(client: Client) -> None:
    assert "receipt" not in predict(client)
    assert "parameters" not in post(client, GOOD).json()
    assert "DEMUR_FEEDBACK_SECRET_FILE" in refused(client, 404, "feedback_off", receipt="a", labels=["class 0"])


def test_accuracy_below_the_certified_one_is_shown(classification: Synthetic, tmp_path: Path) -> None:
    """And labels that are as accurate as certified speak for it."""
    path = keeping_outcomes(classification.path, tmp_path / "bundle", 2000, 2000)
    predictor = Predictor.load(path, policy=Policy(accepted_accuracy=0.7))
    assert predictor.decision.expected_accuracy == 0.7
    with serving(predictor, Settings(feedback_secret_file=secret_file(tmp_path))) as client:
        assert [*samples(client, "demur_expected_accuracy").values()] == [0.7]
        assert [*samples(client, "demur_accuracy_martingale").values()] == [1]
        rows = np.random.default_rng(0).normal(size=(400, 4)).tolist()
        answer = predict(client, rows)
        labels = [one["label"] for one in answer["predictions"]]
        send(client, receipt=answer["receipt"], labels=labels)
        assert next(iter(samples(client, "demur_accuracy_martingale").values())) < 1
        answer = predict(client, rows)
        send(client, receipt=answer["receipt"], labels=[OTHERS[one["label"]] for one in answer["predictions"]])
        assert next(iter(samples(client, "demur_accuracy_martingale").values())) >= LEVEL


def test_without_a_certificate_held_out_data_say_what_to_expect(classification: Synthetic, tmp_path: Path) -> None:
    path = keeping_outcomes(classification.path, tmp_path / "bundle", 500, 0)
    predictor = Predictor.load(path)
    verdicts = predictor.decision.expected_accuracy
    assert verdicts is not None
    assert 0.3 < verdicts < 1
    by_class = Predictor.load(
        path, policy=Policy(false_reject_rate=0.2, reject_by_class=True)
    ).decision.expected_accuracy
    assert by_class is not None
    assert abs(by_class - verdicts) < 0.2


def test_feedback_may_have_keys_of_its_own(classification: Synthetic, tmp_path: Path) -> None:
    keys = {}
    for name in ("all", "feedback"):
        keys[name], entry = new_key(name)
        (tmp_path / name).write_text(entry.line)
    secrets, own = secret_file(tmp_path), tmp_path / "feedback"
    settings = Settings(feedback_secret_file=secrets, api_keys_file=tmp_path / "all", feedback_keys_file=own)
    with serving(Predictor.load(classification.path), settings) as client:
        for path, right, wrong in (("/model", "all", "feedback"), ("/feedback", "feedback", "all")):
            method = "GET" if path == "/model" else "POST"
            statuses = [
                client.request(method, path, content=b"{}", headers={"X-API-Key": keys[name]}).status_code
                for name in (right, wrong)
            ]
            assert statuses == [200 if path == "/model" else 422, 401]
    only = Settings(feedback_secret_file=secrets, feedback_keys_file=own)
    with serving(Predictor.load(classification.path), only) as client:
        assert client.get("/model").status_code == 200
        assert client.request("POST", "/feedback", content=b"{}").status_code == 401


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_secret_that_cannot_be_used_is_known_at_the_start(
    classification: Synthetic, tmp_path: Path, workers: str
) -> None:
    short = secret_file(tmp_path, "changeme")
    status, _, message = run_to_end(
        str(classification.path), "--port", "0", DEMUR_FEEDBACK_SECRET_FILE=str(short), DEMUR_WORKERS=workers
    )
    assert status == 2
    assert message.startswith(f"error: {short}, line 1: found 8 bytes, expected a secret of at least 32 bytes")
    assert "changeme" not in message


def ask(server: Server, path: str, body: Json) -> Json:
    status, _, text = server.request("POST", path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    assert status == 200, text
    found: Json = json.loads(text)
    return found


def total(server: Server, name: str) -> float:
    lines = server.request("GET", "/metrics")[2].decode().splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"demur_{name}{{"))


def test_one_replica_answers_and_another_takes_the_labels(classification: Synthetic, tmp_path: Path) -> None:
    """Also once the first one was killed, and by a secret that the second one no longer signs with."""
    (tmp_path / "later").mkdir()
    files = secret_file(tmp_path), secret_file(tmp_path / "later", OTHER_SECRET, SECRET)
    first, second = ({"DEMUR_FEEDBACK_SECRET_FILE": str(file)} for file in files)
    with running(classification.path, **first) as one, running(classification.path, **second) as other:
        answers = [ask(one, "/predict", {"inputs": ROWS}) for _ in range(2)]
        for number, answer in enumerate(answers):
            labels = [one["label"] for one in answer["predictions"]]
            if number == 1:
                one.process.kill()
                one.process.wait()
            assert ask(other, "/feedback", {"receipt": answer["receipt"], "labels": labels})["counted"] == len(ROWS)
        assert total(other, "feedback_examples_total") == 2 * len(ROWS)
        changed = ask(other, "/predict", {"inputs": ROWS})["receipt"]
    with running(classification.path, **first) as again:
        body = json.dumps({"receipt": changed, "labels": [None] * len(ROWS)}).encode()
        assert again.request("POST", "/feedback", body, {"Content-Type": "application/json"})[0] == 422


@pytest.mark.slow
def test_workers_count_together_and_share_the_evidence(classification: Synthetic, tmp_path: Path) -> None:
    variables = {"DEMUR_FEEDBACK_SECRET_FILE": str(secret_file(tmp_path)), "DEMUR_WORKERS": "2"}
    with running(keeping_outcomes(classification.path, tmp_path / "bundle", 500, 0), **variables) as server:
        assert total(server, "accuracy_martingale") == 1
        for _ in range(12):
            answer = ask(server, "/predict", {"inputs": ROWS})
            labels = [one["label"] for one in answer["predictions"]]
            ask(server, "/feedback", {"receipt": answer["receipt"], "labels": labels})
        assert total(server, "feedback_examples_total") == 12 * len(ROWS)
        assert 0 < total(server, "accuracy_martingale") < 1
        assert server.terminate() == 0
