"""Nothing redirects, a 405 names the allowed methods, and HEAD is GET without a body."""

import pytest

from tests.support.client import Client, problem

ALLOWED = {
    "/health/live": {"GET", "HEAD"},
    "/metrics": {"GET", "HEAD"},
    "/docs": {"GET", "HEAD"},
    "/docs/swagger-ui.css": {"GET", "HEAD"},
    "/openapi.json": {"GET", "HEAD"},
    "/predict": {"POST"},
    "/models": {"GET", "HEAD"},
    "/v2/health/ready": {"GET", "HEAD"},
    "/v2/models/synthetic/ready": {"GET", "HEAD"},
    "/v2/models/synthetic/versions/1/ready": {"GET", "HEAD"},
}


@pytest.mark.parametrize("path", ["/predict/", "/models/", "/health/live/", "/metrics/", "/docs/"])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_slash_too_many_is_404_and_no_redirect(client: Client, method: str, path: str) -> None:
    response = client.request(method, path, headers={"Host": "elsewhere.example"})
    problem(response, 404, "not_found")
    assert "elsewhere" not in f"{response.headers}{response.text}"


@pytest.mark.parametrize("path", ALLOWED)
def test_a_wrong_method_gets_the_allowed_ones(client: Client, path: str) -> None:
    response = client.request("PATCH", path)
    assert response.status_code == 405
    assert set(response.headers["allow"].split(", ")) == ALLOWED[path]


@pytest.mark.parametrize("path", [path for path, methods in ALLOWED.items() if "HEAD" in methods])
def test_head_is_get_without_a_body(client: Client, path: str) -> None:
    found, expected = client.request("HEAD", path), client.request("GET", path)
    assert (found.status_code, found.headers.get("content-type")) == (200, expected.headers.get("content-type"))
