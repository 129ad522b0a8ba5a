"""The pool of decoder processes: started when needed, killed when their request is cancelled."""

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import AsyncIterator
from typing import Any

import numpy as np

from ...environment.child import start_child
from ...format.manifest_input import InputSpec
from ...inference.texts import KINDS, TextReader, Tokens
from ..arrays import Array, InputError, InputLimits
from ..encoded_images import EncodedImages
from ..plain_texts import PlainTexts
from .channel import (
    MOST_TOKENIZERS,
    SIZE,
    Answer,
    Expected,
    GivenTokenizer,
    check_sizes,
    pack,
    sizes_from_bytes,
    unpack_answer,
)

MODULE = f"{__package__}.child"
MOST_PARTS = 3  # that are read: an answer has fewer
# How long a process that waited for work may take to receive it; one that takes longer is replaced, which costs the
# request this time and no more.
RECEIVE_SECONDS = 2.0
# How long one may take to start, and to read a tokenizer.
PREPARE_SECONDS = 60.0
log = logging.getLogger("demur")


class DecoderUnavailable(Exception):
    """No decoder process could be started, or the system killed it at work."""


class DecoderPool:
    """At most `size` processes of `data_bytes` of memory each. Make and use it in a running event loop."""

    def __init__(self, size: int, data_bytes: int) -> None:
        self._places, self._data_bytes = asyncio.Semaphore(size), data_bytes
        self._idle: list[_Decoder] = []
        self._preparing: set[asyncio.Task[_Decoder]] = set()
        self._ending: set[asyncio.Future[int]] = set()

    async def array(self, images: EncodedImages, spec: InputSpec, limits: InputLimits) -> Array:
        """The images, (B, C, H, W) float32.

        Raises what `images.array` raises, and `DecoderUnavailable`. Cancelling the call kills the process that decodes;
        its place in the pool is free once it has ended.
        """
        return await self._result((images, spec, limits), Expected(limits.rows(spec), spec.shape))

    async def tokens(self, texts: PlainTexts, reader: TextReader) -> Tokens:
        """What `reader` makes of the texts, read in a process; raises and ends as `array` does."""
        expected = Expected(len(texts.texts), (len(KINDS) * reader.length + 1,), np.int64)
        return Tokens.from_table(await self._result((texts, reader.identity), expected, reader), reader.most)

    async def _result(self, task: tuple[Any, ...], expected: Expected, reader: TextReader | None = None) -> Array:
        """The answer to the task, whose first part is what to read."""
        await self._places.acquire()
        decoder = await self._prepared(self._waiting(), reader)
        async with self._at_work(decoder, task[0]):
            received = await decoder.receives(task)
        if not received:
            log.error("A decoder process stands still and is replaced")
            self._kill(decoder)
            decoder = await self._prepared(None, reader)
            async with self._at_work(decoder, task[0]):
                await decoder.give(task)
        async with self._at_work(decoder, task[0]):
            answer = await decoder.answer(expected)
        self._keep(decoder)
        try:
            if isinstance(answer, Exception):
                raise answer
            return answer
        finally:
            del answer  # holds this frame, where it is an error

    async def _prepared(self, decoder: "_Decoder | None", reader: TextReader | None) -> "_Decoder":
        """This process, or a new one, with the tokenizer of `reader`.

        Where the call is cancelled, the process gets ready nevertheless: if a tokenizer took longer to read than
        clients wait, none would ever be.
        """
        if decoder is not None and decoder.knows(reader):
            return decoder
        preparing = asyncio.get_running_loop().create_task(self._prepare(decoder, reader))
        self._preparing.add(preparing)
        preparing.add_done_callback(self._preparing.discard)
        try:
            return await asyncio.shield(preparing)
        except asyncio.CancelledError:
            preparing.add_done_callback(self._keep_if_prepared)
            raise

    async def _prepare(self, decoder: "_Decoder | None", reader: TextReader | None) -> "_Decoder":
        try:
            decoder = decoder or _Decoder(self._data_bytes)
        except BaseException:
            self._places.release()
            raise
        async with self._at_work(decoder):
            try:
                async with asyncio.timeout(PREPARE_SECONDS):
                    await decoder.prepare(reader)
            except TimeoutError:
                raise DecoderUnavailable(f"a decoder process was not ready within {PREPARE_SECONDS:g} s") from None
        return decoder

    @contextlib.asynccontextmanager
    async def _at_work(
        self, decoder: "_Decoder", given: EncodedImages | PlainTexts | None = None
    ) -> AsyncIterator[None]:
        """End the process where the block does not end well; given: what it reads."""
        try:
            yield
        except ConnectionError:
            raise await self._died(decoder, given) from None
        except BaseException:
            self._end(decoder)
            raise

    def _keep(self, decoder: "_Decoder") -> None:
        self._idle.append(decoder)
        self._places.release()

    def _keep_if_prepared(self, preparing: "asyncio.Task[_Decoder]") -> None:
        if not preparing.cancelled() and preparing.exception() is None:
            self._keep(preparing.result())

    async def close(self) -> None:
        """Kill all processes; call it when no request waits for one."""
        for preparing in [*self._preparing]:
            preparing.cancel()
        await asyncio.gather(*self._preparing, return_exceptions=True)
        while self._idle:
            await self._places.acquire()
            self._end(self._idle.pop())
        await asyncio.gather(*self._ending)

    def _waiting(self) -> "_Decoder | None":
        while self._idle:
            decoder = self._idle.pop()
            if decoder.process.poll() is None:
                return decoder
            decoder.socket.close()
        return None

    def _end(self, decoder: "_Decoder") -> "asyncio.Future[int]":
        ended = self._kill(decoder)
        ended.add_done_callback(lambda _: self._places.release())
        return ended

    def _kill(self, decoder: "_Decoder") -> "asyncio.Future[int]":
        decoder.process.kill()
        decoder.socket.close()
        ended = asyncio.get_running_loop().run_in_executor(None, decoder.process.wait)
        self._ending.add(ended)
        ended.add_done_callback(self._ending.discard)
        return ended

    async def _died(self, decoder: "_Decoder", given: EncodedImages | PlainTexts | None) -> Exception:
        """The error for a process that closed its socket."""
        status = await asyncio.shield(self._end(decoder))
        log.error("A decoder process ended with status %d", status)
        if given is None:
            return DecoderUnavailable(f"a decoder process ended with status {status} before it was ready")
        if status == -signal.SIGKILL:  # by Linux, out of memory: the process's own limits do not end in SIGKILL
            return DecoderUnavailable("a decoder process was killed at work")
        found = f"{given.plural} on which the decoder ended ({_status_text(status)})"
        return InputError(given.field, found, "others, which can be read")


class _Decoder:
    """One process, and this end of the socket to it."""

    def __init__(self, data_bytes: int) -> None:
        self._started, self._tokenizers = False, set[str]()
        self.socket, far_end = socket.socketpair()
        try:
            with far_end:
                self.process = start_child(MODULE, str(data_bytes), line=far_end)
        except OSError as error:
            self.socket.close()
            raise DecoderUnavailable(f"{error}") from error
        self.socket.setblocking(False)

    def knows(self, reader: TextReader | None) -> bool:
        """Whether the process has started, and has this tokenizer ready."""
        return self._started and (reader is None or reader.identity in self._tokenizers)

    async def prepare(self, reader: TextReader | None) -> None:
        """Wait until the process `knows` the reader; raises `ConnectionError` where it ends first."""
        if not self._started:
            await self._read(1)
            self._started = True
        if reader is not None:
            await self.give(GivenTokenizer(reader.identity, reader.data, reader.length))
            if len(self._tokenizers) == MOST_TOKENIZERS:
                self._tokenizers.clear()
            self._tokenizers.add(reader.identity)

    async def receives(self, task: Any) -> bool:
        """Whether the process receives the task in time; raises `ConnectionError` where it ends first."""
        try:
            async with asyncio.timeout(RECEIVE_SECONDS):
                await self.give(task)
        except TimeoutError:
            return False
        return True

    async def give(self, task: Any) -> None:
        """Send the task, and wait until it is received, or a tokenizer is read; raises `ConnectionError` where the
        process ends first."""
        loop = asyncio.get_running_loop()
        for part in pack(task):
            await loop.sock_sendall(self.socket, part)
        await self._read(1)

    async def answer(self, expected: Expected) -> Answer:
        """The process's answer; raises `ConnectionError` where it ends first, or sends anything but an error or what
        is expected."""
        (count,) = sizes_from_bytes(await self._read(SIZE.size))
        sizes = sizes_from_bytes(await self._read(SIZE.size * min(count, MOST_PARTS)))
        check_sizes(sizes, expected.bytes)
        return unpack_answer([await self._read(size) for size in sizes], expected)

    async def _read(self, size: int) -> bytearray:
        loop, data = asyncio.get_running_loop(), bytearray(size)
        view, got = memoryview(data), 0
        while got < size:
            more = await loop.sock_recv_into(self.socket, view[got:])
            if not more:
                raise ConnectionResetError("the process closed its socket")
            got += more
        return data


def _status_text(status: int) -> str:
    name = signal.Signals(-status).name if status < 0 else f"status {status}"
    return f"{name}, as where memory is used up" if status == -signal.SIGABRT else name
