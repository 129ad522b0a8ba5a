"""Texts that a client sent, before a tokenizer has read them."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar

from ..format.manifest_input import InputSpec
from ..inference.texts import MAX_CHARACTERS, TextError, TextReader, TextTooLong, Tokens, check_texts
from .arrays import InputError, InputLimits, InputTooLarge, check_rows

# What a request may have for each token that the network takes: many times what a token is long in any language. The
# rest of a text is read too, and then left out: 40 texts of 100,000 characters take seconds.
CHARACTERS_OF_A_TOKEN = 64
# So many characters, and numbers of tokens, take no longer than handing them to a process.
CHEAP_CHARACTERS, CHEAP_NUMBERS = 1024, 4096


@dataclass(frozen=True)
class PlainTexts:
    """Texts; `field` is their name in errors and warnings."""

    texts: Sequence[str]
    field: str
    plural: ClassVar[str] = "texts"

    def cheap(self, reader: TextReader) -> bool:
        """Whether reading them takes no time worth a process."""
        numbers, characters = reader.length * len(self.texts), sum(map(len, self.texts))
        return reader.linear and numbers <= CHEAP_NUMBERS and characters <= CHEAP_CHARACTERS

    def check(self, spec: InputSpec, limits: InputLimits) -> None:
        """Refuse texts for a model that takes numbers, none, too many, and too long ones: `InputError`."""
        if spec.text is None:
            expected = "'inputs': this model takes numbers; one that takes texts is fitted with a tokenizer"
            raise InputError(self.field, "texts", expected)
        check_rows(self.field, len(self.texts), limits.rows(spec))
        with _as_input_errors():
            check_texts(self.texts, self.field)
        tokens, found = spec.pieces[0].shape[0], sum(map(len, self.texts))
        if found > (most := MAX_CHARACTERS + CHARACTERS_OF_A_TOKEN * tokens * len(self.texts)):
            expected = f"at most {most} in all {len(self.texts)} texts: of each, the network takes {tokens} tokens"
            raise InputTooLarge(self.field, f"{found} characters", expected)

    def read(self, reader: TextReader) -> Tokens:
        """The tokens of the texts; raises `InputError`."""
        with _as_input_errors():
            return reader.read(self.texts, self.field)


@contextmanager
def _as_input_errors() -> Iterator[None]:
    try:
        yield
    except TextError as error:
        kind = InputTooLarge if isinstance(error, TextTooLong) else InputError
        raise kind(error.field, error.found, error.expected) from None
