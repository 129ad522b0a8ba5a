"""Texts -> the whole numbers that a network takes, by the tokenizer of its bundle."""

import hashlib
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import numpy.typing as npt

from ..format.manifest_input import InputSpec, TokenKind
from .parts import packed

if TYPE_CHECKING:
    from tokenizers import Tokenizer

Array = npt.NDArray[Any]
NEED_TOKENIZERS = "texts need the package tokenizers: pip install tokenizers"
# All of a text is read before it is cut to the network's length: of many megabytes, for seconds.
MAX_CHARACTERS = 100_000
KINDS: tuple[TokenKind, ...] = get_args(TokenKind)
# Parts of tokenizers that take a time in proportion to a text, whatever stands in it; others run patterns of the file.
LINEAR = {
    *("BertNormalizer", "Lowercase", "NFC", "NFD", "NFKC", "NFKD", "Strip", "StripAccents", "Sequence"),
    *("BertPreTokenizer", "ByteLevel", "Digits", "Metaspace", "Punctuation", "Whitespace", "WhitespaceSplit"),
    *("BPE", "Unigram", "WordLevel", "WordPiece", "BertProcessing", "RobertaProcessing", "TemplateProcessing"),
}
LONGEST_WORD, LONGEST_TEMPLATE = 200, 10_000  # what WordPiece searches in, and a template's JSON; characters
MAX_NAMED = 3  # texts named in warnings; the others are counted


class TextError(ValueError):
    """A text that cannot be read: which, what was found, what was expected."""

    def __init__(self, field: str, found: str, expected: str) -> None:
        self.field, self.found, self.expected = field, found, expected
        super().__init__(f"{field}: found {found}, expected {expected}")

    def __reduce__(self) -> tuple[type["TextError"], tuple[str, str, str]]:
        return type(self), (self.field, self.found, self.expected)


class TextTooLong(TextError):
    """A text of more than `MAX_CHARACTERS`."""


class TokenizerError(ValueError):
    """The tokenizer cannot be used, or the package that reads it is missing."""


@dataclass(frozen=True)
class Tokens:
    """numbers: of each kind (B, L) int64; cut (B,) bool: texts of more tokens than `most`, whose rest is left out."""

    numbers: Mapping[TokenKind, Array]
    cut: Array
    most: int

    @classmethod
    def from_table(cls, table: Array, most: int) -> "Tokens":
        """What `table` gave."""
        *each, cut = np.split(table, np.arange(1, len(KINDS) + 1) * (table.shape[1] // len(KINDS)), axis=1)
        return cls(dict(zip(KINDS, map(np.ascontiguousarray, each), strict=True)), cut[:, 0] != 0, most)

    def table(self) -> Array:
        """All numbers and whether a text is cut, (B, 3 L + 1) int64."""
        return np.column_stack([*(self.numbers[kind] for kind in KINDS), self.cut])

    def array(self, spec: InputSpec) -> Array:
        """As the network takes them: its parts packed (B, F) float32, or the numbers of the tokens (B, L) int64."""
        assert spec.text is not None
        if spec.parts is None:
            return self.numbers["ids"]
        named = {part.name: self.numbers[kind] for part, kind in zip(spec.parts, spec.text.takes, strict=True)}
        return packed(named, spec.parts, "texts")

    def warnings(self, field: str) -> list[str]:
        """What was left out; field: what the request calls the texts."""
        rows = np.flatnonzero(self.cut).tolist()
        named = [
            f"{field}[{row}]: has more than the {self.most} tokens that the network takes; the rest is left out"
            for row in rows[:MAX_NAMED]
        ]
        return [*named, f"{field}: {len(rows) - MAX_NAMED} more such texts"] if rows[MAX_NAMED:] else named


class TextReader:
    """The tokenizer of a bundle, which makes `length` tokens of each text, `most` of them its own. Thread-safe.

    identity: what no other tokenizer, and no other length, has. linear: no text takes it much longer than others of its
    length.
    """

    def __init__(self, data: bytes, length: int) -> None:
        """data: tokenizer.json, in the format of the package tokenizers, which fills to `length` and cuts no later.

        Raises `TokenizerError` for another file, and without that package.
        """
        self.data, self.length, self.identity = data, length, f"{hashlib.sha256(data).hexdigest()} {length}"
        self._tokenizer = tokenizer_of(data)
        if dropout := getattr(self._tokenizer.model, "dropout", None):
            raise TokenizerError(f"found model.dropout {dropout:g}, with which a text is read otherwise each time")
        cut, filled = self._tokenizer.truncation or {}, self._tokenizer.padding or {}
        self.most = cut.get("max_length") or 0
        if filled.get("length") != length or not 0 < self.most <= length:
            found = self.most or None, filled.get("length")
            raise TokenizerError(f"found truncation and padding to {found}, expected at most, and exactly, {length}")
        self.linear = _is_linear(json.loads(data))
        self.read([""], "")  # a tokenizer that cannot cut so short says so here

    def read(self, texts: Sequence[str], field: str) -> Tokens:
        """The tokens of the texts; field: what to call them in errors. Raises `TextError` for anything but texts, for
        none, and for those of more than `MAX_CHARACTERS`."""
        check_texts(texts, field)
        shape = len(texts), self.length
        numbers: dict[TokenKind, Array] = {kind: np.empty(shape, np.int64) for kind in KINDS}
        cut = np.empty(len(texts), bool)
        # One after the other: what is left out of a text takes a hundred times its memory.
        for place, text in enumerate(texts):
            try:
                (one,) = self._tokenizer.encode_batch_fast([text])  # unlike `encode`, it lets other threads run
            except BaseException as error:
                if not _is_of_package(error):
                    raise
                raise TextError(f"{field}[{place}]", f"no text that can be read ({error!s:.100})", "another") from None
            if len(one.ids) != self.length:
                raise TextError(f"{field}[{place}]", f"{len(one.ids)} tokens of the tokenizer", f"{self.length}")
            numbers["ids"][place], numbers["mask"][place] = one.ids, one.attention_mask
            numbers["types"][place], cut[place] = one.type_ids, bool(one.overflowing)
        return Tokens(numbers, cut, self.most)


def tokenizer_of(data: bytes) -> "Tokenizer":
    """What the package makes of a tokenizer.json; raises `TokenizerError`."""
    # Threads of its own would be as many as there are processors for each process, and warn of every later fork.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise TokenizerError(NEED_TOKENIZERS) from None
    try:
        return Tokenizer.from_str(data.decode())
    except BaseException as error:
        if not _is_of_package(error):
            raise
        raise TokenizerError(f"found no tokenizer ({' '.join(str(error).split()):.150})") from None


def _is_linear(content: dict[str, Any]) -> bool:
    template, stride = content.get("post_processor"), (content.get("truncation") or {}).get("stride")
    parts = [content["model"], content.get("normalizer"), content.get("pre_tokenizer"), template]
    while parts:
        part = parts.pop() or {"type": "Sequence"}
        if part.get("type") not in LINEAR or part.get("max_input_chars_per_word", 0) > LONGEST_WORD:
            return False
        parts += [one for name in ("normalizers", "pretokenizers", "processors") for one in part.get(name, ())]
    return not stride and len(json.dumps(template)) <= LONGEST_TEMPLATE


def _is_of_package(error: BaseException) -> bool:
    """Whether the package may have raised it: `Exception` itself, or a panic, such as of a pattern that gives up."""
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"


def check_texts(texts: Sequence[Any], field: str) -> None:
    """`TextError` for anything but texts of at most `MAX_CHARACTERS`, at least one."""
    if not len(texts):
        raise TextError(field, "an empty list", "at least one text")
    for place, text in enumerate(texts):
        if not isinstance(text, str):
            raise TextError(f"{field}[{place}]", f"{text!r:.60}", "a text")
        if len(text) > MAX_CHARACTERS:
            raise TextTooLong(f"{field}[{place}]", f"{len(text)} characters", f"at most {MAX_CHARACTERS} in a text")


def texts_of(values: Any) -> list[Any] | None:
    """The entries of a list, an array or a column that begins with a text, but for what is missing; None for anything
    else."""
    if isinstance(values, str | bytes | Mapping) or hasattr(values, "columns"):
        return None
    if isinstance(values, np.ndarray) or hasattr(values, "to_list"):
        if getattr(values, "ndim", 1) != 1 or getattr(values, "dtype", None) in (np.float32, np.float64, np.int64):
            return None
        values = values.tolist() if isinstance(values, np.ndarray) else values.to_list()
    if not isinstance(values, Sequence):
        return None
    first = next((value for value in values if not _is_missing(value)), None)
    return list(values) if isinstance(first, str) else None


def _is_missing(value: Any) -> bool:
    """As data frames have what is missing: None, NaN, or the value that is called NA."""
    return value is None or (isinstance(value, float) and math.isnan(value)) or type(value).__name__ == "NAType"
