"""Bodies and files -> what a network takes: on the event loop if that is quick, otherwise in threads and processes."""

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import TypeVar

from .bundle import InputSpec
from .codec.arrays import Array, InputLimits, InputTooLarge
from .codec.decoders.pool import DecoderPool
from .codec.decoding import Decoded
from .codec.encoded_images import CHEAP_PIXELS, EncodedImages
from .codec.images import check_images
from .codec.plain_texts import PlainTexts
from .inference.predictor import Predictor
from .models.cpu_share import all_threads
from .settings import Settings

T = TypeVar("T")
Content = Decoded | EncodedImages | PlainTexts
Waiting = Callable[[], AbstractAsyncContextManager[None]]  # a block that ends when nobody waits any more
# Decoding so few bytes takes no longer than handing them to a thread.
INLINE_BYTES = 16 * 2**10
DECODED_SIZE = 4  # of decoded examples to the body: bytes become float32
BASE_BYTES = 128 * 2**20  # of a decoder process: Python, NumPy and Pillow
# Of one that reads texts: several tokenizers, of which one of 250,000 words takes some 200 MiB.
TEXT_BYTES = 2 * 2**30


class Decoding:
    """Numbers are decoded in `threads`, images in processes; so are texts, unless they are short and their tokenizer
    has no parts of unknown cost. Create it in a running event loop, and close it."""

    def __init__(self, settings: Settings) -> None:
        at_once = all_threads(settings)
        self.threads = ThreadPoolExecutor(at_once, thread_name_prefix="demur-bodies")
        self.images, self.texts = DecoderPool(at_once, decoder_bytes(settings)), DecoderPool(at_once, TEXT_BYTES)
        self.limits = InputLimits(
            settings.max_rows, settings.max_pixels, 4 * settings.max_pixels, DECODED_SIZE * settings.max_body_bytes
        )

    async def close(self) -> None:
        """End the threads and the processes; no request waits for them any more."""
        await asyncio.gather(self.images.close(), self.texts.close())
        self.threads.shutdown(wait=False, cancel_futures=True)

    async def in_thread(self, function: Callable[[], T]) -> T:
        """The result of `function`, which takes a bounded time, but too long for the event loop."""
        return await asyncio.get_running_loop().run_in_executor(self.threads, function)

    async def sized(self, size: int, decode: Callable[[], T], waiting: Waiting) -> T:
        """The result of `decode`, which takes a time in proportion to `size`, in bytes; the thread stays busy until it
        returns, whatever happens to the request. Raises what `decode` and `waiting` raise."""
        if size <= INLINE_BYTES:
            return decode()
        async with waiting():
            return await self.in_thread(decode)

    async def decoded(self, content: Content, predictor: Predictor, waiting: Waiting) -> Decoded:
        """As the network takes it.

        Raises `InputError` and the like, `DecoderUnavailable`, and what `waiting` raises: then the process that decodes
        is killed.
        """
        spec, reader = predictor.manifest.input, predictor.reader
        if isinstance(content, Decoded):
            return content
        if not isinstance(content, PlainTexts):
            return Decoded(await self._images(content, spec, waiting), content.field)
        assert reader is not None  # the texts were checked
        if content.cheap(reader):
            tokens = content.read(reader)
        else:
            async with waiting():
                tokens = await self.texts.tokens(content, reader)
        return Decoded(tokens.array(spec), content.field, tokens.warnings(content.field))

    async def _images(self, pictures: EncodedImages, spec: InputSpec, waiting: Waiting) -> Array:
        """(B, C, H, W) float32."""
        limits = self.limits
        check_images(pictures.field, 1, spec, 1)
        if pictures.cheap(limits.rows(spec)):
            with contextlib.suppress(InputTooLarge):  # it may be small enough for a process
                return pictures.array(spec, replace(limits, max_pixels=min(limits.max_pixels, CHEAP_PIXELS)))
        async with waiting():
            return await self.images.array(pictures, spec, limits)


def decoder_bytes(settings: Settings) -> int:
    """Memory of a decoder process: as much as the largest request that the settings allow, in bytes.

    The body exists as received, as base64 texts and as a file. A pixel takes four bytes in each of at most five images
    between the file and the array, and the array exists twice.
    """
    return BASE_BYTES + (3 + 2 * DECODED_SIZE) * settings.max_body_bytes + 5 * 4 * settings.max_pixels
