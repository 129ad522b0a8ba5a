"""service/codec/decoders/: processes decode as the service would, within their memory, and can be killed."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import numpy as np
import pytest
from PIL import Image

from demur.service.bundle import ImagePreprocessing, InputSpec
from demur.service.codec.arrays import InputError, InputLimits, InputTooLarge
from demur.service.codec.decoders.pool import DecoderPool, DecoderUnavailable
from demur.service.codec.encoded_images import EncodedImages, Form, ImageFiles, ImageTexts
from demur.service.codec.forms import FormError, FormFieldError
from demur.service.decoding import decoder_bytes
from demur.service.settings import Settings
from tests.support.client import base64_text, encoded
from tests.support.freed import frees
from tests.support.processes import children_of, wait_until
from tests.support.server import ROOT

SPEC = InputSpec(shape=(3, 4, 5), image=ImagePreprocessing(mode="RGB"))
LIMITS = InputLimits(8, 2**24)
MIB = 2**20
PNG = encoded(Image.fromarray(np.random.default_rng(3).integers(0, 256, (9, 7, 3)).astype(np.uint8)))
LARGE = encoded(Image.new("RGBA", (4096, 4096)))
FORM = b'--x\r\nContent-Disposition: form-data; name="files"; filename="a.png"\r\n\r\n' + PNG + b"\r\n--x--\r\n"
KIND = "multipart/form-data; boundary=x"
Try = Callable[[DecoderPool], Awaitable[Any]]


@contextlib.asynccontextmanager
async def opened(size: int, data_bytes: int) -> AsyncIterator[DecoderPool]:
    pool = DecoderPool(size, data_bytes)
    try:
        yield pool
    finally:
        await pool.close()


def run(attempt: Try, size: int = 1, data_bytes: int = decoder_bytes(Settings())) -> Any:
    """With a pool of its own, of which no process is left."""
    before = children_of(os.getpid())

    async def main() -> Any:
        async with opened(size, data_bytes) as pool:
            return await attempt(pool)

    found = asyncio.run(main())
    assert children_of(os.getpid()) == before
    return found


@pytest.fixture
def before() -> set[int]:
    return children_of(os.getpid())


def new_child(before: set[int]) -> int:
    wait_until(lambda: children_of(os.getpid()) > before)
    (child,) = children_of(os.getpid()) - before
    return child


@pytest.mark.parametrize(
    "pictures",
    [ImageFiles([PNG, PNG], "files"), ImageTexts([base64_text(PNG)], "images"), Form(KIND, FORM)],
    ids=["files", "texts", "form"],
)
def test_a_process_decodes_as_the_service_would(pictures: EncodedImages) -> None:
    found = run(lambda pool: pool.array(pictures, SPEC, LIMITS))
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, pictures.array(SPEC, LIMITS))


@pytest.mark.parametrize(
    ("pictures", "kind", "message"),
    [
        (ImageFiles([PNG, b"x"], "inputs"), InputError, r"inputs\[1\]: found bytes that are not an image"),
        (ImageTexts(["!"], "images"), InputError, r"images\[0\]: found text that is not base64"),
        (ImageFiles([PNG] * 9, "files"), InputTooLarge, "found 9 examples, expected at most 8"),
        (Form(KIND, b"--x\r\n"), FormError, "ends before"),
        (Form(KIND, FORM.replace(b"files", b"image")), FormFieldError, "Found the form field 'image'"),
    ],
)
def test_what_is_wrong_is_told_as_the_service_would(
    pictures: EncodedImages, kind: type[Exception], message: str
) -> None:
    async def attempt(pool: DecoderPool) -> None:
        with pytest.raises(kind, match=message) as caught:
            await pool.array(pictures, SPEC, LIMITS)
        assert type(caught.value) is kind
        with pytest.raises(kind) as alone:
            pictures.array(SPEC, LIMITS)
        assert vars(alone.value) == vars(caught.value)
        await pool.array(ImageFiles([PNG], "files"), SPEC, LIMITS)  # the same process goes on

    run(attempt)


def test_one_process_serves_one_request_after_the_other(before: set[int]) -> None:
    async def attempt(pool: DecoderPool) -> None:
        for _ in range(3):
            await asyncio.gather(*(pool.array(ImageFiles([PNG], "files"), SPEC, LIMITS) for _ in range(4)))
            assert len(children_of(os.getpid()) - before) == 1

    run(attempt)


def test_its_memory_is_bounded() -> None:
    async def attempt(pool: DecoderPool) -> None:
        with pytest.raises(InputTooLarge, match="takes more memory than is allowed"):
            await pool.array(ImageFiles([LARGE], "files"), SPEC, LIMITS)
        await pool.array(ImageFiles([PNG], "files"), SPEC, LIMITS)

    run(attempt, data_bytes=160 * MIB)


def test_what_the_settings_allow_has_room() -> None:
    """The kinds that take the most memory for a pixel."""
    kinds = (("RGBA", "PNG"), ("I;16", "PNG"), ("RGBA", "WEBP"))
    files = [encoded(Image.new(mode, (4096, 4096)), kind) for mode, kind in kinds]
    assert run(lambda pool: pool.array(ImageFiles(files, "files"), SPEC, LIMITS)).shape == (3, 3, 4, 5)


def test_whoever_waits_no_longer_kills_it(before: set[int]) -> None:
    async def attempt(pool: DecoderPool) -> None:
        await pool.array(ImageFiles([PNG], "files"), SPEC, LIMITS)
        child = new_child(before)
        decoding = asyncio.create_task(pool.array(ImageFiles([LARGE] * 4, "files"), SPEC, LIMITS))
        await asyncio.sleep(0)
        decoding.cancel()
        with pytest.raises(asyncio.CancelledError):
            await decoding
        await pool.array(ImageFiles([PNG], "files"), SPEC, LIMITS)  # its place is free, and it has gone
        assert child not in children_of(os.getpid())

    run(attempt)


def test_one_that_dies_is_no_end(before: set[int]) -> None:
    async def attempt(pool: DecoderPool) -> None:
        await pool.array(ImageFiles([PNG], "files"), SPEC, LIMITS)
        child = new_child(before)
        decoding = asyncio.create_task(pool.array(ImageFiles([LARGE] * 4, "files"), SPEC, LIMITS))
        await asyncio.sleep(0)
        os.kill(child, signal.SIGSEGV)
        with pytest.raises(InputError, match=r"files: found images on which the decoder ended \(SIGSEGV\)"):
            await decoding
        await pool.array(ImageFiles([PNG], "files"), SPEC, LIMITS)
        (child,) = children_of(os.getpid()) - before
        os.kill(child, signal.SIGKILL)  # while it waits for work
        await asyncio.to_thread(os.waitid, os.P_PID, child, os.WEXITED | os.WNOWAIT)
        await pool.array(ImageFiles([PNG], "files"), SPEC, LIMITS)

    run(attempt)


def test_one_that_the_system_ends_says_nothing_against_the_images(before: set[int]) -> None:
    """As Linux does when memory runs out."""

    async def attempt(pool: DecoderPool) -> None:
        await pool.array(ImageFiles([PNG], "files"), SPEC, LIMITS)
        child = new_child(before)
        decoding = asyncio.create_task(pool.array(ImageFiles([LARGE] * 4, "files"), SPEC, LIMITS))
        await asyncio.sleep(0)
        os.kill(child, signal.SIGKILL)
        with pytest.raises(DecoderUnavailable, match="was killed"):
            await decoding
        await pool.array(ImageFiles([PNG], "files"), SPEC, LIMITS)

    run(attempt)


@pytest.mark.parametrize("program", ["/nowhere", "/bin/false"])
def test_where_none_can_be_started(monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    async def attempt(pool: DecoderPool) -> None:
        for _ in range(2):
            with pytest.raises(DecoderUnavailable):
                await pool.array(ImageFiles([PNG], "files"), SPEC, LIMITS)

    monkeypatch.setattr(sys, "executable", program)
    run(attempt)


def test_it_is_light() -> None:
    heavy = {"onnxruntime", "fastapi", "starlette", "pydantic", "uvicorn", "asyncio", "safetensors", "cryptography"}
    code = f"import sys, demur.service.codec.decoders.child; print(*sorted({heavy} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert found.stdout.split() == []


def test_a_process_that_stands_still_is_replaced(before: set[int]) -> None:
    """The request that finds it so is answered, by another one."""

    async def attempt(pool: DecoderPool) -> Any:
        first = await pool.array(ImageFiles([PNG], "files"), SPEC, LIMITS)
        child = new_child(before)
        os.kill(child, signal.SIGSTOP)
        second = await pool.array(ImageFiles([PNG], "files"), SPEC, LIMITS)
        np.testing.assert_array_equal(first, second)
        wait_until(lambda: child not in children_of(os.getpid()))
        assert new_child(before) != child

    run(attempt)


def test_what_cannot_be_decoded_is_free_at_once() -> None:
    async def attempt(pool: DecoderPool) -> None:
        pictures = ImageFiles([b"x"], "inputs")
        assert await frees(lambda: pool.array(pictures, SPEC, LIMITS), InputError)

    run(attempt)
