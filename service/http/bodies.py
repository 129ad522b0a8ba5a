"""Read a request body within limits of size, memory and time, before anything is parsed."""

import asyncio
import zlib
from concurrent.futures import Executor
from functools import partial

from fastapi import Request
from starlette.requests import ClientDisconnect

from .admission import Lease
from .problems import ProblemError

# A client that is still sending reads the response only once its body is taken. So the rest of a body that is too
# large is read and discarded, up to this multiple of the limit; beyond it the connection is closed.
DRAIN_FACTOR = 16
# zlib's window bits: +16 expects a gzip header. "deflate" in practice means a zlib header.
WINDOW_BITS = {"gzip": 16 + zlib.MAX_WBITS, "x-gzip": 16 + zlib.MAX_WBITS, "deflate": zlib.MAX_WBITS}
CONTINUE = "100-continue"
MOST_MEMBERS = 1000  # of a gzip file, which may be several one after the other, as bgzip and pigz write them
# The first INLINE_BYTES of a small body are decompressed on the event loop, the rest in threads, piece by piece.
INLINE_BYTES, PIECE_BYTES = 64 * 2**10, 2**20


async def read_body(request: Request, limit: int, seconds: float, lease: Lease, threads: Executor) -> bytes:
    """The body, decompressed; long bodies are decompressed in `threads`.

    Raises `ProblemError`: 413 for more than `limit` bytes before or after decompression, 408 for a body that takes
    longer than `seconds` to arrive and decompress, 415 for an unknown content encoding, 400 for a damaged one, and 429
    where `lease` has no room.
    """
    encoding = _content_encoding(request)
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > DRAIN_FACTOR * limit:
        raise _too_large(limit)
    if declared.isdecimal() and int(declared) > limit and request.headers.get("expect", "").lower() == CONTINUE:
        raise _too_large(limit, headers={"Connection": "close"})  # before the client sends what it has announced
    try:
        async with asyncio.timeout(seconds):
            body = await _receive(request, limit, lease)
            return body if encoding == "identity" else await _decompress(body, encoding, limit, lease, threads)
    except TimeoutError:
        detail = f"The body did not arrive within {seconds:g} seconds."
        raise ProblemError(408, "body_timeout", detail, headers={"Connection": "close"}) from None


def media_type(request: Request) -> str:
    """The body's media type in lower case, without parameters; "" without one."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


async def _receive(request: Request, limit: int, lease: Lease) -> bytes:
    kept: list[bytes] = []
    received = 0
    full: ProblemError | None = None
    more = True
    while more and received <= DRAIN_FACTOR * limit:
        chunk, more = await _next(request)
        received += len(chunk)
        if full is None and received <= limit:
            try:
                lease.grow(len(chunk))
            except ProblemError as error:
                full = error
                lease.release()  # others may take what this one will not use
            else:
                kept.append(chunk)
                continue
        kept.clear()
    if received > limit:
        raise _too_large(limit)
    if full is not None:
        raise full
    return kept[0] if len(kept) == 1 else b"".join(kept)


async def _next(request: Request) -> tuple[bytes, bool]:
    """The next part of the body, and whether more follows. Starlette's generator around this costs more than reading a
    small body does."""
    message = await request.receive()
    if message["type"] == "http.disconnect":
        raise ClientDisconnect
    return message.get("body", b""), message.get("more_body", False)


async def _decompress(body: bytes, encoding: str, limit: int, lease: Lease, threads: Executor) -> bytes:
    """Never produces more than one piece beyond `limit`, whatever the body claims; memory is reserved by the piece."""
    decompressor, loop = zlib.decompressobj(WINDOW_BITS[encoding]), asyncio.get_running_loop()
    pieces: list[bytes] = []
    size, rest, inline, members = 0, body, len(body) <= INLINE_BYTES, 1
    try:
        while size <= limit:
            if decompressor.eof:
                if not decompressor.unused_data or encoding == "deflate" or members == MOST_MEMBERS:
                    break
                rest, members = decompressor.unused_data, members + 1
                decompressor = zlib.decompressobj(WINDOW_BITS[encoding])
            most = min(limit + 1 - size, INLINE_BYTES if inline else PIECE_BYTES)
            step = partial(decompressor.decompress, rest, most)
            piece = step() if inline else await loop.run_in_executor(threads, step)
            rest, inline = decompressor.unconsumed_tail, False
            if not piece and not rest and not decompressor.eof:
                break
            lease.grow(len(piece))
            size += len(piece)
            pieces.append(piece)
    except zlib.error as error:
        detail = f"The body is not valid {encoding}: {error!s:.100}."
        raise ProblemError(400, "content_encoding", detail, field="Content-Encoding") from None
    if size > limit:
        raise _too_large(limit)
    if not decompressor.eof or decompressor.unused_data:
        detail = f"The body is not whole {encoding} data, or has more than {MOST_MEMBERS} parts."
        raise ProblemError(400, "content_encoding", detail, field="Content-Encoding")
    return pieces[0] if len(pieces) == 1 else await loop.run_in_executor(threads, b"".join, pieces)


def _too_large(limit: int, headers: dict[str, str] | None = None) -> ProblemError:
    detail = f"The body is larger than {limit} bytes; send fewer inputs in a request."
    return ProblemError(413, "body_too_large", detail, expected=f"at most {limit} bytes", headers=headers)


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
