"""A connection whose bytes are parsed in slices: no further than its responses, and tiny chunks in turns."""

import asyncio
from typing import Any

from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from .pacing import HeldFlow, Pacer, is_dense
from .state import ReadState


class PacedProtocol(HttpToolsProtocol):
    """While a request waits for the response to an earlier one, nothing more is parsed and nothing more is read: bodies
    that are sent ahead stay with their client."""

    pacer: Pacer
    flow: HeldFlow

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._state = ReadState.NEW
        self._unparsed = memoryview(b"")
        self._pieces, self._dense = 0, False  # of all bodies so far; whether some slice was dense
        self._body_pieces = self._body_bytes = 0  # of the current body

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.flow = HeldFlow(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self.pacer.cancel(self._parse_in_turn)
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        self._body_pieces = self._body_bytes = 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        self._state = ReadState.BODY

    def on_body(self, body: bytes) -> None:
        self._pieces += 1
        self._body_pieces += 1
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._state = ReadState.IDLE
        self.flow.resume_reading()  # a long body pauses it, and then the end of the connection would go unnoticed

    def _feed(self, piece: memoryview) -> int:
        """Pass the piece to the parser; returns how many bytes it took."""
        raise NotImplementedError

    def _slice_bytes(self) -> int:
        """The size of the next slice."""
        raise NotImplementedError

    def _discard_rest(self) -> None:
        """Discard what the client still sends for a while, then close."""
        raise NotImplementedError

    @property
    def _answered(self) -> bool:
        """Whether every request so far has its whole response."""
        return self.cycle is None or self.cycle.response_complete

    @property
    def _discarding(self) -> bool:
        return self._state is ReadState.DISCARDING

    def _parse(self, data: bytes) -> None:
        self._unparsed = memoryview(b"".join([self._unparsed, data]) if self._unparsed else data)
        self._continue_parsing()

    def _continue_parsing(self) -> None:
        """Parse what has come, unless earlier requests wait for their responses, or tiny chunks for their turn."""
        while self._unparsed and not (self._discarding or self.pipeline or self._dense):
            self._parse_slice()
        if self._dense and self._answered and self._state.in_body:
            self._discard_rest()  # the rest of a flood that was answered already
        if self._discarding:
            self._unparsed = memoryview(b"")
        if self._unparsed:
            self.flow.hold()
            if not self.pipeline:
                self.pacer.request_turn(self._parse_in_turn)
        elif self.flow.held:
            self.flow.release(resume=self._answered or len(self.cycle.body) <= HIGH_WATER_LIMIT)

    def _parse_slice(self) -> None:
        piece, before = self._unparsed[: self._slice_bytes()], self._pieces
        self._unparsed = self._unparsed[self._feed(piece) :]
        self._dense = self._dense or is_dense(self._pieces - before, len(piece))

    def _parse_in_turn(self) -> None:
        if self._unparsed and not (self._discarding or self.pipeline or self.transport.is_closing()):
            self._parse_slice()
        self._continue_parsing()
