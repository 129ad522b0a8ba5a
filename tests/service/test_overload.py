"""More requests than can be computed: bounded waiting, and deadlines."""

import asyncio
import concurrent.futures
import contextlib
import json
import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from PIL import Image
from starlette.datastructures import Headers

from demur.service.batching import QueueFull
from demur.service.batching.queue import RowQueue
from demur.service.bundle import read_bundle
from demur.service.data_plane import Call, Reader, infer
from demur.service.environment.cpu import available_cpus
from demur.service.http.deadline import RequestDeadline
from demur.service.http.exchange import Exchange
from demur.service.inference.predictor import Predictor
from demur.service.settings import Settings
from tests.support.bundles import Synthetic
from tests.support.client import Client, base64_text, encoded, problem, serving
from tests.support.metrics import metric
from tests.support.processes import children_of, cpu_ticks, wait_until
from tests.support.requests import GOOD, JSON, image_file
from tests.support.slow import TIMEOUT, Slow

Answer = concurrent.futures.Future[Any]


@pytest.fixture
def slow(classification: Synthetic) -> Slow:
    return Slow(read_bundle(classification.path))


def ask(client: Client, rows: int = 1, **headers: str) -> Answer:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return client.start("POST", "/predict?detail=full", json={"inputs": [GOOD] * rows}, headers=named)


def busy(client: Client, slow: Slow) -> Answer:
    """A request that keeps the only worker busy."""
    first = ask(client)
    assert slow.entered.acquire(timeout=TIMEOUT)
    return first


def wait_for(client: Client, condition: Callable[[str], bool]) -> None:
    wait_until(lambda: condition(client.get("/metrics").text))


def queued(rows: int) -> Callable[[str], bool]:
    return lambda text: metric(text, "demur_queue_rows") == rows


@pytest.mark.usefixtures("impatient")
def test_a_full_queue_is_429_with_a_time_to_come_again(slow: Slow) -> None:
    with serving(slow, Settings(max_queue_rows=3)) as client:
        first = busy(client, slow)
        waiting = ask(client, 3)
        wait_for(client, queued(3))
        refused = ask(client).result(TIMEOUT)
        problem(refused, 429, "queue_full")
        assert int(refused.headers["retry-after"]) >= 1
        slow.proceed.set()
        assert [one.result(TIMEOUT).status_code for one in (first, waiting)] == [200, 200]
        assert metric(client.get("/metrics").text, "demur_errors_total", reason="queue_full") == 1


def test_who_waits_for_room_gets_it_and_is_told_how_long(slow: Slow) -> None:
    with serving(slow, Settings(max_queue_rows=3)) as client:
        first = busy(client, slow)
        waiting = ask(client, 3)
        wait_for(client, queued(3))
        last, leaving = ask(client), ask(client)
        wait_for(client, lambda text: metric(text, "demur_http_requests_in_flight") == 5)  # with that for the metrics
        leaving.cancel()
        slow.proceed.set()
        answers = [one.result(TIMEOUT).json() for one in (first, waiting, last)]
        assert answers[2]["timing"]["queue_seconds"] > 0
        assert metric(client.get("/metrics").text, "demur_errors_total", reason="queue_full") == 0


def test_a_body_that_stays_in_memory_waits_only_where_those_that_wait_have_some(
    slow: Slow, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As that of gRPC does. Nobody's patience ends here."""
    monkeypatch.setattr("demur.service.batching.room.PATIENCE_SECONDS", 10 * TIMEOUT)
    with serving(slow, Settings(max_queue_rows=1, max_pending_bytes=1000)) as client:
        first = busy(client, slow)
        waiting = ask(client)
        wait_for(client, queued(1))
        runtime = client.app.state.runtime

        async def refused() -> None:
            async def read(_: RequestDeadline) -> bytes:
                lease.grow(501)
                return b"x" * 501

            with runtime.byte_budget.lease() as lease:
                exchange = Exchange("POST", "/", "1.1", None, [], asyncio.get_running_loop().time())
                given = (runtime, exchange, Headers(), lease, None, None, read, contextlib.nullcontext)
                await infer(Call(*given, kept=True), lambda _: Reader("any", lambda _: pytest.fail("it was read")))

        with pytest.raises(QueueFull):
            client.portal.call(refused)
        slow.proceed.set()
        assert [one.result(TIMEOUT).status_code for one in (first, waiting)] == [200, 200]


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("most", [2, 8])
def test_what_the_queue_would_refuse_is_not_decoded(slow: Slow, most: int) -> None:
    with serving(slow, Settings(max_queue_rows=8, max_rows=most)) as client:
        first = busy(client, slow)
        waiting = [ask(client, 2) for _ in range(3)]
        wait_for(client, queued(6))
        wrong, full = ["x"] * len(GOOD), (429, "queue_full")
        problem(client.predict({"inputs": [GOOD, GOOD, GOOD, wrong]}), *(full if most > 2 else (422, "input")))
        problem(client.predict({"inputs": [wrong]}), 422, "input")
        spaces = json.dumps({"inputs": [wrong]}) + 1000 * " "  # no more than a request may have
        problem(
            client.request("POST", "/predict", content=spaces, headers=JSON), *(full if most > 2 else (422, "input"))
        )
        assert ask(client, 2, x_request_timeout="0.01").result(TIMEOUT).status_code == 504  # for whom there is room
        slow.proceed.set()
        assert [one.result(TIMEOUT).status_code for one in (first, *waiting)] == [200] * 4


def test_a_deadline_ends_the_waiting(slow: Slow) -> None:
    with serving(slow) as client:
        first = busy(client, slow)
        problem(ask(client, x_request_timeout="0.01").result(TIMEOUT), 504, "deadline_client")
        assert metric(client.get("/metrics").text, "demur_queue_rows") == 0
        slow.proceed.set()
        assert first.result(TIMEOUT).status_code == 200
        assert ask(client, x_request_timeout="30").result(TIMEOUT).status_code == 200


def test_the_operator_s_deadline_holds_whatever_the_client_asks(slow: Slow) -> None:
    with serving(slow, Settings(request_timeout_seconds=0.5)) as client:
        first = busy(client, slow)
        problem(ask(client, x_request_timeout="1e6").result(TIMEOUT), 504, "deadline")
        text = client.get("/metrics").text
        problem(first.result(TIMEOUT), 504, "deadline")  # it holds for what is computed, too
        assert metric(text, "demur_errors_total", reason="deadline") == 2
        assert metric(text, "demur_errors_total", reason="deadline_client") == 0
        slow.proceed.set()


@pytest.mark.parametrize("text", ["", "soon", "0", "-1", "nan", "inf", "1e999"])
def test_a_deadline_that_is_none_is_refused(client: Client, text: str) -> None:
    found = problem(client.predict({"inputs": GOOD}, x_request_timeout=text), 422, "field")
    assert found.field == "X-Request-Timeout"


def test_no_client_hides_by_its_deadline_that_memory_is_full(slow: Slow) -> None:
    with serving(slow, Settings(max_pending_bytes=100)) as client:
        first = busy(client, slow)
        long = b'{"inputs": [1, 2, 3, 4]}' + b" " * 200
        problem(client.predict(long, x_request_timeout="0.2"), 429, "queue_full")
        slow.proceed.set()
        assert first.result(TIMEOUT).status_code == 200


@pytest.mark.usefixtures("impatient")
def test_bodies_under_way_are_bounded(slow: Slow) -> None:
    with serving(slow, Settings(max_pending_bytes=100)) as client:
        first = busy(client, slow)
        refused = client.predict(b'{"inputs": [1, 2, 3, 4]}' + b" " * 200)
        problem(refused, 429, "queue_full")
        assert refused.headers["retry-after"]
        slow.proceed.set()
        assert first.result(TIMEOUT).status_code == 200
        assert client.predict(b'{"inputs": [1, 2, 3, 4]}' + b" " * 200).status_code == 200  # one always fits


def test_a_client_that_goes_takes_its_rows_out_of_the_queue(slow: Slow) -> None:
    with serving(slow) as client:
        first = busy(client, slow)
        leaving, staying = ask(client, 5), ask(client, 2)
        wait_for(client, queued(7))
        leaving.cancel()
        wait_for(client, queued(2))
        slow.proceed.set()
        assert first.result(TIMEOUT).status_code == 200
        assert staying.result(TIMEOUT).status_code == 200


def test_when_the_batcher_has_died_the_service_says_so(
    classification: Synthetic, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(Predictor.load(classification.path)) as client:
        assert client.predict({"inputs": GOOD}).status_code == 200
        monkeypatch.setattr(RowQueue, "take", lambda *_, **__: [][0])
        problem(client.predict({"inputs": GOOD}), 503, "batcher_failed")
        problem(client.get("/health/ready"), 503, "not_ready")
        problem(client.get("/health/live"), 503, "batcher_failed")
        problem(client.predict({"inputs": GOOD}), 503, "batcher_failed")
        assert client.get("/metrics").status_code == 200
    assert "IndexError" in caplog.text


@pytest.mark.parametrize("rows", [1, 3])
def test_batched_answers_equal_single_ones(classification: Synthetic, rows: int) -> None:
    """Whatever else is in the batch: probabilities within 1e-5, and equal flags."""
    slow = Slow(read_bundle(classification.path))
    inputs = np.random.default_rng(5).normal(scale=2, size=(40, rows, 4))
    with serving(slow) as client:
        first = busy(client, slow)
        running = [client.start("POST", "/predict", json={"inputs": rows.tolist()}, headers=JSON) for rows in inputs]
        wait_for(client, queued(40 * rows))
        slow.proceed.set()
        assert first.result(TIMEOUT).status_code == 200
        batched = [one.result(TIMEOUT).json()["predictions"] for one in running]
    with serving(Predictor.load(classification.path)) as client:
        for one, batch in zip(inputs, batched, strict=True):
            for row, found in zip(one, batch, strict=True):
                (alone,) = client.predict({"inputs": row.tolist()}).json()["predictions"]
                assert found["probabilities"] == pytest.approx(alone["probabilities"], rel=1e-5)
                assert found["rejected"] is alone["rejected"]
                assert found["label"] == alone["label"]


def long_work(most: int = 4) -> dict[str, list[str]]:
    """Images of many pixels in a small body: seconds of decoding."""
    return {"images": [base64_text(encoded(Image.new("RGBA", (4096, 4096))))] * most}


def children() -> set[int]:
    return children_of(os.getpid())


@contextlib.contextmanager
def with_a_decoder(images: Synthetic) -> Iterator[tuple[Client, set[int]]]:
    """A service with a decoder process that is ready, and the processes that were there before."""
    before, noise = children(), base64_text(encoded(Image.effect_noise((100, 100), 50)))
    with serving(Predictor.load(images.path)) as client:
        assert client.predict({"images": [noise]}).status_code == 200
        assert len(children() - before) == 1
        yield client, before


def test_decoding_ends_at_the_deadline(images: Synthetic) -> None:
    with with_a_decoder(images) as (client, before):
        problem(client.predict(long_work(), x_request_timeout="0.2"), 504, "deadline_client")
        wait_until(lambda: children() == before)


def test_decoding_ends_when_its_client_goes(images: Synthetic) -> None:
    with with_a_decoder(images) as (client, before):
        (decoder,) = children() - before
        leaving = client.start("POST", "/predict", json=long_work())
        spent = cpu_ticks(decoder)
        wait_until(lambda: cpu_ticks(decoder) > spent)
        leaving.cancel()
        wait_until(lambda: children() == before)


def test_requests_that_wait_for_a_decoder_have_a_deadline_too(images: Synthetic) -> None:
    before = children()
    with serving(Predictor.load(images.path)) as client:
        busy = [client.start("POST", "/predict", json=long_work()) for _ in range(available_cpus())]
        wait_until(lambda: len(children() - before) == len(busy))
        problem(client.predict(long_work(1), x_request_timeout="0.2"), 504, "deadline_client")
        assert client.predict({"images": [base64_text(image_file())]}).status_code == 200  # a small one needs none
        assert not any(one.done() for one in busy)
        for one in busy:
            one.cancel()


def test_decoded_inputs_count_as_memory(slow: Slow) -> None:
    with serving(slow, Settings(max_pending_bytes=2000)) as client:
        first = busy(client, slow)
        zeros = {"inputs": [[0] * 4] * 60}  # in JSON not as long as the 16 bytes that each example takes
        second = client.start("POST", "/predict", json=zeros)
        wait_for(client, queued(60))
        problem(client.predict(zeros), 429, "queue_full")
        slow.proceed.set()
        assert [one.result(TIMEOUT).status_code for one in (first, second)] == [200, 200]
