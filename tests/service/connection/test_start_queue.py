"""The start queue: a crowd of connections does not delay health checks."""

import asyncio
import json
import socket
import struct
import subprocess
import sys
from collections import Counter
from functools import partial

import pytest

from demur.service.connection.start_queue import MAX_REQUESTS, MAX_WAITING, StartQueue, Waiting
from tests.support.bundles import Synthetic
from tests.support.health import checked_health
from tests.support.requests import GOOD
from tests.support.server import ROOT, TIMEOUT, running

CONNECTIONS, SECONDS = 250, 6
HEALTHY_SECONDS = 2.0  # on a busy machine; a few tenths on an idle one


@pytest.mark.slow
@pytest.mark.parametrize("path", ["/nothing", "/metrics", "/openapi.json"])
def test_health_answers_while_a_crowd_asks_for_other_things(classification: Synthetic, path: str) -> None:
    with running(classification.path, DEMUR_ACCESS_LOG="false") as server:
        with checked_health(server.port) as health:
            given = [f"{server.port}", path, f"{CONNECTIONS}", f"{SECONDS}"]
            subprocess.run([sys.executable, "-m", "tests.support.crowd", *given], cwd=ROOT, check=True, timeout=TIMEOUT)
        assert health.worst < HEALTHY_SECONDS
        assert server.terminate() == 0


def test_requests_start_in_order_and_some_in_each_iteration() -> None:
    async def try_it() -> list[tuple[int, int]]:
        queue, begun, iterations = StartQueue(), list[tuple[int, int]](), 0
        for number in range(3 * MAX_REQUESTS):
            queue.submit(Waiting(partial(lambda number: begun.append((number, iterations)), number), lambda: False))
        while len(begun) < 3 * MAX_REQUESTS:
            iterations += 1
            await asyncio.sleep(0)
        return begun

    begun = asyncio.run(try_it())
    assert [number for number, _ in begun] == [*range(3 * MAX_REQUESTS)]
    assert max(Counter(which for _, which in begun).values()) <= MAX_REQUESTS


class Crowd:
    """Requests by name, that leave when they are told to."""

    def __init__(self) -> None:
        self.queue, self.begun, self.gone = StartQueue(), list[str](), set[str]()

    def submit(self, name: str, *, scrape: bool = False) -> bool:
        waiting = Waiting(partial(self.begun.append, name), lambda: name in self.gone)
        return self.queue.submit(waiting, scrape=scrape)

    async def ended(self) -> list[str]:
        """What has begun once nothing more begins."""
        for _ in range(10 * MAX_WAITING):
            await asyncio.sleep(0)
        return self.begun


def test_a_request_whose_client_has_left_never_starts() -> None:
    async def try_it() -> list[str]:
        crowd = Crowd()
        names = [str(number) for number in range(3 * MAX_REQUESTS)]
        for name in names:
            crowd.submit(name)
        crowd.gone = set(names[MAX_REQUESTS:-1])
        await asyncio.sleep(0)
        return list(crowd.begun)

    assert asyncio.run(try_it()) == [*map(str, range(MAX_REQUESTS)), str(3 * MAX_REQUESTS - 1)]  # in the next iteration


def test_a_full_queue_is_searched_for_the_gone_once_an_iteration() -> None:
    async def try_it() -> int:
        queue, asked = StartQueue(), 0

        def gone() -> bool:
            nonlocal asked
            asked += 1
            return False

        for _ in range(MAX_REQUESTS + MAX_WAITING):
            assert queue.submit(Waiting(lambda: None, gone))
        assert not any(queue.submit(Waiting(lambda: None, gone)) for _ in range(100))
        return asked

    assert asyncio.run(try_it()) == MAX_WAITING


def test_scrapes_come_last_but_go_on() -> None:
    async def try_it() -> list[str]:
        crowd = Crowd()
        for number in range(20):
            crowd.submit(f"scrape {number}", scrape=True)
        for number in range(3 * MAX_REQUESTS):
            crowd.submit(f"{number}")
        return await crowd.ended()

    begun = asyncio.run(try_it())
    assert len(begun) == 20 + 3 * MAX_REQUESTS
    last = begun.index(f"{3 * MAX_REQUESTS - 1}")
    assert 2 <= sum(name.startswith("scrape") for name in begun[:last]) <= 5


def test_no_more_wait_than_may_and_those_that_left_make_room() -> None:
    async def try_it() -> tuple[list[bool], list[str]]:
        crowd = Crowd()
        admitted = [crowd.submit(str(number)) for number in range(MAX_REQUESTS + MAX_WAITING)]
        crowd.gone = {str(MAX_REQUESTS)}
        admitted += [crowd.submit("late"), crowd.submit("too late")]
        return admitted, await crowd.ended()

    admitted, begun = asyncio.run(try_it())
    assert admitted == [True] * (MAX_REQUESTS + MAX_WAITING + 1) + [False]
    assert len(begun) == MAX_REQUESTS + MAX_WAITING
    assert begun[-1] == "late"


VANISHING = 1500


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["1", "2"])
def test_clients_that_left_delay_nobody(classification: Synthetic, workers: str) -> None:
    """A deadline counts from the arrival of a request, so that it would tell a wait."""
    with running(classification.path, DEMUR_ACCESS_LOG="false", DEMUR_WORKERS=workers) as server:
        for _ in range(VANISHING):
            with server.socket() as client:
                client.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # reset, not closed
        headers = {"Content-Type": "application/json", "X-Request-Timeout": "2"}
        assert server.request("POST", "/predict", json.dumps({"inputs": GOOD}).encode(), headers)[0] == 200
        assert server.terminate() == 0
