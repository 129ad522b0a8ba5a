"""Decoding a body: where the request is, when that is quick, and in a thread when it is not."""

import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import anyio.to_thread
from fastapi import Request

from service.batching import DeadlineExceeded
from service.inputs import InputLimits, InputTooLarge
from service.routes.waiting import Connected
from service.runtime import Runtime

T = TypeVar("T")
# Work shorter than a change of threads is done where it is: bodies of so many bytes, and with images in them, which
# take long for their size, of so many bytes and with so many pixels in each.
INLINE_BYTES, INLINE_IMAGE_BYTES, INLINE_PIXELS = 16 * 2**10, 4 * 2**10, 64 * 64


async def decoded(
    request: Request, runtime: Runtime, deadline: float, size: int, images: bool, decode: Callable[[InputLimits], T]
) -> T:
    """What `decode` makes of `size` bytes, with `images` perhaps among them.

    It raises for what is over the limits, and where the deadline passes or the client goes before it is done: then
    the thread ends after the image that it is at.
    """
    if size <= (INLINE_IMAGE_BYTES if images else INLINE_BYTES):
        pixels = min(runtime.limits.max_pixels, INLINE_PIXELS)
        try:
            return decode(replace(runtime.limits, max_pixels=pixels) if images else runtime.limits)
        except InputTooLarge:
            if not images:
                raise  # and else it may be too large for this way only
    abandoned = threading.Event()
    limits = replace(runtime.limits, wanted=lambda: not abandoned.is_set())
    try:
        async with asyncio.timeout_at(deadline), Connected(request):
            return await anyio.to_thread.run_sync(decode, limits, limiter=runtime.decoders, abandon_on_cancel=True)
    except TimeoutError:
        raise DeadlineExceeded("the deadline passed while the request was decoded") from None
    finally:
        abandoned.set()
