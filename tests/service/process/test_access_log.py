"""The access log: the client that a trusted proxy names, and no query, which may hold a key."""

import pytest

from tests.support.bundles import Synthetic
from tests.support.server import running

SECRET = "s3cret-key"


@pytest.mark.parametrize("workers", ["1", "2"])
def test_no_query_is_logged(classification: Synthetic, workers: str) -> None:
    with running(classification.path, PROBITY_WORKERS=workers) as server:
        for method, path in [("GET", "/models"), ("POST", "/predict"), ("GET", "/nothing"), ("PATCH", "/predict")]:
            server.request(method, f"{path}?api_key={SECRET}&x=%3F")
            server.wait_for(f'"{method} {path} HTTP/1.1" ')
        with server.socket() as connection:
            connection.sendall(f"GET /models?api_key={SECRET} HTTP/1.1\r\nno header\r\n\r\n".encode())
            refused = connection.recv(2**16)
        server.wait_for("refused before it was a request")
        assert refused.startswith(b"HTTP/1.1 400 ")
        assert SECRET not in refused.decode()
        assert not [line for line in server.lines if SECRET in line]


@pytest.mark.parametrize(
    ("trusted", "logged"), [(None, "192.0.2.7:0"), ("10.0.0.0/8", r"127\.0\.0\.1:\d+"), ("", r"127\.0\.0\.1:\d+")]
)
def test_the_client_that_a_trusted_proxy_names_is_logged(
    classification: Synthetic, trusted: str | None, logged: str
) -> None:
    extra = {} if trusted is None else {"PROBITY_TRUSTED_PROXIES": trusted}
    with running(classification.path, FORWARDED_ALLOW_IPS="*", **extra) as server:
        server.request("GET", "/models", headers={"X-Forwarded-For": "192.0.2.7"})
        server.wait_for(f'^INFO: +{logged} - "GET /models HTTP/1.1" 200')
