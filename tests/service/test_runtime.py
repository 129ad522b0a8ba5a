"""Computing happens off the event loop, one request at a time unless more are allowed; health never waits."""

import concurrent.futures
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from demur.service import decoding
from demur.service.batching import ClientDeadlineExceeded, DeadlineExceeded
from demur.service.bundle import read_bundle
from demur.service.codec.decoding import from_json
from demur.service.http.deadline import RequestDeadline
from demur.service.inference.predictor import Predictor
from demur.service.models import cpu_share
from demur.service.routes import predict as predict_route
from demur.service.settings import Settings
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
        large = BODY + b" " * decoding.INLINE_BYTES
        assert client.request("POST", "/predict", content=large, headers=JSON).status_code == 200
        loop_thread = client.portal.call(threading.get_ident)
    assert decoders
    assert loop_thread not in slow.seen_in | set(decoders)


@pytest.mark.parametrize("concurrency", [1, 2])
def test_no_more_batches_are_computed_at_once_than_processors_allow(
    classification: Synthetic, concurrency: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu_share, "available_cpus", lambda: concurrency)
    slow = Slow(read_bundle(classification.path), threads=1)
    with serving(slow, Settings(max_batch_size=1)) as client:
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


def test_answers_of_simultaneous_requests_are_not_mixed_up(
    classification: Synthetic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu_share, "available_cpus", lambda: 4)
    with serving(Predictor.load(classification.path, threads=1)) as client:
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


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (DeadlineExceeded("late"), ClientDeadlineExceeded),
        (DeadlineExceeded("late", slow=True), DeadlineExceeded),  # it would be late for a patient client, too
    ],
)
def test_a_deadline_of_a_client_hides_no_slow_service(error: DeadlineExceeded, told: type[DeadlineExceeded]) -> None:
    with pytest.raises(DeadlineExceeded) as missed, RequestDeadline(at=1.0, latest=30.0).attributed():
        raise error
    assert type(missed.value) is told


def test_the_operators_own_deadline_is_never_the_clients() -> None:
    with pytest.raises(DeadlineExceeded) as missed, RequestDeadline(at=30.0, latest=30.0).attributed():
        raise DeadlineExceeded("late")
    assert type(missed.value) is DeadlineExceeded


def test_a_deadline_counts_from_the_arrival() -> None:
    assert RequestDeadline.of(10.0, 30.0, "2") == RequestDeadline(12, 40)
