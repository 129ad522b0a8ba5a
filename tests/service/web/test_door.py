"""Requests that are turned away before they come in: only those that would be turned away inside, and as they would."""

from types import SimpleNamespace
from typing import Any

import pytest

from service.bundle import read_bundle
from service.settings import Settings
from service.web.door import SMALL_BODY, Door, _may_refuse
from tests.support_bundles import Synthetic
from tests.support_client import Client, serving
from tests.support_metrics import metric
from tests.support_requests import GOOD, JSON
from tests.support_slow import TIMEOUT, Slow

Message = dict[str, Any]


@pytest.fixture
def slow(classification: Synthetic) -> Slow:
    return Slow(read_bundle(classification.path))


def knock(client: Client, path: str, length: int | None = 2, method: str = "POST") -> list[Message] | None:
    """What is answered at the door; None where the request was let in."""
    sent, let_in = list[Message](), []
    app = client.app

    class Inside:
        state = app.state

        async def __call__(self, *_: Any) -> None:
            let_in.append(True)

    async def send(message: Message) -> None:
        sent.append(message)

    async def ask() -> None:
        headers = [(b"content-length", str(length).encode())] if length is not None else []
        scope = {"type": "http", "method": method, "path": path, "headers": headers}
        await Door(Inside())(scope, lambda: None, send)  # type: ignore[arg-type]

    client.portal.call(ask)
    return None if let_in else sent


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
            start, body = found
            assert (start["status"], body["body"]) == (429, inside.content)
            headers = {name.decode(): value.decode() for name, value in start["headers"]}
            assert headers == dict(inside.headers)
        refused = 'probity_http_requests_total{method="POST",route="%s",status="429"} 2.0'
        text = client.get("/metrics").text
        assert all(refused % path.replace("synthetic", "{name}") in text for path in paths)
        assert knock(client, "/predict", length=SMALL_BODY + 1) is None
        assert knock(client, "/predict", length=None) is None
        assert knock(client, "/predict", method="GET") is None
        assert knock(client, "/models/other/predict") is None
        assert knock(client, "/v2/repository/index") is None
        slow.proceed.set()
        assert [one.result(TIMEOUT).status_code for one in running] == [200, 200]


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
    assert _may_refuse(runtime, {"headers": [(b"content-length", b"2")]}) == refuses
