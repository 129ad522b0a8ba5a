"""/: the files of the playground, who gets them, and what they may load."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from demur.service.inference.predictor import Predictor
from demur.service.routes.playground import FILES, MOST_SCORES, PUBLIC
from demur.service.security.api_keys import new_key
from demur.service.settings import Settings
from tests.support.bundles import FEATURE_SPEC, Synthetic, write_linear
from tests.support.client import Client, problem, serving


def test_the_page_and_all_its_files_are_served_for_this_service_alone(client: Client) -> None:
    for path in PUBLIC:
        response = client.get(path)
        assert response.status_code == 200, path
        assert response.headers["x-content-type-options"] == "nosniff"
        policy = dict(rule.split(" ", 1) for rule in response.headers["content-security-policy"].split("; "))
        assert policy["default-src"] == "'none'"
        assert policy["script-src"] == policy["connect-src"] == "'self'"
        assert "http" not in "".join(policy.values())
        assert not re.search(r"(https?:)?//(?!www\.w3\.org/)[a-z]", re.sub(r"^ *//.*$", "", response.text, flags=re.M))


def test_every_address_on_the_page_is_served(client: Client) -> None:
    addresses = re.findall(r'(?:src|href)="\.(/[^"]+)"', client.get("/").text)
    assert len(addresses) > 3
    modules = [re.findall(r'from "\./([^"]+)"', client.get(f"/playground/{name}").text) for name in FILES]
    imported = {f"/playground/{name}" for names in modules for name in names}
    for address in {*addresses, *imported}:
        assert client.get(address).status_code == 200, address


@pytest.mark.parametrize("path", ["/playground", "/playground/", "/playground/%2e%2e/app.py", "/index.html"])
def test_nothing_else_is_served_there(client: Client, path: str) -> None:
    problem(client.get(path), 404, "not_found")


def test_the_reference_is_what_requests_are_compared_with(client: Client, classification: Synthetic) -> None:
    found = client.get("/playground/reference").json()["scores"]
    np.testing.assert_allclose(found, np.sort(classification.scores), rtol=1e-12)


def test_of_many_scores_the_reference_has_evenly_spaced_ones(tmp_path: Path) -> None:
    many = write_linear(tmp_path / "many", outputs=3, spec=FEATURE_SPEC, examples=3 * MOST_SCORES)
    with serving(Predictor.load(many.path)) as client:
        found = np.array(client.get("/playground/reference").json()["scores"])
    assert len(found) == MOST_SCORES
    assert (found[0], found[-1]) == (many.scores.min(), many.scores.max())
    np.testing.assert_allclose(np.quantile(found, 0.9), np.quantile(many.scores, 0.9), atol=1e-3)


def test_it_can_be_turned_off(classification: Synthetic) -> None:
    with serving(Predictor.load(classification.path), Settings(playground=False)) as client:
        for path in (*PUBLIC, "/playground/reference"):
            assert client.get(path).status_code == 404


def test_the_files_need_no_key_and_what_they_ask_for_does(classification: Synthetic, tmp_path: Path) -> None:
    key, entry = new_key("someone")
    (tmp_path / "keys").write_text(f"{entry.line}\n")
    settings = Settings(api_keys_file=tmp_path / "keys")
    with serving(Predictor.load(classification.path), settings) as client:
        for path in PUBLIC:
            assert client.get(path).status_code == 200
        for path in ("/playground/reference", "/model"):
            problem(client.get(path), 401, "unauthorized")
            assert client.request("GET", path, headers={"X-API-Key": key}).status_code == 200
        problem(client.predict({"inputs": [[0.0] * 4]}), 401, "unauthorized")


def test_the_answers_have_the_fields_that_the_page_reads(client: Client) -> None:
    (found,) = json.loads(client.predict({"inputs": [[0.0] * 4]}, "?detail=full").text)["predictions"]
    read = {
        "probabilities",
        "map_probabilities",
        "logit_mean",
        "logit_variance",
        "uncertainty",
        "score",
        "rejected",
        "reason",
    }
    assert read <= found.keys()
