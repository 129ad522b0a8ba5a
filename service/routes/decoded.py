"""Decoding a body: where the request is, when that is quick; else numbers in a thread, and images in a process."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import TypeVar

from fastapi import Request

from service.batching import DeadlineExceeded
from service.bundle import InputSpec
from service.codec.arrays import Array, InputTooLarge
from service.codec.encoded_images import CHEAP_PIXELS, EncodedImages
from service.codec.images import check_images
from service.routes.waiting import Connected
from service.runtime import Runtime

T = TypeVar("T")
# Work shorter than a change of threads is done where it is.
INLINE_BYTES = 16 * 2**10


async def decoded(request: Request, runtime: Runtime, deadline: float, size: int, decode: Callable[[], T]) -> T:
    """What `decode` makes of `size` bytes: numbers, of which the bytes bound the time that it takes.

    Raises what `decode` raises, and `DeadlineExceeded` or `ClientDisconnect`; the thread is free for others when it is
    done, and not before.
    """
    if size <= INLINE_BYTES:
        return decode()
    async with _waiting(request, deadline):
        return await runtime.in_thread(decode)


async def decoded_pictures(
    request: Request, runtime: Runtime, deadline: float, pictures: EncodedImages, spec: InputSpec
) -> Array:
    """The images, (B, C, H, W) float32. Raises what `pictures.array` raises, and what `decoded` does: then the process
    that decodes them is killed."""
    limits = runtime.limits
    check_images(pictures.field, 1, spec, 1)
    if pictures.cheap(limits.rows(spec)):
        with contextlib.suppress(InputTooLarge):  # it may be too large for this way only
            return pictures.array(spec, replace(limits, max_pixels=min(limits.max_pixels, CHEAP_PIXELS)))
    async with _waiting(request, deadline):
        return await runtime.decoders.array(pictures, spec, limits)


@contextlib.asynccontextmanager
async def _waiting(request: Request, deadline: float) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout_at(deadline), Connected(request):
            yield
    except TimeoutError:
        raise DeadlineExceeded("the deadline passed while the request was decoded") from None
