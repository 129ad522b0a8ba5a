"""Open loop, in a process of its own: sends each request at its moment, whether or not earlier ones were answered.

    python -m benchmarks.serving.generator PLAN.json

A thread waits for the moments, since the event loop's timers are coarse; connections are kept alive and used again, the
last one first. What is not answered is not forgotten: the latency counts from the moment at which the request was due.
"""

import asyncio
import gc
import json
import os
import resource
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import uvloop

from benchmarks.serving.connection import Connection
from benchmarks.serving.outcomes import CONNECT, NO_ANSWER, TIMEOUT, VANISHED

HEAD_START_SECONDS = 0.3  # from the plan's being read to the first request


class Player:
    """Plays one plan: `due` (n,) seconds from the start, `kinds` (n,) into the plan's requests."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self.port, self.most, self.patience = plan["port"], plan["connections"], plan["patience_seconds"]
        self.wires = [Path(kind["file"]).read_bytes() for kind in plan["kinds"]]
        self.vanish: list[float | None] = [kind["vanish_seconds"] for kind in plan["kinds"]]
        table = np.load(plan["arrivals"])
        self.due, self.kinds = table[:, 0].tolist(), table[:, 1].astype(int).tolist()
        count = len(self.due)
        self.sent, self.done, self.outcomes = [0.0] * count, [0.0] * count, [NO_ANSWER] * count
        self.idle: list[Connection] = []
        self.waiting: list[int] = []
        self.open = self.left = 0
        self.finished = asyncio.Event()

    async def play(self) -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(_end)
        self.left = len(self.due)
        self.start = time.monotonic() + HEAD_START_SECONDS
        print(json.dumps({"start": self.start}), flush=True)
        threading.Thread(target=self._keep_time, args=(loop,), daemon=True).start()
        await self.finished.wait()

    def _keep_time(self, loop: asyncio.AbstractEventLoop) -> None:
        """In a thread: wake the loop at each moment, once for all requests that are due then."""
        number, count = 0, len(self.due)
        while number < count:
            wait = self.start + self.due[number] - time.monotonic()
            if wait > 0:
                time.sleep(wait)
            first, now = number, time.monotonic() - self.start
            while number < count and self.due[number] <= now:
                number += 1
            if number > first:
                loop.call_soon_threadsafe(self._fire, range(first, number))

    def _fire(self, numbers: range) -> None:
        for number in numbers:
            if self.idle:
                self._send(self.idle.pop(), number)
            elif self.open < self.most:
                self.open += 1
                asyncio.get_running_loop().create_task(self._connect(number))
            else:
                self.waiting.append(number)

    def _send(self, connection: Connection, number: int) -> None:
        connection.send(number)
        seconds, outcome = self.vanish[self.kinds[number]], VANISHED
        if seconds is None:
            seconds, outcome = self.patience, TIMEOUT
        asyncio.get_running_loop().call_later(seconds, self._give_up, connection, number, outcome)

    def _give_up(self, connection: Connection, number: int, outcome: int) -> None:
        if connection.number == number:
            connection.drop(outcome)

    async def _connect(self, number: int) -> None:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self.patience):
                _, connection = await loop.create_connection(lambda: Connection(self), "127.0.0.1", self.port)
        except (OSError, TimeoutError):
            self.open -= 1
            self.note(number, CONNECT)
            return
        self._send(connection, number)

    def give_back(self, connection: Connection) -> None:
        """Its answer was complete: it takes the next request that waits, or rests."""
        if self.waiting:
            self._send(connection, self.waiting.pop(0))
        else:
            self.idle.append(connection)

    def forget(self, connection: Connection) -> None:
        """It has ended; a request that waits for a connection gets a new one."""
        self.open -= 1
        if connection in self.idle:
            self.idle.remove(connection)
        if self.waiting:
            self._fire(range(self.waiting[0], self.waiting.pop(0) + 1))

    def note(self, number: int, outcome: int) -> None:
        self.done[number], self.outcomes[number] = time.monotonic(), outcome
        self.left -= 1
        if not self.left:
            self.finished.set()


def _end(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """A bug: better no result than one that lacks requests."""
    loop.default_exception_handler(context)
    os._exit(1)


async def main(plan: dict[str, Any]) -> None:
    player = Player(plan)
    gc.collect()
    gc.freeze()
    gc.disable()
    await player.play()
    due = np.asarray(player.due) + player.start
    np.save(plan["results"], np.column_stack([due, player.sent, player.done, player.outcomes, player.kinds]))
    usage = resource.getrusage(resource.RUSAGE_SELF)
    elapsed = time.monotonic() - player.start
    print(json.dumps({"cores": (usage.ru_utime + usage.ru_stime) / elapsed}))


if __name__ == "__main__":
    uvloop.run(main(json.loads(Path(sys.argv[1]).read_text())))
