"""The application with API keys: what needs one, what does not, and the answer to requests without."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from demur.service.app import create_app
from demur.service.inference.predictor import Predictor
from demur.service.security.api_keys import KeyFileError, new_key
from demur.service.settings import Settings
from tests.support.bundles import Synthetic
from tests.support.client import Client, problem, serving
from tests.support.requests import GOOD
from tests.support.server import run_to_end, running

ORIGIN = "https://page.example"
CLOSED = ["/predict", "/model", "/models", "/docs", "/openapi.json", "/nothing", "/v2", "/v2/models", "/health"]
PREFLIGHT = {"Origin": ORIGIN, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "x-api-key"}


@pytest.fixture(scope="module")
def key_and_file(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    key, entry = new_key("tester")
    file = tmp_path_factory.mktemp("keys") / "keys"
    file.write_text(entry.line)
    return key, file


@pytest.fixture(scope="module")
def key(key_and_file: tuple[str, Path]) -> str:
    return key_and_file[0]


@pytest.fixture(scope="module")
def locked(classification: Synthetic, key_and_file: tuple[str, Path]) -> Iterator[Client]:
    settings = Settings(api_keys_file=key_and_file[1], cors_origins=(ORIGIN,), metrics_public=False)
    with serving(Predictor.load(classification.path), settings) as client:
        yield client


def forms(key: str) -> list[dict[str, str]]:
    """The ways to present a key."""
    return [{"Authorization": f"Bearer {key}"}, {"authorization": f"bearer  {key}"}, {"X-API-Key": key}]


def test_with_a_key_everything_is_answered(locked: Client, key: str) -> None:
    for headers in forms(key):
        response = locked.request("POST", "/predict", content=json.dumps({"inputs": GOOD}), headers=headers)
        assert response.status_code == 200
        assert locked.request("GET", "/metrics", headers=headers).status_code == 200
        assert locked.request("GET", "/nothing", headers=headers).status_code == 404


@pytest.mark.parametrize("path", [*CLOSED, "/metrics", "/health/live/", "/health/../predict", "//health/live"])
@pytest.mark.parametrize("method", ["GET", "POST", "HEAD", "OPTIONS"])
def test_without_a_key_nothing_is_told(locked: Client, method: str, path: str) -> None:
    response = locked.request(method, f"http://test{path}")
    assert response.status_code == 401
    assert response.headers["www-authenticate"] == "Bearer"
    if method == "HEAD":
        return
    if path == "/v2" or path.startswith("/v2/"):
        assert [*response.json()] == ["error"]
    else:
        problem(response, 401, "unauthorized")


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": "Bearer"},
        {"Authorization": "Bearer "},
        {"Authorization": "Bearer wrong"},
        {"Authorization": "Basic KEY"},
        {"Authorization": "KEY"},
        {"X-API-Key": ""},
        {"X-API-Key": "KEYx"},
        {"Cookie": "X-API-Key=KEY"},
        {"Authorization": "Bearer wrong", "X-API-Key": "KEYx"},
        {"X-API-Key": b"\xff\xfe"},
    ],
    ids=str,
)
def test_what_is_no_good_key_is_refused(locked: Client, key: str, headers: dict[str, str | bytes]) -> None:
    sent = [
        (name, value.replace("KEY", key).encode() if isinstance(value, str) else value)
        for name, value in headers.items()
    ]
    response = locked.request("GET", "/model", headers=sent)
    problem(response, 401, "unauthorized")
    assert key not in response.text


def test_a_proxy_may_have_a_key_of_its_own_in_the_other_header(locked: Client, key: str) -> None:
    headers = {"Authorization": "Bearer of-the-proxy", "X-API-Key": key}
    assert locked.request("GET", "/model", headers=headers).status_code == 200


def test_a_key_in_the_address_is_none(locked: Client, key: str) -> None:
    assert locked.get(f"/model?api_key={key}&key={key}").status_code == 401


@pytest.mark.parametrize("path", ["/health/live", "/health/ready", "/v2/health/live", "/v2/health/ready"])
def test_health_needs_no_key(locked: Client, path: str) -> None:
    assert locked.get(path).status_code == 200


def test_refusals_are_counted(locked: Client, key: str) -> None:
    def unauthorized() -> float:
        text = locked.request("GET", "/metrics", headers={"X-API-Key": key}).text
        lines = [line for line in text.splitlines() if line.startswith('demur_errors_total{reason="unauthorized"}')]
        return sum(float(line.split()[1]) for line in lines)

    before = unauthorized()
    locked.get("/model")
    assert unauthorized() == before + 1


def test_metrics_are_public_unless_told_otherwise(classification: Synthetic, key_and_file: tuple[str, Path]) -> None:
    with serving(Predictor.load(classification.path), Settings(api_keys_file=key_and_file[1])) as client:
        assert client.get("/metrics").status_code == 200
        assert client.get("/model").status_code == 401
        assert client.request("OPTIONS", "/predict", headers=PREFLIGHT).status_code == 401  # CORS is off


def test_a_preflight_passes_and_a_page_may_read_the_refusal(locked: Client) -> None:
    response = locked.request("OPTIONS", "/predict", headers=PREFLIGHT)
    assert response.status_code == 200
    assert response.headers["access-control-allow-origin"] == ORIGIN
    refused = locked.request("POST", "/predict", headers={"Origin": ORIGIN})
    assert refused.status_code == 401
    assert refused.headers["access-control-allow-origin"] == ORIGIN
    readable = "Retry-After, X-Request-ID, Inference-Header-Content-Length"
    assert refused.headers["access-control-expose-headers"] == readable
    other = locked.request("OPTIONS", "/predict", headers=PREFLIGHT | {"Origin": "https://other.example"})
    assert other.status_code == 400


def test_a_bad_file_is_an_error_at_the_start(classification: Synthetic, tmp_path: Path) -> None:
    with pytest.raises(KeyFileError):
        create_app(Predictor.load(classification.path), Settings(api_keys_file=tmp_path / "missing"))
    for workers in ("1", "2"):
        extra = {"DEMUR_API_KEYS_FILE": str(tmp_path / "missing"), "DEMUR_WORKERS": workers}
        status, _, errors = run_to_end(str(classification.path), "--port", "0", **extra)
        assert status == 2
        (line,) = errors.splitlines()
        assert line.startswith(f"error: {tmp_path / 'missing'}: cannot be read")


def test_no_key_is_ever_logged(
    classification: Synthetic, key_and_file: tuple[str, Path], caplog: pytest.LogCaptureFixture
) -> None:
    key, file = key_and_file
    caplog.set_level(logging.DEBUG)
    with running(classification.path, DEMUR_API_KEYS_FILE=str(file), DEMUR_LOG_LEVEL="debug") as server:
        for headers in (*forms(key), {"X-API-Key": f"wrong-{key}"}):
            server.request("GET", "/model", headers=headers)
        server.socket().close()
        assert server.request("GET", "/model", headers={"X-API-Key": key})[0] == 200
        assert server.request("GET", "/model")[0] == 401
        server.terminate()
    assert not [line for line in server.lines if key in line]
