"""Reading a request body within limits of size, room and time, before anything is parsed."""

import asyncio
import zlib
from concurrent.futures import Executor
from functools import partial

from fastapi import Request
from starlette.requests import ClientDisconnect

from service.web.admission import Lease, TooBusy
from service.web.problems import ProblemError

# A client that is still sending sees the answer only after its body was taken in. So the rest of a body that is
# too large is read and thrown away, up to this multiple of the limit; beyond it the connection is closed.
DRAIN_FACTOR = 16
# zlib's window bits: gzip's and zlib's header are told apart by zlib itself; "deflate" in the wild is zlib's.
WINDOW_BITS = {"gzip": 16 + zlib.MAX_WBITS, "x-gzip": 16 + zlib.MAX_WBITS, "deflate": zlib.MAX_WBITS}
RETRY_AFTER = {"Retry-After": "1"}
# So little of a small body is decompressed on the event loop; the rest in threads, so many bytes at a time.
INLINE_BYTES, PIECE_BYTES = 64 * 2**10, 2**20
ANSWER_BYTES = 64 * 2**10


async def read_body(request: Request, limit: int, seconds: float, lease: Lease, threads: Executor) -> bytes:
    """The body, decompressed.

    Refuses more than `limit` bytes, before or after decompression (413), a body that takes longer than `seconds` to
    arrive and to be decompressed (408), an unknown content encoding (415), a damaged one (400), and a body that `lease`
    has no room for (429). `threads` decompress what is long.
    """
    encoding = _content_encoding(request)
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > DRAIN_FACTOR * limit:
        raise _too_large(limit)
    try:
        async with asyncio.timeout(seconds):
            body = await _receive(request, limit, lease)
            return body if encoding == "identity" else await _decompress(body, encoding, limit, lease, threads)
    except TimeoutError:
        detail = f"The body did not arrive within {seconds:g} seconds."
        raise ProblemError(408, "body_timeout", detail, headers={"Connection": "close"}) from None


def media_type(request: Request) -> str:
    """The body's media type in lower case, without parameters; "" where none is given."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


async def _receive(request: Request, limit: int, lease: Lease) -> bytes:
    kept: list[bytes] = []
    received = 0
    full: TooBusy | None = None
    more = True
    while more and received <= DRAIN_FACTOR * limit:
        chunk, more = await _next(request)
        received += len(chunk)
        if full is None and received <= limit:
            try:
                lease.grow(len(chunk))
            except TooBusy as error:
                full = error
            else:
                kept.append(chunk)
                continue
        kept.clear()
    if received > limit:
        raise _too_large(limit)
    if full is not None:
        raise _too_busy(full) from None
    return kept[0] if len(kept) == 1 else b"".join(kept)


async def _next(request: Request) -> tuple[bytes, bool]:
    """The next part of the body, and whether there is more of it. Without Starlette's generator around it, which costs
    more than reading a small body does."""
    message = await request.receive()
    if message["type"] == "http.disconnect":
        raise ClientDisconnect
    return message.get("body", b""), message.get("more_body", False)


async def _decompress(body: bytes, encoding: str, limit: int, lease: Lease, threads: Executor) -> bytes:
    """Never makes more than a piece beyond `limit`, whatever the body claims; room is taken piece by piece."""
    machine, loop = zlib.decompressobj(WINDOW_BITS[encoding]), asyncio.get_running_loop()
    pieces: list[bytes] = []
    size, rest, inline = 0, body, len(body) <= INLINE_BYTES
    try:
        while not machine.eof and size <= limit:
            most = min(limit + 1 - size, INLINE_BYTES if inline else PIECE_BYTES)
            step = partial(machine.decompress, rest, most)
            piece = step() if inline else await loop.run_in_executor(threads, step)
            rest, inline = machine.unconsumed_tail, False
            if not piece and not rest:
                break
            take_room(lease, len(piece))
            size += len(piece)
            pieces.append(piece)
    except zlib.error as error:
        detail = f"The body is not valid {encoding}: {error!s:.100}."
        raise ProblemError(400, "content_encoding", detail, field="Content-Encoding") from None
    if size > limit:
        raise _too_large(limit)
    if not machine.eof or machine.unused_data:
        detail = f"The body is not one whole {encoding} stream."
        raise ProblemError(400, "content_encoding", detail, field="Content-Encoding")
    return pieces[0] if len(pieces) == 1 else await loop.run_in_executor(threads, b"".join, pieces)


def hold_answer(lease: Lease, size: int) -> None:
    """Refuse an answer that `lease` has no room for until it is sent (429). One that the connection's own buffer holds
    is not counted: it is gone at once."""
    if size > ANSWER_BYTES:
        take_room(lease, size)


def take_room(lease: Lease, size: int) -> None:
    """Refuse what `lease` has no room for (429)."""
    try:
        lease.grow(size)
    except TooBusy as error:
        raise _too_busy(error) from None


def _too_large(limit: int) -> ProblemError:
    detail = f"The body is larger than {limit} bytes."
    return ProblemError(413, "body_too_large", detail, expected=f"at most {limit} bytes")


def _too_busy(error: TooBusy) -> ProblemError:
    return ProblemError(429, "queue_full", f"{error}; try again later.".capitalize(), headers=RETRY_AFTER)


def _content_encoding(request: Request) -> str:
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in {"identity", *WINDOW_BITS}:
        raise ProblemError(
            415,
            "content_encoding",
            f"Found the content encoding {encoding!r:.100}, expected gzip, deflate or none.",
            field="Content-Encoding",
            found=encoding[:100],
            expected="gzip, deflate or identity",
        )
    return encoding
