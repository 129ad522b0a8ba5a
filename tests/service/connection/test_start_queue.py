"""The start queue: a crowd of connections does not delay health checks."""

import asyncio
import subprocess
import sys
from collections import Counter
from functools import partial

import pytest

from probity.service.connection.start_queue import MAX_REQUESTS, StartQueue
from tests.support.bundles import Synthetic
from tests.support.health import checked_health
from tests.support.server import ROOT, TIMEOUT, running

CONNECTIONS, SECONDS = 250, 6
HEALTHY_SECONDS = 2.0  # on a busy machine; a few tenths on an idle one


@pytest.mark.slow
@pytest.mark.parametrize("path", ["/nothing", "/metrics", "/openapi.json"])
def test_health_answers_while_a_crowd_asks_for_other_things(classification: Synthetic, path: str) -> None:
    with running(classification.path, PROBITY_ACCESS_LOG="false") as server:
        with checked_health(server.port) as health:
            given = [f"{server.port}", path, f"{CONNECTIONS}", f"{SECONDS}"]
            subprocess.run([sys.executable, "-m", "tests.support.crowd", *given], cwd=ROOT, check=True, timeout=TIMEOUT)
        assert health.worst < HEALTHY_SECONDS
        assert server.terminate() == 0


def test_requests_start_in_order_and_some_in_each_iteration() -> None:
    async def try_it() -> list[tuple[int, int]]:
        queue, begun, iterations = StartQueue(), list[tuple[int, int]](), 0
        for number in range(3 * MAX_REQUESTS):
            queue.submit(partial(lambda number: begun.append((number, iterations)), number))
        while len(begun) < 3 * MAX_REQUESTS:
            iterations += 1
            await asyncio.sleep(0)
        return begun

    begun = asyncio.run(try_it())
    assert [number for number, _ in begun] == [*range(3 * MAX_REQUESTS)]
    assert max(Counter(which for _, which in begun).values()) <= MAX_REQUESTS
