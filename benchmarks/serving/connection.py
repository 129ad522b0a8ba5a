"""One connection of the generator: sends a prepared request and waits for the end of its answer."""

import asyncio
import time
from typing import Any, Protocol, cast

import httptools

from benchmarks.serving.outcomes import LOST


class Player(Protocol):
    """What a connection reads and reports to: columns of the plan, and the outcome of requests."""

    sent: list[float]
    kinds: list[int]
    wires: list[bytes]
    vanish: list[float | None]

    def note(self, number: int, outcome: int) -> None: ...

    def give_back(self, connection: "Connection") -> None: ...

    def forget(self, connection: "Connection") -> None: ...


class Connection(asyncio.Protocol):
    """One connection; `number` is the request that it waits for, or None."""

    def __init__(self, player: Player) -> None:
        self.player = player
        self.number: int | None = None
        self.transport: asyncio.Transport | None = None
        self.parser: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's do not inherit from it

    def send(self, number: int) -> None:
        """Send the request; the answer is noted by `on_message_complete`."""
        assert self.transport is not None
        self.number = number
        self.parser = httptools.HttpResponseParser(self)
        self.player.sent[number] = time.monotonic()
        self.transport.write(self.player.wires[self.player.kinds[number]])

    def data_received(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError:
            self.drop(LOST)

    def on_message_complete(self) -> None:
        number, self.number = self.number, None
        if number is None:
            return
        self.player.note(number, self.parser.get_status_code())
        leaves = self.player.vanish[self.player.kinds[number]] is not None  # perhaps within its body
        if self.parser.should_keep_alive() and not leaves:
            self.player.give_back(self)
        else:
            self.close()

    def drop(self, outcome: int) -> None:
        """Give up on the request and the connection."""
        number, self.number = self.number, None
        if number is not None:
            self.player.note(number, outcome)
        self.close()

    def close(self) -> None:
        if self.transport is not None:
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        number, self.number = self.number, None
        if number is not None:
            self.player.note(number, LOST)
        self.player.forget(self)
