"""A connection whose bytes are parsed slice by slice: no further than its answers, and tiny pieces in their turn."""

import asyncio
from typing import Any

from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT

from service.web.pacing import HeldFlow, Pacer, is_dense
from service.web.turning_away import TurningAwayProtocol


class PacedProtocol(TurningAwayProtocol):
    """While a request waits for the answer to an earlier one, nothing more is parsed and nothing more is read: bodies
    that are sent ahead stay with their client."""

    pacer: Pacer
    flow: HeldFlow
    _in_head: bool

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._unparsed = memoryview(b"")
        self._deaf = False  # after a refusal, what comes is thrown away
        self._pieces, self._dense = 0, False  # of bodies so far; whether some of them were tiny
        self._body_pieces = self._body_bytes = 0  # of the body that comes now

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.flow = HeldFlow(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self.pacer.forget(self._parse_in_turn)
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        self._body_pieces = self._body_bytes = 0
        super().on_message_begin()

    def on_body(self, body: bytes) -> None:
        self._pieces += 1
        self._body_pieces += 1
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self.flow.resume_reading()  # after a long body it is paused, and the end of the connection would go unnoticed

    def _feed(self, piece: memoryview) -> int:
        """Let the parser have it; how much it took."""
        raise NotImplementedError

    def _slice_bytes(self) -> int:
        """How much the parser may have at once."""
        raise NotImplementedError

    def _hang_up(self) -> None:
        """Throw away what still comes, for a while, and close."""
        raise NotImplementedError

    def _parse(self, data: bytes) -> None:
        self._unparsed = memoryview(b"".join([self._unparsed, data]) if self._unparsed else data)
        self._go_on()

    def _go_on(self) -> None:
        """Parse what has come, unless earlier requests want their answers, or tiny pieces their turn."""
        while self._unparsed and not (self._deaf or self.pipeline or self._dense):
            self._parse_slice()
        if self._dense and self._answered and not self._in_head and not self._deaf:
            self._hang_up()  # the rest of a flood that was refused already
        if self._deaf:
            self._unparsed = memoryview(b"")
        if self._unparsed:
            self.flow.hold()
            if not self.pipeline:
                self.pacer.ask(self._parse_in_turn)
        elif self.flow.held:
            self.flow.let_go(resume=self._answered or len(self.cycle.body) <= HIGH_WATER_LIMIT)

    def _parse_slice(self) -> None:
        piece, before = self._unparsed[: self._slice_bytes()], self._pieces
        self._unparsed = self._unparsed[self._feed(piece) :]
        self._dense = self._dense or is_dense(self._pieces - before, len(piece))

    def _parse_in_turn(self) -> None:
        if self._unparsed and not (self._deaf or self.pipeline or self.transport.is_closing()):
            self._parse_slice()
        self._go_on()
