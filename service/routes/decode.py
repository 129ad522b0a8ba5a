"""Read a body, and decode it on the event loop if that is quick; otherwise numbers in a thread, images in a process.
So are texts, unless they are short and their tokenizer has no parts of unknown cost."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import TypeVar

from fastapi import Request

from ..batching import DeadlineExceeded
from ..bundle import InputSpec
from ..codec.arrays import Array, InputTooLarge
from ..codec.encoded_images import CHEAP_PIXELS, EncodedImages
from ..codec.images import check_images
from ..codec.plain_texts import PlainTexts
from ..http.admission import Lease
from ..http.bodies import read_body
from ..http.disconnect import CancelOnDisconnect
from ..http.problems import ProblemError
from ..inference.predictor import Predictor
from ..runtime import RequestDeadline, Runtime

T = TypeVar("T")
# Decoding so few bytes takes no longer than handing them to a thread.
INLINE_BYTES = 16 * 2**10


async def read(request: Request, runtime: Runtime, deadline: RequestDeadline, lease: Lease) -> bytes:
    """The body of a prediction; raises what `read_body` raises, and `ProblemError` (504) where the client's own
    deadline, sooner than the operator's, passes before its body is there."""
    settings = runtime.settings
    own = deadline.at if deadline.at < deadline.latest else None
    seconds, threads = settings.client_timeout_seconds, runtime.body_threads
    if own is None:
        return await read_body(request, settings.max_body_bytes, seconds, lease, threads)
    try:
        async with asyncio.timeout_at(own):
            return await read_body(request, settings.max_body_bytes, seconds, lease, threads)
    except TimeoutError:
        detail = "The deadline passed while the body arrived."
        raise ProblemError(504, "deadline_client", detail, headers={"Connection": "close"}) from None


async def decode_numbers(request: Request, runtime: Runtime, deadline: float, size: int, decode: Callable[[], T]) -> T:
    """The result of `decode`, which takes a time in proportion to `size`, in bytes.

    Raises `DeadlineExceeded`, `ClientDisconnect`, and what `decode` raises. The thread stays busy until `decode`
    returns, whatever happens to the request.
    """
    if size <= INLINE_BYTES:
        return decode()
    async with _until(request, deadline):
        return await runtime.in_thread(decode)


async def decode_images(
    request: Request, runtime: Runtime, deadline: float, pictures: EncodedImages, spec: InputSpec
) -> Array:
    """The images, (B, C, H, W) float32.

    Raises what `pictures.array` raises, and `DeadlineExceeded` or `ClientDisconnect`: then the decoding process is
    killed.
    """
    limits = runtime.limits
    check_images(pictures.field, 1, spec, 1)
    if pictures.cheap(limits.rows(spec)):
        with contextlib.suppress(InputTooLarge):  # it may be small enough for a process
            return pictures.array(spec, replace(limits, max_pixels=min(limits.max_pixels, CHEAP_PIXELS)))
    async with _until(request, deadline):
        return await runtime.decoders.array(pictures, spec, limits)


async def decode_texts(
    request: Request, runtime: Runtime, deadline: float, texts: PlainTexts, predictor: Predictor
) -> tuple[Array, list[str]]:
    """The texts as the network takes them, and warnings; they were checked, and so the predictor has a tokenizer.

    Raises `InputError`, `DecoderUnavailable`, and `DeadlineExceeded` or `ClientDisconnect`: then the process is killed.
    """
    reader = predictor.reader
    assert reader is not None
    if texts.cheap(reader):
        tokens = texts.read(reader)
    else:
        async with _until(request, deadline):
            tokens = await runtime.text_decoders.tokens(texts, reader)
    return tokens.array(predictor.manifest.input), tokens.warnings(texts.field)


@contextlib.asynccontextmanager
async def _until(request: Request, deadline: float) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout_at(deadline), CancelOnDisconnect(request):
            yield
    except TimeoutError:
        raise DeadlineExceeded("the deadline passed while the request was decoded") from None
