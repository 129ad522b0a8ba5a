"""service/web/turns.py: a crowd of connections does not hold up health."""

import asyncio
import subprocess
import sys
from collections import Counter
from functools import partial

import pytest

from service.web.turns import MOST_REQUESTS, Turns
from tests.support.bundles import Synthetic
from tests.support.health import asked_for_health
from tests.support.server import ROOT, TIMEOUT, running

CONNECTIONS, SECONDS = 250, 6
HEALTHY_SECONDS = 2.0  # on a machine that does other things beside; alone, it is a few tenths


@pytest.mark.parametrize("path", ["/nothing", "/metrics", "/openapi.json"])
def test_health_answers_while_a_crowd_asks_for_other_things(classification: Synthetic, path: str) -> None:
    with running(classification.path, PROBITY_ACCESS_LOG="false") as server:
        with asked_for_health(server.port) as health:
            given = [f"{server.port}", path, f"{CONNECTIONS}", f"{SECONDS}"]
            subprocess.run([sys.executable, "-m", "tests.support.crowd", *given], cwd=ROOT, check=True, timeout=TIMEOUT)
        assert health.worst < HEALTHY_SECONDS
        assert server.terminate() == 0


def test_requests_begin_in_order_and_some_in_each_round() -> None:
    async def try_it() -> list[tuple[int, int]]:
        turns, begun, rounds = Turns(), list[tuple[int, int]](), 0
        for number in range(3 * MOST_REQUESTS):
            turns.take(partial(lambda number: begun.append((number, rounds)), number))
        while len(begun) < 3 * MOST_REQUESTS:
            rounds += 1
            await asyncio.sleep(0)
        return begun

    begun = asyncio.run(try_it())
    assert [number for number, _ in begun] == [*range(3 * MOST_REQUESTS)]
    assert max(Counter(which for _, which in begun).values()) <= MOST_REQUESTS
