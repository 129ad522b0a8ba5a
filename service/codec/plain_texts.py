"""Texts that a client sent, before a tokenizer has read them."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from ..format.manifest_input import InputSpec
from ..inference.texts import TextError, TextReader, TextTooLong, check_texts
from .arrays import Array, InputError, InputLimits, InputTooLarge, check_rows

# Reading so many characters takes no longer than handing them to a thread.
CHEAP_CHARACTERS = 1024
MAX_TOTAL_CHARACTERS = 2**22  # of all texts of a request


@dataclass(frozen=True)
class PlainTexts:
    """Texts; `field` is their name in errors and warnings."""

    texts: Sequence[str]
    field: str

    @property
    def size(self) -> int:
        """Characters."""
        return sum(map(len, self.texts))

    def check(self, spec: InputSpec, limits: InputLimits) -> None:
        """Refuse texts for a model that takes numbers, none, too many, and too long ones: `InputError`."""
        if spec.text is None:
            expected = "'inputs': this model takes numbers; one that takes texts is fitted with a tokenizer"
            raise InputError(self.field, "texts", expected)
        check_rows(self.field, len(self.texts), limits.rows(spec))
        with _as_input_errors():
            check_texts(self.texts, self.field)
        if self.size > MAX_TOTAL_CHARACTERS:
            expected = f"at most {MAX_TOTAL_CHARACTERS} in all texts of a request"
            raise InputTooLarge(self.field, f"{self.size} characters", expected)

    def read(self, reader: TextReader, spec: InputSpec) -> tuple[Array, list[str]]:
        """As the network takes them, (B, F) or (B, L), and warnings of what was left out; raises `InputError`."""
        with _as_input_errors():
            tokens = reader.read(self.texts, self.field)
        return tokens.array(spec), tokens.warnings(self.field)


@contextmanager
def _as_input_errors() -> Iterator[None]:
    try:
        yield
    except TextError as error:
        kind = InputTooLarge if isinstance(error, TextTooLong) else InputError
        raise kind(error.field, error.found, error.expected) from None
