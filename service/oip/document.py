"""Reading the fields of a JSON object one by one: each is there, and of its type, or the error says where."""

from typing import Any, TypeVar

from pydantic_core import from_json

from service.codec.decoding import NotJson
from service.codec.json_limits import JsonLimits, check_json_size
from service.oip.errors import RequestError

T = TypeVar("T", str, int, bool, list[Any], dict[str, Any])
NAMES = {dict: "an object", list: "a list", str: "a text", int: "a whole number", bool: "true or false"}
MAX_SHOWN = 60


class Document:
    """A JSON object, and the name by which errors call it. A field that is null counts as missing."""

    def __init__(self, values: Any, place: str = "") -> None:
        if type(values) is not dict:
            raise RequestError(place or "body", shown(values), "an object")
        self.values, self.place = values, place

    def where(self, field: str) -> str:
        """The name of a field in errors."""
        return f"{self.place}.{field}" if self.place else field

    def optional(self, field: str, kind: type[T]) -> T | None:
        """The field's value, of exactly this type; None where it is missing."""
        value = self.values.get(field)
        if value is None or type(value) is kind:
            return value
        raise RequestError(self.where(field), shown(value), NAMES[kind])

    def required(self, field: str, kind: type[T]) -> T:
        """The field's value, of exactly this type."""
        value = self.optional(field, kind)
        if value is None:
            raise RequestError(self.where(field), "nothing", NAMES[kind])
        return value

    def inner(self, field: str) -> "Document":
        """The object in this field; an empty one where it is missing."""
        return Document(self.optional(field, dict) or {}, self.where(field))


def read_json(body: bytes, bounds: JsonLimits) -> Document:
    """Bytes -> the JSON object in them; a flood of entries is refused before objects are made of it."""
    check_json_size(body, bounds)
    try:
        values = from_json(body)
    except ValueError as error:
        raise NotJson(f"The body is not JSON: {error!s:.200}") from None
    return Document(values)


def shown(value: Any) -> str:
    """A short text for a value of any size."""
    if isinstance(value, dict | list):
        return NAMES[type(value)]
    if isinstance(value, str):
        return repr(value[:MAX_SHOWN])
    try:
        return repr(value)[:MAX_SHOWN]
    except ValueError:  # Python refuses to write very long whole numbers
        return "a huge whole number"
