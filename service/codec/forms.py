"""multipart/form-data -> its files. Only UTF-8 is decoded: no charset that a client names is looked up."""

import logging
import re
from dataclasses import dataclass, field

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser

from .arrays import InputTooLarge

FIELD = "files"
EXPECTED = f"one or more files in fields named '{FIELD}'"
MAX_HEADERS, MAX_HEADER_BYTES = 16, 4096  # of one part
MAX_BOUNDARY_LENGTH = 70  # RFC 2046
# A parameter of a header: a token, or a text in quotation marks.
PARAMETER = re.compile(r';[ \t]*([^\s;="]+)[ \t]*=[ \t]*(?:"((?:[^"\\]|\\.)*)"|([^\s;"]*))[ \t]*')


class FormError(ValueError):
    """The body is not a form."""


class FormFieldError(ValueError):
    """The form has a field that the service does not know, or no file."""

    def __init__(self, field: str, found: str) -> None:
        self.field, self.found, self.expected = field, found, EXPECTED
        super().__init__(f"Found {found}, expected {EXPECTED}")

    def __reduce__(self) -> tuple[type["FormFieldError"], tuple[str, str]]:
        return type(self), (self.field, self.found)


def files_of(content_type: str, body: bytes, max_files: int) -> list[bytes]:
    """The files of the form, in order.

    Raises `FormError` for a malformed form, `FormFieldError` for other fields and for none, and `InputTooLarge` for
    more than `max_files` files.
    """
    boundary = _parameters(content_type).get("boundary", "")
    if not 0 < len(boundary) <= MAX_BOUNDARY_LENGTH or not boundary.isascii():
        raise FormError(f"the content type has no boundary of 1 to {MAX_BOUNDARY_LENGTH} characters")
    if not body:
        raise FormFieldError(FIELD, "an empty form")
    form = _Form(max_files)
    callbacks = {
        name: getattr(form, name)
        for name in ("on_part_begin", "on_part_data", "on_header_field", "on_header_value", "on_header_end", "on_end")
    }
    try:
        parser = MultipartParser(
            boundary,
            callbacks,  # type: ignore[arg-type]
            max_header_count=MAX_HEADERS,
            max_header_size=MAX_HEADER_BYTES,
        )
        parser.logger = logging.Logger("form", logging.CRITICAL + 1)  # a client's mistakes do not belong in the log
        parser.write(body)
        parser.finalize()
    except FormParserError as error:
        raise FormError(f"{error!s:.150}") from None
    if not form.ended:
        raise FormError("it ends before its last boundary")
    return form.files()


@dataclass
class _Part:
    name: str | None = None
    is_file: bool = False
    data: bytearray = field(default_factory=bytearray)


class _Form:
    """The parser's callbacks, and the parts that they collect."""

    def __init__(self, max_files: int) -> None:
        self.max_files, self.ended = max_files, False
        self._parts: list[_Part] = []
        self._header, self._value = bytearray(), bytearray()

    def on_part_begin(self) -> None:
        if len(self._parts) == self.max_files:
            raise InputTooLarge("form", f"more than {self.max_files} parts", f"at most {self.max_files} files")
        self._parts.append(_Part())

    def on_header_field(self, data: bytes, start: int, end: int) -> None:
        self._header += data[start:end]

    def on_header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def on_header_end(self) -> None:
        if self._header.lower() == b"content-disposition":
            parameters = _parameters(self._value.decode(errors="replace"))  # the names of files may be of any encoding
            part = self._parts[-1]
            part.name = parameters.get("name")
            part.is_file = "filename" in parameters or "filename*" in parameters
        self._header, self._value = bytearray(), bytearray()

    def on_part_data(self, data: bytes, start: int, end: int) -> None:
        self._parts[-1].data += data[start:end]

    def on_end(self) -> None:
        self.ended = True

    def files(self) -> list[bytes]:
        """The files' contents; raises `FormFieldError` for any other field."""
        for part in self._parts:
            if part.name is None:
                raise FormError("a part's Content-Disposition has no name")
            if part.name != FIELD or not part.is_file:
                without = "" if part.is_file else " without a file name (curl: -F files=@FILE)"
                raise FormFieldError(part.name[:50], f"the form field {part.name!r:.50}{without}")
        if not self._parts:
            raise FormFieldError(FIELD, "an empty form")
        return [bytes(part.data) for part in self._parts]


def _parameters(header: str) -> dict[str, str]:
    """The parameters after a header's first value; of a repeated one, the first."""
    _, mark, rest = header.partition(";")
    found: dict[str, str] = {}
    at = 0
    rest = mark + rest
    while (match := PARAMETER.match(rest, at)) is not None:
        name, quoted, token = match.groups()
        found.setdefault(name.lower(), token if quoted is None else quoted.replace('\\"', '"'))
        at = match.end()
    return found
