"""Which fields an answer has, of how many classes, with how many digits, and what a query may not ask for."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from demur.service.codec.answers import FIELDS, USUAL, rounded
from demur.service.inference.predictor import Predictor
from tests.support.bundles import FEATURE_SPEC, Synthetic, write_linear
from tests.support.client import Client, problem, serving

Json = dict[str, Any]
ROWS = np.random.default_rng(3).normal(size=(8, *FEATURE_SPEC.shape)).round(3).tolist()
MANY = 1000


@pytest.fixture(scope="module")
def many_classes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Synthetic, Client]]:
    synthetic = write_linear(tmp_path_factory.mktemp("many") / "bundle", outputs=MANY, spec=FEATURE_SPEC)
    with serving(Predictor.load(synthetic.path)) as started:
        yield synthetic, started


def ask(client: Client, query: str = "", rows: Any = ROWS) -> Json:
    response = client.predict({"inputs": rows}, query)
    assert response.status_code == 200, response.text
    found: Json = response.json()
    return found


def test_a_usual_answer_says_what_most_need(client: Client, classification: Synthetic) -> None:
    answer = ask(client)
    assert set(answer) == {"id", "model", "predictions", "warnings"}
    assert all(list(one) == list(USUAL["classification"]) for one in answer["predictions"])
    assert len(set(answer) | set(answer["predictions"][0]) - {"predictions"}) <= 13


@pytest.mark.parametrize("bundle", ["classification", "regression", "single_regression"])
def test_a_whole_answer_says_everything(bundle: str, request: pytest.FixtureRequest) -> None:
    synthetic: Synthetic = request.getfixturevalue(bundle)
    rows = np.ones((2, *synthetic.manifest.input.shape)).tolist()
    with serving(Predictor.load(synthetic.path)) as client:
        usual, whole = ask(client, rows=rows), ask(client, "?detail=full", rows)
    assert set(whole) == {"id", "model", "predictions", "warnings", "timing"}
    for short, long in zip(usual["predictions"], whole["predictions"], strict=True):
        assert set(long) == set(FIELDS[synthetic.manifest.task])
        assert short == {name: long[name] for name in USUAL[synthetic.manifest.task]}


def test_a_request_may_choose_fields(client: Client) -> None:
    whole = ask(client, "?detail=full")["predictions"]
    chosen = ask(client, "?fields=rejected,%20map_label")
    assert set(chosen) == {"id", "model", "predictions", "warnings"}
    assert chosen["predictions"] == [{name: one[name] for name in ("rejected", "map_label")} for one in whole]


def test_the_most_probable_classes(client: Client) -> None:
    whole, two = (ask(client, f"?detail=full{query}")["predictions"] for query in ("", "&top=2"))
    for one, short in zip(whole, two, strict=True):
        ranked = sorted(one["probabilities"], key=lambda name: -one["probabilities"][name])[:2]
        for field in ("probabilities", "map_probabilities", "logit_mean", "logit_variance"):
            assert list(short[field].items()) == [(name, one[field][name]) for name in ranked]
        assert short["prediction_set"] == one["prediction_set"]  # a part of it would not hold the truth as often
        assert one["prediction_set"]["size"] == len(one["prediction_set"]["labels"])
    assert ask(client, "?top=999")["predictions"][0]["probabilities"].keys() == whole[0]["probabilities"].keys()


def test_of_many_classes_ten_are_shown(many_classes: tuple[Synthetic, Client]) -> None:
    _, client = many_classes
    response = client.predict({"inputs": ROWS[:1]})
    assert len(response.content) <= 2_500  # with a set of some twenty
    (usual,), (whole,) = response.json()["predictions"], ask(client, "?detail=full", ROWS[:1])["predictions"]
    assert len(whole["probabilities"]) == len(whole["logit_variance"]) == MANY
    assert list(whole["probabilities"]) == [f"class {k}" for k in range(MANY)]
    largest = sorted(whole["probabilities"].values(), reverse=True)[:10]
    assert list(usual["probabilities"].values()) == largest
    assert usual["label"] == next(iter(usual["probabilities"]))


def test_of_ten_classes_all_are_shown_in_a_small_answer(tmp_path: Path) -> None:
    synthetic = write_linear(tmp_path / "bundle", outputs=10, spec=FEATURE_SPEC)
    with serving(Predictor.load(synthetic.path)) as client:
        for row in ROWS:
            response = client.predict({"inputs": [row]})
            (one,) = response.json()["predictions"]
            assert len(one["probabilities"]) == 10
            assert len(response.content.replace(b"class ", b"")) <= 700  # with names of one letter


@pytest.mark.parametrize(
    ("query", "field", "words"),
    [
        ("?detial=full", "detial", "(did you mean 'detail'?)"),
        ("?detail=ful", "detail", "found 'ful' (did you mean 'full'?), expected 'full', or no such parameter"),
        ("?fields=lable", "fields", "found 'lable' (did you mean 'label'?), expected some of label, probability"),
        ("?fields=", "fields", "found '', expected some of label"),
        ("?fields=label&fields=score", "fields", "found 'label, score', expected one alone"),
        ("?fields=noise_std", "fields", "found 'noise_std'"),
        ("?top=0", "top", "found '0', expected a whole number, at least 1"),
        ("?top=-1", "top", "found '-1'"),
        ("?top=two", "top", "found 'two'"),
        ("?top=%C2%B2", "top", "found '²'"),
        ("?top=99999999999", "top", "found '99999999999'"),
    ],
)
def test_what_no_answer_has(client: Client, query: str, field: str, words: str) -> None:
    found = problem(client.predict({"inputs": ROWS}, query), 422, "field")
    assert found.field == field
    assert words in found.detail


@given(st.floats(allow_nan=False, allow_infinity=False, min_value=-1e300, max_value=1e300))
def test_six_digits_are_kept(value: float) -> None:
    found = float(rounded(np.array(value)))
    assert found == pytest.approx(value, rel=5.1e-6, abs=1e-300)
    if 1e-16 < abs(value) < 1e16:
        assert len(f"{found!r}".replace("-", "").replace(".", "").split("e")[0].lstrip("0").rstrip("0")) <= 17


@given(st.floats(min_value=1e-15, max_value=1e6))
def test_no_more_than_seven_digits_are_written(value: float) -> None:
    digits = f"{float(rounded(np.array(value))):.17g}".split("e")[0]
    shortest = f"{float(rounded(np.array(value)))!r}".split("e")[0].replace(".", "").strip("0")
    assert len(shortest) <= 7, digits


def test_what_is_not_finite_stays() -> None:
    assert rounded(np.array([0.0, np.inf, -np.inf])).tolist() == [0.0, np.inf, -np.inf]
    assert np.isnan(rounded(np.array(np.nan)))
