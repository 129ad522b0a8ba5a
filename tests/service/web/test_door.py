"""Requests that are turned away before they come in: only those that would be turned away inside, and as they would."""

from types import SimpleNamespace
from typing import Any

import pytest
from fastapi import Response

from service.batching import QueueFull
from service.bundle import read_bundle
from service.settings import Settings
from service.web.door import SMALL_BODY, Door, _may_refuse
from tests.support.bundles import Synthetic
from tests.support.client import Client, serving
from tests.support.metrics import metric
from tests.support.requests import GOOD, JSON
from tests.support.slow import TIMEOUT, Slow


@pytest.fixture
def slow(classification: Synthetic) -> Slow:
    return Slow(read_bundle(classification.path))


def knock(client: Client, path: str, length: int | None = 2) -> Response | None:
    """What a POST is told at the door; None where it is let in."""
    headers = [(b"content-length", str(length).encode())] if length is not None else []
    app = client.app

    async def ask() -> Response | None:
        return Door(app).turns_away(path, headers)

    answer: Response | None = client.portal.call(ask)
    return answer


def test_a_full_queue_is_answered_at_the_door_as_inside(slow: Slow) -> None:
    with serving(slow, Settings(max_queue_rows=1)) as client:
        paths = ("/predict", "/models/synthetic/predict", "/v2/models/synthetic/infer")
        assert [knock(client, path) for path in paths] == [None] * 3
        running = [client.start("POST", "/predict", json={"inputs": GOOD}, headers=JSON) for _ in range(2)]
        assert slow.entered.acquire(timeout=TIMEOUT)
        while metric(client.get("/metrics").text, "probity_queue_rows") < 1:
            pass
        for path in paths:
            inside = client.request("POST", path, content=b"{}", headers=JSON)
            found = knock(client, path)
            assert found is not None
            assert (found.status_code, found.body) == (429, inside.content)
            assert dict(found.headers) == dict(inside.headers)
        refused = 'probity_http_requests_total{method="POST",route="%s",status="429"} 2.0'
        text = client.get("/metrics").text
        assert all(refused % path.replace("synthetic", "{name}") in text for path in paths)
        assert knock(client, "/predict", length=SMALL_BODY + 1) is None
        assert knock(client, "/predict", length=None) is None
        assert knock(client, "/predict?a=b") is None
        assert knock(client, "/models/other/predict") is None
        assert knock(client, "/v2/repository/index") is None
        slow.proceed.set()
        assert [one.result(TIMEOUT).status_code for one in running] == [200, 200]


def test_those_who_come_together_have_room_together_or_not(slow: Slow) -> None:
    """Nobody is in the queue before the event loop has taken in what all of them sent."""
    small, door = [(b"content-length", b"2")], list[Door]()

    async def knock_together() -> list[bool]:
        return [door[0].turns_away("/predict", small) is None for _ in range(4)]

    with serving(slow, Settings(max_queue_rows=3)) as client:
        door.append(Door(client.app))
        running = [client.start("POST", "/predict", json={"inputs": GOOD}) for _ in range(2)]
        assert slow.entered.acquire(timeout=TIMEOUT)
        while metric(client.get("/metrics").text, "probity_queue_rows") < 1:
            pass
        for _ in range(2):
            assert client.portal.call(knock_together) == [True, True, False, False]
        slow.proceed.set()
        assert [one.result(TIMEOUT).status_code for one in running] == [200, 200]


def test_what_a_full_queue_says_changes_with_it(slow: Slow) -> None:
    with serving(slow, Settings(max_queue_rows=1)) as client:
        door = Door(client.app)
        said = [
            door._say(QueueFull(*full), path).body
            for path in ("/predict", "/v2/x")
            for full in ((3, 4, 1.0), (3, 4, 2.5))
        ]
        assert [b"Try again in 1 s" in body for body in said] == [True, False, True, False]
        assert [body.startswith(b'{"error"') for body in said] == [False, False, True, True]
        assert door._say(QueueFull(3, 4, 2.1), "/v2/x").body is said[-1]


@pytest.mark.parametrize(
    ("given", "draining", "refuses"),
    [
        ({}, False, True),
        ({}, True, False),
        ({"api_keys_file": "keys"}, False, False),
        ({"cors_origins": "https://a.example"}, False, False),
    ],
)
def test_where_more_must_be_said_every_request_goes_inside(given: Any, draining: bool, refuses: bool) -> None:
    runtime: Any = SimpleNamespace(settings=Settings(**given), draining=draining)
    assert _may_refuse(runtime, [(b"content-length", b"2")]) == refuses
    for length in (b"", b"-2", b"0" * 5000 + b"2", b"\xb2"):
        assert not _may_refuse(runtime, [(b"content-length", length)])
