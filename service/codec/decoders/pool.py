"""The pool of decoder processes: started when needed, killed when their request is cancelled."""

import asyncio
import json
import logging
import math
import os
import signal
import socket
import subprocess
import sys
from typing import Any

from ...format.manifest_input import InputSpec
from ..arrays import Array, InputError, InputLimits
from ..encoded_images import EncodedImages
from .channel import DTYPE, SIZE, Answer, check_sizes, pack, sizes_from_bytes, unpack_answer

# As `multiprocessing` starts processes, but without importing the service's own main module into them.
BOOT = """import json, sys
sys.path[:] = json.loads(sys.argv[1])
from demur.service.codec.decoders.child import main
main(int(sys.argv[2]), int(sys.argv[3]))"""
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
MOST_PARTS = 3  # that are read: an answer has fewer
# How long a process that waited for work may take to receive it; one that takes longer is replaced, which costs the
# request this time and no more.
RECEIVE_SECONDS = 2.0
log = logging.getLogger("demur")


class DecoderUnavailable(Exception):
    """No decoder process could be started, or the system killed it at work."""


class DecoderPool:
    """At most `size` processes of `data_bytes` of memory each. Make and use it in a running event loop."""

    def __init__(self, size: int, data_bytes: int) -> None:
        self._places, self._data_bytes = asyncio.Semaphore(size), data_bytes
        self._idle: list[_Decoder] = []
        self._ending: set[asyncio.Future[int]] = set()

    async def array(self, images: EncodedImages, spec: InputSpec, limits: InputLimits) -> Array:
        """The images, (B, C, H, W) float32.

        Raises what `images.array` raises, and `DecoderUnavailable`. Cancelling the call kills the process; its
        place in the pool is free once it has ended.
        """
        await self._places.acquire()
        decoder: _Decoder | None = None
        try:
            task = images, spec, limits
            decoder = self._waiting()
            if decoder is not None and not await decoder.receives(task):
                log.error("A decoder process stands still and is replaced")
                self._kill(decoder)
                decoder = None
            if decoder is None:
                decoder = _Decoder(self._data_bytes)
                await decoder.give(task)
            answer = await decoder.answer(limits.rows(spec), spec.shape)
        except ConnectionError:
            assert decoder is not None
            raise await self._died(decoder, images) from None
        except BaseException:
            self._end(decoder)
            raise
        self._idle.append(decoder)
        self._places.release()
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def close(self) -> None:
        """Kill all processes; call it when no request waits for one."""
        while self._idle:
            await self._places.acquire()
            self._end(self._idle.pop())
        await asyncio.gather(*self._ending)

    def _waiting(self) -> "_Decoder | None":
        while self._idle:
            decoder = self._idle.pop()
            if decoder.process.poll() is None:
                return decoder
            decoder.close()
        return None

    def _end(self, decoder: "_Decoder | None") -> "asyncio.Future[int] | None":
        if decoder is None:
            self._places.release()
            return None
        ended = self._kill(decoder)
        ended.add_done_callback(lambda _: self._places.release())
        return ended

    def _kill(self, decoder: "_Decoder") -> "asyncio.Future[int]":
        decoder.process.kill()
        decoder.close()
        ended = asyncio.get_running_loop().run_in_executor(None, decoder.process.wait)
        self._ending.add(ended)
        ended.add_done_callback(self._ending.discard)
        return ended

    async def _died(self, decoder: "_Decoder", images: EncodedImages) -> Exception:
        """The error for a process that closed its socket."""
        ready = decoder.ready
        ended = self._end(decoder)
        assert ended is not None
        status = await asyncio.shield(ended)
        log.error("A decoder process ended with status %d", status)
        if not ready:
            return DecoderUnavailable(f"a decoder process ended with status {status} before it was ready")
        if status == -signal.SIGKILL:  # by Linux, out of memory: the process's own limits do not end in SIGKILL
            return DecoderUnavailable("a decoder process was killed at work")
        found = f"images on which the decoder ended ({_status_text(status)})"
        return InputError(images.field, found, "files that can be decoded")


class _Decoder:
    """One process, and this end of the socket to it."""

    def __init__(self, data_bytes: int) -> None:
        self.ready = False
        self.socket, far_end = socket.socketpair()
        try:
            with far_end:
                arguments = [json.dumps(sys.path), str(far_end.fileno()), str(data_bytes)]
                self.process = subprocess.Popen(  # noqa: S603  this interpreter
                    [sys.executable, "-c", BOOT, *arguments],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    pass_fds=[far_end.fileno()],
                    process_group=0,
                    env={**os.environ, **ONE_THREAD},
                )
        except OSError as error:
            self.socket.close()
            raise DecoderUnavailable(f"{error}") from error
        self.socket.setblocking(False)

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.socket.close()

    async def receives(self, task: Any) -> bool:
        """Whether the process receives the task in time; raises `ConnectionError` where it ends first."""
        try:
            async with asyncio.timeout(RECEIVE_SECONDS):
                await self.give(task)
        except TimeoutError:
            return False
        return True

    async def give(self, task: Any) -> None:
        """Send the task, and wait until it is received; raises `ConnectionError` where the process ends first."""
        loop = asyncio.get_running_loop()
        if not self.ready:
            await self._read(1)
            self.ready = True
        for part in pack(task):
            await loop.sock_sendall(self.socket, part)
        await self._read(1)

    async def answer(self, rows: int, shape: tuple[int, ...]) -> Answer:
        """The process's answer, at most `rows` examples of `shape`; raises `ConnectionError` where it ends first, or
        sends anything else."""
        (count,) = sizes_from_bytes(await self._read(SIZE.size))
        sizes = sizes_from_bytes(await self._read(SIZE.size * min(count, MOST_PARTS)))
        check_sizes(sizes, rows * math.prod(shape) * DTYPE.itemsize)
        return unpack_answer([await self._read(size) for size in sizes], shape)

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
    return signal.Signals(-status).name if status < 0 else f"status {status}"
