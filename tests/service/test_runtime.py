"""Computing happens off the event loop, one request at a time unless more are allowed; health never waits."""

import concurrent.futures
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from probity.service.bundle import read_bundle
from probity.service.codec.decoding import from_json
from probity.service.inference.predictor import Predictor
from probity.service.routes import decode as decode_route
from probity.service.routes import predict as predict_route
from probity.service.settings import Settings
from tests.support.bundles import Synthetic, in_chunks
from tests.support.client import Client, serving
from tests.support.requests import GOOD, JSON
from tests.support.slow import TIMEOUT, Slow

BODY = b'{"inputs": ' + str(GOOD).encode() + b"}"


@pytest.fixture
def slow(classification: Synthetic) -> Slow:
    return Slow(read_bundle(classification.path))


def start(client: Client) -> "concurrent.futures.Future[Any]":
    return client.start("POST", "/predict", content=BODY, headers=JSON)


def test_health_and_metrics_answer_while_a_prediction_is_computed(slow: Slow) -> None:
    with serving(slow) as client:
        running = start(client)
        assert slow.entered.acquire(timeout=TIMEOUT)
        for path in ("/health/live", "/health/ready", "/metrics", "/model"):
            assert client.get(path).status_code == 200
        assert not running.done()
        slow.proceed.set()
        assert running.result(TIMEOUT).status_code == 200


def test_the_event_loop_never_computes_nor_decodes_large_bodies(slow: Slow, monkeypatch: pytest.MonkeyPatch) -> None:
    decoders: list[int] = []

    def noting(*arguments: Any) -> Any:
        decoders.append(threading.get_ident())
        return from_json(*arguments)

    monkeypatch.setattr(predict_route, "from_json", noting)
    slow.proceed.set()
    with serving(slow) as client:
        large = BODY + b" " * decode_route.INLINE_BYTES
        assert client.request("POST", "/predict", content=large, headers=JSON).status_code == 200
        loop_thread = client.portal.call(threading.get_ident)
    assert decoders
    assert loop_thread not in slow.seen_in | set(decoders)


@pytest.mark.parametrize("concurrency", [1, 2])
def test_no_more_batches_are_computed_at_once_than_allowed(slow: Slow, concurrency: int) -> None:
    with serving(slow, Settings(concurrency=concurrency, max_batch_size=1)) as client:
        running = [start(client) for _ in range(4)]
        for _ in range(concurrency):  # so many get in, and at the same time
            assert slow.entered.acquire(timeout=TIMEOUT)
        assert client.get("/health/live").status_code == 200
        assert not any(one.done() for one in running)
        slow.proceed.set()
        assert [one.result(TIMEOUT).status_code for one in running] == [200] * 4
    assert slow.most_at_once == concurrency


def test_a_waiting_request_is_bad_without_harm_to_the_others(slow: Slow) -> None:
    with serving(slow) as client:
        first = start(client)
        assert slow.entered.acquire(timeout=TIMEOUT)
        bad = client.start("POST", "/predict", content=b'{"inputs": [1]}', headers=JSON)
        last = start(client)
        slow.proceed.set()
        assert first.result(TIMEOUT).status_code == 200
        assert bad.result(TIMEOUT).status_code == 422
        assert last.result(TIMEOUT).status_code == 200


def test_answers_of_simultaneous_requests_are_not_mixed_up(classification: Synthetic) -> None:
    predictor = Predictor.load(classification.path)
    with serving(predictor, Settings(concurrency=4)) as client:
        bodies = [{"inputs": [float(i), -1.0, 0.5, 2.0]} for i in range(24)]
        running = [client.start("POST", "/predict", json=body) for body in bodies]
        found = [one.result(TIMEOUT).json()["predictions"] for one in running]
        assert found == [client.predict(body).json()["predictions"] for body in bodies]


def test_the_predictor_may_be_used_from_several_threads(classification: Synthetic, tmp_path: Path) -> None:
    predictor = Predictor.load(in_chunks(classification.path, tmp_path / "bundle", 7))
    inputs = np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32)
    expected = predictor.predict(inputs).probabilities
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for found in pool.map(lambda _: predictor.predict(inputs).probabilities, range(40)):
            np.testing.assert_array_equal(found, expected)
