"""Several labels an example, served: the answer, metrics, feedback, the audit trail, the Open Inference Protocol."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pyarrow import parquet

from demur.scoring.job import score_file
from demur.service.bundle import BundleError
from demur.service.format.manifest_json import manifest_from_json
from demur.service.format.rules import ManifestError
from demur.service.inference.policy import Policy
from demur.service.inference.predictor import Prediction, Predictor
from demur.service.schemas import PredictResponse
from demur.service.settings import Settings
from tests import reference
from tests.support.bundles import FEATURE_SPEC, Synthetic, write_linear
from tests.support.client import Client, problem, serving
from tests.support.manifests import document
from tests.support.secrets import secret_file
from tests.support.v2 import outputs, post

NAMES = ("label 0", "label 1", "label 2")
ROWS = np.random.default_rng(3).normal(size=(20, 4)).astype(np.float32)
Json = dict[str, Any]


@pytest.fixture(scope="module")
def synthetic(tmp_path_factory: pytest.TempPathFactory) -> Synthetic:
    folder = tmp_path_factory.mktemp("labels") / "bundle"
    return write_linear(folder, outputs=3, spec=FEATURE_SPEC, several=True, temperature=1.3)


@pytest.fixture
def client(synthetic: Synthetic, tmp_path: Path) -> Iterator[Client]:
    settings = Settings(feedback_secret_file=secret_file(tmp_path))
    with serving(Predictor.load(synthetic.path, policy=Policy(interval_level=0.8)), settings) as found:
        yield found


def predict(client: Client, rows: np.ndarray = ROWS) -> Json:
    response = client.predict({"inputs": rows.tolist()}, "?detail=full")
    assert response.status_code == 200, response.text
    found: Json = response.json()
    PredictResponse.model_validate(found)
    return found


def said(p: np.ndarray) -> list[str]:
    return [name for name, one in zip(NAMES, p, strict=True) if one >= 0.5]


def test_every_field_of_the_answer(synthetic: Synthetic, client: Client) -> None:
    mean, variance = synthetic.mean(ROWS), synthetic.variance(ROWS)
    p, q = (reference.label_probabilities(mean, v, 1.3) for v in (variance, 0 * variance))
    sets = np.linspace(0.1, 1, 40)[:, np.newaxis] / np.arange(1, 4)  # of the held-out examples
    largest = [reference.quantile_of(column.tolist(), 0.8) for column in sets.T]
    answers = predict(client)["predictions"]
    assert len({tuple(answer["labels"]) for answer in answers}) > 2
    for answer, own, plain, f in zip(answers, p, q, mean, strict=True):
        assert list(answer["probabilities"]) == list(NAMES)
        np.testing.assert_allclose(list(answer["probabilities"].values()), own, rtol=1e-4)
        np.testing.assert_allclose(list(answer["map_probabilities"].values()), plain, rtol=1e-4)
        assert (answer["labels"], answer["map_labels"]) == (said(own), said(plain))
        np.testing.assert_allclose(list(answer["logit_mean"].values()), f, rtol=1e-4)
        total = sum(reference.entropy([one, 1 - one]) for one in own)
        assert answer["uncertainty"]["total"] == pytest.approx(total, rel=1e-4)
        assert answer["score"] == pytest.approx(total, rel=1e-4)
        found = answer["prediction_set"]
        expected: Json = {"level": 0.8, "present": [], "absent": [], "undecided": []}
        for name, one, most in zip(NAMES, own, largest, strict=True):
            has, lacks = 1 - one <= most or one >= 0.5, one <= most or one < 0.5
            expected["undecided" if has and lacks else "present" if has else "absent"].append(name)
        assert found == expected


def test_a_prediction_in_python(synthetic: Synthetic) -> None:
    predictor = Predictor.load(synthetic.path)
    found = predictor.predict(ROWS)
    assert found.probabilities is not None
    assert found.labels is not None
    assert [list(labels) for labels in found.labels] == [said(p) for p in found.probabilities]
    frame = found.to_frame()
    each = [f"probability_{name}" for name in NAMES]
    assert frame.columns.tolist() == ["labels", *each, "score", "p_value", "rejected"]
    assert Prediction.concatenate([found.rows(0, 5), found.rows(5, 20)]).to_frame().equals(frame)


def test_labels_that_become_known_are_counted(client: Client) -> None:
    answer = predict(client, ROWS[:3])
    labels: list[Any] = [one["labels"] for one in answer["predictions"]]
    labels[1] = [name for name in NAMES if name not in labels[1]]
    labels[2] = None
    response = client.request("POST", "/feedback", content=json.dumps({"receipt": answer["receipt"], "labels": labels}))
    assert response.json()["counted"] == 2
    metrics = client.get("/metrics").text.splitlines()
    counts = {
        what: sum(float(line.split()[-1]) for line in metrics if line.startswith(f"demur_feedback_{what}{{"))
        for what in ("examples_total", "correct_total")
    }
    assert counts == {"examples_total": 2, "correct_total": 1}
    answered = [line for line in metrics if line.startswith("demur_predictions_total{")]
    assert sum(float(line.split()[-1]) for line in answered) == 3
    assert all('label="multilabel"' in line for line in answered)


@pytest.mark.parametrize(
    ("label", "field", "words"),
    [
        ("label 0", "labels[0]", "found 'label 0', expected the list of the labels that the example has, or null"),
        (["label 9"], "labels[0][0]", "found 'label 9', expected one of 'label 0', 'label 1', 'label 2'"),
        ([None], "labels[0]", "found null in the list, expected names"),
    ],
)
def test_labels_that_are_refused(client: Client, label: Any, field: str, words: str) -> None:
    answer = predict(client, ROWS[:1])
    body = json.dumps({"receipt": answer["receipt"], "labels": [label]})
    found = problem(client.request("POST", "/feedback", content=body), 422, "field")
    assert f"{field}: {words}" in found.detail


def test_the_audit_trail_has_the_labels(synthetic: Synthetic, tmp_path: Path) -> None:
    file = tmp_path / "trail.jsonl"
    with serving(Predictor.load(synthetic.path), Settings(audit_file=file)) as client:
        answer = predict(client, ROWS[:2])
    lines = [line for line in map(json.loads, file.read_text().splitlines()) if "event" not in line]
    for line, found in zip(lines, answer["predictions"], strict=True):
        assert line["labels"] == found["labels"]
        assert line["probabilities"] == pytest.approx(found["probabilities"], rel=1e-5)
        assert line["score"] == pytest.approx(found["score"], rel=1e-5)


def test_the_open_inference_protocol(synthetic: Synthetic, client: Client) -> None:
    body = {
        "inputs": [{"name": "inputs", "datatype": "FP32", "shape": [20, 4], "data": ROWS.ravel().tolist()}],
        "outputs": [{"name": name} for name in ("probabilities", "prediction_set", "rejected")],
    }
    found = outputs(post(client, body, "/v2/models/synthetic/infer"))
    p = reference.label_probabilities(synthetic.mean(ROWS), synthetic.variance(ROWS), 1.3)
    np.testing.assert_allclose(np.reshape(found["probabilities"]["data"], (20, 3)), p, rtol=1e-4)
    assert found["prediction_set"]["shape"] == [20, 3, 2]
    assert client.get("/v2/models/synthetic").json()["parameters"]["task"] == "multilabel"


def test_files_are_scored(synthetic: Synthetic, tmp_path: Path) -> None:
    predictor = Predictor.load(synthetic.path)
    np.save(tmp_path / "inputs.npy", ROWS)
    for suffix in ("jsonl", "csv", "parquet"):
        score_file(predictor, tmp_path / "inputs.npy", tmp_path / f"rows.{suffix}", batch_size=8)
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    expected = predictor.predict(ROWS)
    assert expected.labels is not None
    assert [row["labels"] for row in rows] == [list(labels) for labels in expected.labels]
    table = pd.read_csv(tmp_path / "rows.csv")
    assert [json.loads(cell) for cell in table["labels"]] == [row["labels"] for row in rows]
    stored = parquet.read_table(tmp_path / "rows.parquet").to_pylist()
    for name in ("labels", "present", "absent", "undecided"):
        assert [row[name] for row in stored] == [row[name] for row in rows]
    assert table.columns.tolist() == list(stored[0])


@pytest.mark.parametrize("option", ["reject_by_class", "sets_by_class"])
def test_what_goes_by_class_needs_one_class(synthetic: Synthetic, option: str) -> None:
    with pytest.raises(BundleError, match=f"{option}: found several labels an example, expected one class"):
        Predictor.load(synthetic.path, policy=Policy(**{option: True}))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"link": "probit"}, "link: found 'probit', expected that of the task, probit-sigmoid"),
        ({"sigma_noise": 0.5}, "sigma_noise: found 0.5, expected a number for regression, else null"),
    ],
)
def test_manifests_that_are_refused(synthetic: Synthetic, change: Json, message: str) -> None:
    with pytest.raises(ManifestError, match=message):
        manifest_from_json(document(synthetic.manifest) | change)
