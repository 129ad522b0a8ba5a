"""Early rejection: only requests that the application would reject, and with the same response."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from fastapi import Response

from probity.service.bundle import read_bundle
from probity.service.connection.early_rejection import SMALL_BODY, EarlyRejection, may_reject
from probity.service.settings import Settings
from tests.support.bundles import Synthetic
from tests.support.client import Client, serving
from tests.support.metrics import metric
from tests.support.processes import wait_until
from tests.support.requests import GOOD, JSON
from tests.support.slow import TIMEOUT, Slow

PATHS = ("/predict", "/models/synthetic/predict", "/v2/models/synthetic/infer")
SMALL = [(b"content-length", b"2")]


@pytest.fixture
def slow(classification: Synthetic) -> Slow:
    return Slow(read_bundle(classification.path))


@contextmanager
def one_queued(client: Client, slow: Slow) -> Iterator[None]:
    """One request is computed, and one waits, during the block."""
    running = [client.start("POST", "/predict", json={"inputs": GOOD}, headers=JSON) for _ in range(2)]
    assert slow.entered.acquire(timeout=TIMEOUT)
    wait_until(lambda: metric(client.get("/metrics").text, "probity_queue_rows") == 1)
    yield
    slow.proceed.set()
    assert [one.result(TIMEOUT).status_code for one in running] == [200, 200]


def check(client: Client, *paths: str, length: int | None = 2) -> list[Response | None]:
    """The early responses to POSTs that arrive in the same iteration of the event loop."""
    headers = [(b"content-length", str(length).encode())] if length is not None else []
    rejection = EarlyRejection(client.app)

    async def check_all() -> list[Response | None]:
        return [rejection.reject_early(path, headers) for path in paths]

    responses: list[Response | None] = client.portal.call(check_all)
    return responses


def test_a_full_queue_is_answered_as_by_the_application(slow: Slow) -> None:
    with serving(slow, Settings(max_queue_rows=1)) as client:
        for path in PATHS:
            assert check(client, path) == [None]
        with one_queued(client, slow):
            for path in PATHS:
                expected = client.request("POST", path, content=b"{}", headers=JSON)
                (response,) = check(client, path)
                assert response is not None
                assert (response.status_code, response.body) == (429, expected.content)
                assert {**response.headers, "x-request-id": expected.headers["x-request-id"]} == dict(expected.headers)
            refused = 'probity_http_requests_total{method="POST",route="%s",status="429"} 2.0'
            text = client.get("/metrics").text
            assert all(refused % path.replace("synthetic", "{name}") in text for path in PATHS)


def test_everything_else_is_left_to_the_application(slow: Slow) -> None:
    with serving(slow, Settings(max_queue_rows=1)) as client, one_queued(client, slow):
        assert check(client, "/predict", length=SMALL_BODY + 1) == [None]
        assert check(client, "/predict", length=None) == [None]
        others = ("/predict?a=b", "/models/other/predict", "/v2/repository/index")
        assert check(client, *others) == [None] * len(others)


def test_requests_that_are_not_queued_yet_are_counted(slow: Slow) -> None:
    """None of them is in the queue before the event loop has read what all clients sent."""
    with serving(slow, Settings(max_queue_rows=3)) as client, one_queued(client, slow):
        for _ in range(2):
            rejected = [response is not None for response in check(client, *["/predict"] * 4)]
            assert rejected == [False, False, True, True]


def test_equal_responses_are_rendered_once(slow: Slow) -> None:
    with serving(slow, Settings(max_queue_rows=1)) as client, one_queued(client, slow):
        first, again, other = check(client, "/predict", "/predict", "/v2/models/synthetic/infer")
        assert first is not None
        assert first is again
        assert other is not None
        assert bytes(other.body).startswith(b'{"error"')


@pytest.mark.parametrize(
    ("given", "draining", "expected"),
    [
        ({}, False, True),
        ({}, True, False),
        ({"api_keys_file": "keys"}, False, False),
        ({"cors_origins": "https://a.example"}, False, False),
    ],
)
def test_where_the_middleware_must_answer_nothing_is_rejected_early(given: Any, draining: bool, expected: bool) -> None:
    runtime: Any = SimpleNamespace(settings=Settings(**given), draining=draining)
    assert may_reject(runtime, SMALL) == expected
    for length in (b"", b"-2", b"0" * 5000 + b"2", b"\xb2"):
        assert not may_reject(runtime, [(b"content-length", length)])
