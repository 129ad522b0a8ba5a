"""service/codec/decoders/: texts are read in processes that can be killed, whatever the tokenizer does with them."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from demur.service.codec.arrays import InputError
from demur.service.codec.decoders.channel import MOST_TOKENIZERS
from demur.service.codec.decoders.pool import DecoderPool
from demur.service.codec.plain_texts import PlainTexts
from demur.service.decoding import TEXT_BYTES
from demur.service.inference.predictor import Predictor
from demur.service.inference.texts import MAX_CHARACTERS, TextReader
from demur.service.settings import Settings
from tests.support.bundles import TEXT_SPEC, TOKENS, WORDS, tokenizer_json, write_linear
from tests.support.client import problem, serving
from tests.support.processes import children_of

TEXTS = PlainTexts(["The film was good", "", "bad"], "texts")
Try = Callable[[DecoderPool], Awaitable[Any]]


def split_at(pattern: str) -> bytes:
    return tokenizer_json(
        pre_tokenizer={"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    )


def replacing(content: str, **pattern: str) -> bytes:
    return tokenizer_json(normalizer={"type": "Replace", "pattern": pattern, "content": content})


WORDPIECE = {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "vocab": WORDS}
PANICS = split_at("(a+)+b"), "a" * 40 + "c"
# Each takes seconds to years, or more memory than there is; the tokenizer itself opens in no time.
HOSTILE = {
    "look-ahead": (split_at(r"(?=(a+))\1+b|x(?!y)"), "a" * MAX_CHARACTERS),
    "growing": (replacing("x" * 10**6, String="a"), "a" * MAX_CHARACTERS),
}


def run(attempt: Try, size: int = 1) -> None:
    before = children_of(os.getpid())

    @asynccontextmanager
    async def opened() -> AsyncIterator[DecoderPool]:
        pool = DecoderPool(size, TEXT_BYTES)
        try:
            yield pool
        finally:
            await pool.close()

    async def main() -> None:
        async with opened() as pool:
            await attempt(pool)

    asyncio.run(main())
    assert children_of(os.getpid()) == before


async def started(before: set[int]) -> set[int]:
    while not (children := children_of(os.getpid()) - before):
        await asyncio.sleep(0)
    return children


def test_a_process_reads_as_the_service_would() -> None:
    readers = [TextReader(tokenizer_json(length), length) for length in range(2, MOST_TOKENIZERS + 5)]

    async def attempt(pool: DecoderPool) -> None:
        for reader in [*readers, *readers]:  # more than a process keeps
            found, expected = await pool.tokens(TEXTS, reader), reader.read(TEXTS.texts, "texts")
            assert found.most == expected.most
            np.testing.assert_array_equal(found.cut, expected.cut)
            for kind, numbers in expected.numbers.items():
                np.testing.assert_array_equal(found.numbers[kind], numbers)

    run(attempt)


@pytest.mark.parametrize(
    ("changes", "linear"),
    [
        ({}, True),
        ({"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Lowercase"}]}}, True),
        (
            {"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}},
            True,
        ),
        ({"pre_tokenizer": None, "normalizer": None, "post_processor": None}, True),
        ({"normalizer": {"type": "Replace", "pattern": {"String": "a"}, "content": "b"}}, False),
        ({"normalizer": {"type": "Prepend", "prepend": "a"}}, False),
        ({"truncation": {"direction": "Right", "max_length": TOKENS, "strategy": "LongestFirst", "stride": 2}}, False),
        ({"model": {**WORDPIECE, "max_input_chars_per_word": 100}}, True),
        ({"model": {**WORDPIECE, "max_input_chars_per_word": 10**6}}, False),
    ],
)
def test_only_what_no_text_can_make_slow_is_read_at_once(changes: dict[str, Any], linear: bool) -> None:
    reader = TextReader(tokenizer_json(**changes), TOKENS)
    assert reader.linear == linear
    assert PlainTexts(["good"], "texts").cheap(reader) == linear
    assert not PlainTexts(["good " * 1000], "texts").cheap(reader)
    assert not PlainTexts(["good"] * 2000, "texts").cheap(reader)


@pytest.mark.parametrize("data", [PANICS[0], *(data for data, _ in HOSTILE.values())])
def test_hostile_ones_never_are(data: bytes) -> None:
    assert not TextReader(data, TOKENS).linear


def test_a_panic_of_the_tokenizer_is_told_as_an_error_of_the_text() -> None:
    reader = TextReader(PANICS[0], TOKENS)

    async def attempt(pool: DecoderPool) -> None:
        for _ in range(2):
            with pytest.raises(InputError, match=r"texts\[1\]: found no text that can be read"):
                await pool.tokens(PlainTexts(["good", PANICS[1]], "texts"), reader)
        await pool.tokens(TEXTS, reader)

    run(attempt)


@pytest.mark.parametrize("name", HOSTILE)
def test_whoever_waits_no_longer_gets_its_place_back(name: str) -> None:
    """And the event loop goes on meanwhile, or the time would not end."""
    data, text = HOSTILE[name]
    hostile, usual = TextReader(data, TOKENS), TextReader(tokenizer_json(), TOKENS)

    async def attempt(pool: DecoderPool) -> None:
        with pytest.raises((TimeoutError, InputError)):  # or the process ends on it first
            async with asyncio.timeout(1.5):
                await pool.tokens(PlainTexts([text], "texts"), hostile)
        await pool.tokens(TEXTS, usual)

    run(attempt)


def test_a_process_gets_ready_though_nobody_waits_for_it() -> None:
    """Or a tokenizer that takes longer to read than clients wait would never be."""
    reader, before = TextReader(tokenizer_json(), TOKENS), children_of(os.getpid())

    async def attempt(pool: DecoderPool) -> None:
        reading = asyncio.create_task(pool.tokens(TEXTS, reader))
        (child,) = await started(before)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        await pool.tokens(TEXTS, reader)
        assert children_of(os.getpid()) - before == {child}

    run(attempt)


def test_one_that_gets_ready_ends_with_the_pool() -> None:
    reader, before = TextReader(tokenizer_json(), TOKENS), children_of(os.getpid())

    async def attempt(pool: DecoderPool) -> None:
        reading = asyncio.create_task(pool.tokens(TEXTS, reader))
        await started(before)
        reading.cancel()

    run(attempt)


def test_the_service_answers_with_422(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = write_linear(tmp_path / "bundle", outputs=3, spec=TEXT_SPEC, tokenizer=PANICS[0]).path
    with serving(Predictor.load(path), Settings()) as client:
        found = problem(client.predict({"texts": [PANICS[1]]}), 422, "input")
        assert found.detail.startswith("texts[0]: found no text that can be read (Onig")
        assert client.predict({"texts": ["good"]}).status_code == 200
    assert "panicked" not in capfd.readouterr().err
