"""Whose fault a slow body is: the client's, and no deadline of the service's or of the body's own begins before it."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from demur.service.http.exchange import Exchange
from demur.service.http.middleware import Exchanges
from demur.service.inference.predictor import Predictor
from demur.service.monitoring.metrics import Metrics
from demur.service.settings import Settings
from tests.support.bundles import Synthetic
from tests.support.client import problem, serving
from tests.support.metrics import metric
from tests.support.v2 import GOOD, INFER

ROW = json.dumps({"inputs": [[0.5, -1.0, 2.0, 0.25]]}).encode()


@pytest.mark.parametrize(("operator", "client"), [(0.8, 30.0), (30.0, 0.2)])
def test_a_body_that_does_not_come_in_time_is_no_failure_of_the_service(
    classification: Synthetic, operator: float, client: float
) -> None:
    async def endless() -> AsyncIterator[bytes]:
        yield ROW[:10]
        await asyncio.Event().wait()

    settings = Settings(request_timeout_seconds=operator, client_timeout_seconds=client)
    with serving(Predictor.load(classification.path), settings) as asking:
        headers = {"content-type": "application/json"}
        problem(asking.request("POST", "/predict", content=endless(), headers=headers), 408, "body_timeout")


def test_the_timeout_of_a_v2_request_begins_once_it_is_read(classification: Synthetic) -> None:
    body = json.dumps({**GOOD, "parameters": {"timeout": 200_000}}).encode()

    async def slowly() -> AsyncIterator[bytes]:
        yield body[:10]
        await asyncio.sleep(0.4)
        yield body[10:]

    with serving(Predictor.load(classification.path)) as asking:
        response = asking.request("POST", INFER, content=slowly())
        assert response.status_code == 200, response.text


def test_the_time_of_a_request_begins_with_its_first_byte() -> None:
    """However long it waits to be looked at."""

    registry = CollectorRegistry()

    async def answered() -> None:
        exchanges = Exchanges(Metrics(registry), access_log=False)
        exchange = Exchange("GET", "/", "1.1", None, [], asyncio.get_running_loop().time() - 5, status=200)
        exchanges.begin(exchange)
        exchanges.end(exchange)

    asyncio.run(answered())
    assert metric(generate_latest(registry).decode(), "demur_http_request_duration_seconds_sum") >= 5
