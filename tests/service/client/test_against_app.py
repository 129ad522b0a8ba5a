"""The asynchronous client and the application itself, without a socket."""

import functools
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pandas as pd
import pytest

from demur.service.client import (
    BadRequestError,
    ClassificationPrediction,
    FeedbackResponse,
    NotFoundError,
    PredictResponse,
    RegressionPrediction,
    UnauthorizedError,
)
from demur.service.inference.predictor import Predictor
from demur.service.security.api_keys import new_key
from demur.service.settings import Settings
from tests.support.bundles import Synthetic
from tests.support.client import Client as App
from tests.support.client import serving
from tests.support.fake_service import URL, ask_async
from tests.support.requests import GOOD, image_file
from tests.support.secrets import secret_file


def ask(app: App, method: str, *arguments: Any, api_key: str | None = None, **named: Any) -> Any:
    options = {"transport": httpx.ASGITransport(app.app, raise_app_exceptions=False), "api_key": api_key, "retries": 0}
    return app.portal.call(functools.partial(ask_async, method, *arguments, options=options, url=URL, **named))


@pytest.mark.parametrize("inputs", [[GOOD, GOOD], np.array([GOOD, GOOD]), np.array([GOOD, GOOD], np.float32)])
def test_classification(client: App, classification: Synthetic, inputs: Any) -> None:
    answer: PredictResponse = ask(client, "predict", inputs)
    assert answer.model.name == classification.manifest.name
    assert len(answer.predictions) == 2
    expected = Predictor.load(classification.path).predict(np.array([GOOD], np.float32))
    for found in answer.predictions:
        assert isinstance(found, ClassificationPrediction)
        assert found.variance is not None
        assert found.variance == pytest.approx(expected.variance[0].mean(), rel=1e-3)
        assert found.rejected == bool(expected.rejected[0])
        assert (found.logit_mean, found.map_label, found.threshold) == (None, None, None)


def test_a_whole_answer(client: App, classification: Synthetic) -> None:
    expected = Predictor.load(classification.path).predict(np.array([GOOD], np.float32))
    answer: PredictResponse = ask(client, "predict", [GOOD], detail="full")
    assert answer.timing is not None
    (found,) = answer.predictions
    assert isinstance(found, ClassificationPrediction)
    assert found.logit_mean is not None
    assert list(found.logit_mean.values()) == pytest.approx(expected.mean[0].tolist(), rel=1e-3)
    assert None not in (found.map_label, found.map_probabilities, found.uncertainty, found.threshold)
    (first,) = ask(client, "predict", [GOOD], top=1).predictions
    assert first.probabilities == {found.label: found.probability}


def test_a_frame_is_read_by_the_names_of_its_columns(client: App) -> None:
    frame = pd.DataFrame([GOOD, GOOD], columns=list("abcd"))
    expected = ask(client, "predict", [GOOD]).predictions[0]
    answer: PredictResponse = ask(client, "predict", frame[list("dbca")].assign(patient="x"))
    assert answer.predictions == [expected, expected]
    assert ask(client, "predict", frame.rename(columns={"c": " c "})).predictions == [expected, expected]
    with pytest.raises(BadRequestError, match=r"inputs\[0\]\.c: found nothing \(did you mean 'C'\?\)"):
        ask(client, "predict", frame.rename(columns={"c": "C"}))


def test_labels_of_an_answer(classification: Synthetic, regression: Synthetic, tmp_path: Path) -> None:
    settings = Settings(feedback_secret_file=secret_file(tmp_path))
    with serving(Predictor.load(classification.path), settings) as app:
        answer: PredictResponse = ask(app, "predict", [GOOD, GOOD])
        found: FeedbackResponse = ask(app, "feedback", answer, labels=["class 0", None])
        assert (found.model, found.examples, found.counted, found.already_labelled) == (answer.model, 2, 1, 0)
        found = ask(app, "feedback", answer.receipt, labels=["class 0", "class 1"])
        assert (found.counted, found.already_labelled) == (1, 1)
        with pytest.raises(BadRequestError, match="expected the unchanged receipt of an answer"):
            ask(app, "feedback", "unknown", labels=["class 0", None])
        with pytest.raises(ValueError, match="found both, expected labels"):
            ask(app, "feedback", answer, labels=["class 0"], values=[1.0])
    with serving(Predictor.load(regression.path), settings) as app:
        answer = ask(app, "predict", [[1.0, 2.0, 3.0]])
        (found_values,) = answer.predictions
        assert isinstance(found_values, RegressionPrediction)
        outputs = len(found_values.mean)
        assert ask(app, "feedback", answer, values=[(0.5,) * outputs]).counted == 1
        answer = ask(app, "predict", [[1.0, 2.0, 3.0]])
        assert ask(app, "feedback", answer, values=np.zeros((1, outputs))).counted == 1


def test_labels_of_an_answer_without_a_receipt(client: App) -> None:
    with pytest.raises(ValueError, match=r"answer: found no receipt, .* DEMUR_FEEDBACK_SECRET_FILE"):
        ask(client, "feedback", ask(client, "predict", GOOD), labels=["class 0"])


def test_one_example(client: App) -> None:
    assert len(ask(client, "predict", GOOD).predictions) == 1
    assert len(ask(client, "predict", np.array(GOOD)).predictions) == 1


@pytest.mark.parametrize("bundle", ["regression", "single_regression"])
def test_regression(bundle: str, request: pytest.FixtureRequest) -> None:
    synthetic: Synthetic = request.getfixturevalue(bundle)
    with serving(Predictor.load(synthetic.path)) as app:
        answer: PredictResponse = ask(app, "predict", [[1.0, 2.0, 3.0]])
    (found,) = answer.predictions
    assert isinstance(found, RegressionPrediction)
    assert found.mean == pytest.approx(synthetic.mean(np.array([[1.0, 2.0, 3.0]]))[0].tolist(), rel=1e-3)
    assert found.variance is not None
    assert found.interval is not None
    assert found.rejected is not None


def test_images(image_client: App, tmp_path: Path) -> None:
    path = tmp_path / "image.jpeg"
    path.write_bytes(image_file("JPEG"))
    one: PredictResponse = ask(image_client, "predict_images", image_file())
    several: PredictResponse = ask(image_client, "predict_images", [image_file(), path, io.BytesIO(image_file())])
    assert len(one.predictions) == 1
    assert several.predictions[0] == several.predictions[2] != several.predictions[1]
    assert several.predictions[0].rejected is not None
    with pytest.raises(BadRequestError) as caught:
        ask(image_client, "predict_images", [image_file(), b"no image"])
    assert caught.value.field == "files[1]"


def test_everything_else(client: App, classification: Synthetic) -> None:
    assert ask(client, "ready") is True
    assert ask(client, "live") is True
    (model,) = ask(client, "models")
    assert (model.name, model.version) == (classification.manifest.name, classification.manifest.version)
    assert model.default
    cards = [ask(client, "card"), ask(client, "card", model.name), ask(client, "card", model.name, model.version)]
    assert all(card == cards[0] for card in cards)
    assert cards[0]["digest"] == model.digest
    assert "demur_model_info" in ask(client, "metrics")
    named: PredictResponse = ask(client, "predict", [GOOD], model=model.name, version=model.version)
    assert named.model.digest == model.digest


def test_while_draining_it_is_alive_and_not_ready(classification: Synthetic) -> None:
    with serving(Predictor.load(classification.path)) as app:
        app.app.state.runtime.draining = True
        assert ask(app, "ready") is False
        assert ask(app, "live") is True


@pytest.mark.parametrize("method", ["card", "predict"])
def test_no_such_model(client: App, classification: Synthetic, method: str) -> None:
    arguments = [[GOOD]] if method == "predict" else []
    for names in ({"model": "nobody"}, {"model": classification.manifest.name, "version": "99"}):
        with pytest.raises(NotFoundError) as caught:
            ask(client, method, *arguments, **names)
        assert caught.value.code == "model_not_found"


@pytest.mark.parametrize("number", ["three", None, float("nan"), float("inf")])
def test_a_wrong_value_is_named(client: App, number: Any) -> None:
    with pytest.raises(BadRequestError) as caught:
        ask(client, "predict", [[1.0, 2.0, number, 4.0]])
    assert (caught.value.status, caught.value.field) == (422, "inputs[0][2]")
    assert caught.value.found
    assert caught.value.expected


@pytest.mark.parametrize("array", [np.zeros((1, 5)), np.zeros((1, 4), bool), np.full((1, 4), np.nan), np.zeros((0, 4))])
def test_a_wrong_array_is_refused(client: App, array: Any) -> None:
    with pytest.raises(BadRequestError) as caught:
        ask(client, "predict", array)
    assert caught.value.status == 422


@pytest.fixture(scope="module")
def locked(classification: Synthetic, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[App, str]]:
    key, entry = new_key("tester")
    file = tmp_path_factory.mktemp("keys") / "keys"
    file.write_text(entry.line)
    with serving(Predictor.load(classification.path), Settings(api_keys_file=file)) as app:
        yield app, key


def test_with_the_key_it_answers(locked: tuple[App, str]) -> None:
    app, key = locked
    assert ask(app, "predict", [GOOD], api_key=key).predictions
    assert ask(app, "card", api_key=key)
    assert ask(app, "ready")


@pytest.mark.parametrize("key", [None, "demur_another"])
def test_without_the_key_it_does_not(locked: tuple[App, str], key: str | None) -> None:
    with pytest.raises(UnauthorizedError) as caught:
        ask(locked[0], "predict", [GOOD], api_key=key)
    assert caught.value.code == "unauthorized"
