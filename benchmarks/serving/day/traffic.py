"""The requests of a minute, over connections to both replicas that are kept alive, and the labels that come later."""

import asyncio
import json
import re
from collections import defaultdict, deque
from dataclasses import dataclass, field

import numpy as np

from benchmarks.serving.connection import Connection
from benchmarks.serving.day.bundles import Population
from benchmarks.serving.day.plan import DRIFT, LABEL_DELAY, LABELLED, MALFORMED, MALFORMED_SHARE, MINUTES
from benchmarks.serving.digits import Request, binary
from benchmarks.serving.mixture import malformed
from benchmarks.serving.outcomes import CONNECT, OK

CONNECTIONS = 8  # to each replica
RECEIPT = re.compile(rb'"receipt":"([^"]+)"')


@dataclass
class Batch:
    """Requests as they are sent; labels: by their numbers, the true ones of answers that are labelled later."""

    wires: list[bytes] = field(default_factory=list)
    labels: dict[int, str] = field(default_factory=dict)


class Requests:
    """Predictions and labels, minute after minute."""

    def __init__(self, seed: int) -> None:
        self._population, self._random = Population(seed), np.random.default_rng(seed)
        whole = binary(1)
        self._head = whole.wire()[: -4 * self._population.images[0].size]  # the image is its end
        self._malformed = [request.wire() for request, _ in malformed(whole)]
        self._due: dict[int, list[bytes]] = defaultdict(list)
        self.unlabelled = 0

    def predictions(self, minute: int, count: int) -> Batch:
        """One image each."""
        images, labels = self._population.draw(count, turned=minute in DRIFT)
        wires = [self._head + image.tobytes() for image in images]
        if minute in MALFORMED:
            for number in np.flatnonzero(self._random.random(count) < MALFORMED_SHARE):
                wires[number] = self._malformed[number % len(self._malformed)]
        chosen = np.flatnonzero(self._random.random(count) < LABELLED)
        return Batch(wires, {int(number): f"{labels[number]}" for number in chosen})

    def learn(self, minute: int, batch: Batch, answers: dict[int, bytes]) -> None:
        """Keep the receipts of the answers to a batch until their labels come; some do not on this day."""
        for number, body in answers.items():
            if found := RECEIPT.search(body):
                due = minute + int(self._random.integers(*LABEL_DELAY, endpoint=True))
                sent = {"receipt": found[1].decode(), "labels": [batch.labels[number]]}
                self._due[due].append(Request("label", "/feedback", json.dumps(sent).encode()).wire())
                self.unlabelled += due >= MINUTES

    def labels(self, minute: int) -> Batch:
        """Those that come in this minute."""
        return Batch(self._due.pop(minute, []))


class Clients:
    """So many connections to each replica, each of which sends its next request when the last one was answered.

    It is what `Connection` reports to (`benchmarks.serving.connection.Player`).
    """

    def __init__(self) -> None:
        self.sent: list[float] = []
        self.kinds: list[int] = []
        self.wires: list[bytes] = []
        self.vanish: list[float | None] = []
        self.outcomes: list[int] = []
        self.kept: dict[int, bytes] = {}
        self._waiting: dict[int, deque[int]] = {}
        self._idle: dict[int, list[Answering]] = defaultdict(list)
        self._left = 0
        self._finished = asyncio.Event()

    async def send(self, batch: Batch, ports: list[int]) -> tuple[list[int], dict[int, bytes]]:
        """Send it all to the ports in turn and wait for every answer: outcomes, and the bodies to be labelled."""
        count = len(batch.wires)
        if not count:
            return [], {}
        self.wires, self.kinds = batch.wires, list(range(count))
        self.sent, self.vanish, self.outcomes = [0.0] * count, [None] * count, [0] * count
        self.kept = dict.fromkeys(batch.labels, b"")
        self._left = count
        self._finished.clear()
        self._waiting = {port: deque(range(place, count, len(ports))) for place, port in enumerate(ports)}
        for port, waiting in self._waiting.items():
            idle = self._idle.pop(port, [])
            for _ in range(min(CONNECTIONS, len(waiting))):
                if idle:
                    idle.pop().send(waiting.popleft())
                else:
                    asyncio.get_running_loop().create_task(self._connect(port, waiting.popleft()))
            self._idle[port] += idle
        await self._finished.wait()
        return self.outcomes, {number: body for number, body in self.kept.items() if self.outcomes[number] == OK}

    async def close(self) -> None:
        """End all connections, none of which waits for an answer."""
        for connection in [one for idle in self._idle.values() for one in idle]:
            connection.close()
        await asyncio.sleep(0)  # the loop ends them in its next round

    async def _connect(self, port: int, number: int) -> None:
        loop = asyncio.get_running_loop()
        try:
            _, connection = await loop.create_connection(lambda: Answering(self, port), "127.0.0.1", port)
        except OSError:
            self.note(number, CONNECT)
            self._go_on(port)
            return
        connection.send(number)

    def give_back(self, connection: Connection) -> None:
        """Its answer was complete: it takes the next request of its replica, or rests."""
        assert isinstance(connection, Answering)
        if waiting := self._waiting[connection.port]:
            connection.send(waiting.popleft())
        else:
            self._idle[connection.port].append(connection)

    def forget(self, connection: Connection) -> None:
        """It has ended; another one takes the next request."""
        assert isinstance(connection, Answering)
        idle = self._idle[connection.port]
        if connection in idle:
            idle.remove(connection)
        else:
            self._go_on(connection.port)

    def _go_on(self, port: int) -> None:
        if waiting := self._waiting.get(port):
            asyncio.get_running_loop().create_task(self._connect(port, waiting.popleft()))

    def note(self, number: int, outcome: int) -> None:
        self.outcomes[number] = outcome
        self._left -= 1
        if not self._left:
            self._finished.set()


class Answering(Connection):
    """A connection that keeps the bodies of answers which are labelled later."""

    def __init__(self, clients: Clients, port: int) -> None:
        super().__init__(clients)
        self._clients, self.port = clients, port

    def on_body(self, body: bytes) -> None:
        if self.number in self._clients.kept:
            self._clients.kept[self.number] += body
