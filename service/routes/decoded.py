"""Decoding a body: where the request is, when that is quick, and in a thread when it is not."""

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import anyio.to_thread

from service.decoding import InputLimits
from service.inputs import InputTooLarge
from service.runtime import Runtime

T = TypeVar("T")
# Work shorter than a change of threads is done where it is: bodies of so many bytes, and with images in them, which
# take long for their size, of so many bytes and with so many pixels in each.
INLINE_BYTES, INLINE_IMAGE_BYTES, INLINE_PIXELS = 16 * 2**10, 4 * 2**10, 64 * 64


async def decoded(runtime: Runtime, size: int, images: bool, decode: Callable[[InputLimits], T]) -> T:
    """What `decode` makes of `size` bytes, with `images` perhaps among them; it raises for what is over the limits."""
    if size <= (INLINE_IMAGE_BYTES if images else INLINE_BYTES):
        pixels = min(runtime.limits.max_pixels, INLINE_PIXELS)
        try:
            return decode(replace(runtime.limits, max_pixels=pixels) if images else runtime.limits)
        except InputTooLarge:
            if not images:
                raise  # and else it may be too large for this way only
    return await anyio.to_thread.run_sync(decode, runtime.limits, limiter=runtime.decoders)
