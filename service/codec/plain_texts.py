"""Texts that a client sent, before a tokenizer has read them."""

from collections.abc import Sequence
from dataclasses import dataclass

from probity.service.codec.arrays import Array, InputError, InputLimits, InputTooLarge, check_rows
from probity.service.format.manifest_input import InputSpec
from probity.service.inference.texts import MAX_CHARACTERS, TextError, TextReader, check_texts

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
        for place, text in enumerate(self.texts):
            if len(text) > MAX_CHARACTERS:
                found, expected = f"{len(text)} characters", f"at most {MAX_CHARACTERS} in a text"
                raise InputTooLarge(f"{self.field}[{place}]", found, expected)
        if self.size > MAX_TOTAL_CHARACTERS:
            expected = f"at most {MAX_TOTAL_CHARACTERS} in all texts of a request"
            raise InputTooLarge(self.field, f"{self.size} characters", expected)
        try:
            check_texts(self.texts, self.field)
        except TextError as error:
            raise InputError(error.field, error.found, error.expected) from None

    def read(self, reader: TextReader, spec: InputSpec) -> tuple[Array, list[str]]:
        """As the network takes them, (B, F) or (B, L), and warnings of what was left out; raises `InputError`."""
        try:
            tokens = reader.read(self.texts, self.field)
        except TextError as error:
            raise InputError(error.field, error.found, error.expected) from None
        return tokens.array(spec), tokens.warnings(self.field)
