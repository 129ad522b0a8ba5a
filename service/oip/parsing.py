"""JSON -> the pydantic models of `demur.service.oip.schemas`; what does not fit is a `RequestError` that names the
place."""

import codecs
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import from_json

from ..codec.decoding import FieldError, NotJson
from ..codec.json_limits import JsonLimits, check_json_size
from ..format.json_names import NameTwice, check_names_once
from .errors import RequestError
from .schemas import REFUSED_PARAMETER

M = TypeVar("M", bound=BaseModel)
MAX_SHOWN = 60
# What was expected, by the type of pydantic's error.
EXPECTED = {
    "string_type": "a text",
    "int_type": "a whole number",
    "bool_type": "true or false",
    "list_type": "a list",
    "is_instance_of": "a list",
    "dict_type": "an object",
    "model_type": "an object",
    "greater_than_equal": "a whole number of at least {ge}",
    "less_than_equal": "a whole number of at most {le}",
    "too_short": "at least {min_length}",
    "too_long": "at most {max_length}",
    "string_too_long": "at most {max_length}",
    "literal_error": "one of {expected}",
    "float_type": "a number",
}


def read_json(body: bytes, limits: JsonLimits) -> Any:
    """The values in a JSON text; a text of too many is refused before objects are made of it."""
    check_json_size(body, limits)
    try:
        check_names_once(body)
        return from_json(body.removeprefix(codecs.BOM_UTF8))
    except NameTwice as error:
        raise FieldError(f"{error.name:.80}", f"found {error}, expected each name once") from None
    except ValueError as error:
        raise NotJson(f"The body is not JSON: {error!s:.200}") from None


def parse(model: type[M], values: Any) -> M:
    """The values as this model; raises `RequestError` for the first that does not fit."""
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise _refusal(error) from None


def _refusal(error: ValidationError) -> RequestError:
    first = error.errors(include_url=False)[0]
    kind, value, context = first["type"], first["input"], first.get("ctx", {})
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"]).lstrip(".")
    if kind == REFUSED_PARAMETER:
        name = context["name"]
        return RequestError(f"{place}.{name}", f"the parameter {name!r}", first["msg"])
    found = shown(value)
    if kind in ("too_short", "too_long", "string_too_long"):
        found = f"{len(value)} {'characters' if isinstance(value, str) else 'entries'}"
    return RequestError(place or "body", found, EXPECTED.get(kind, first["msg"]).format(**context))


def shown(value: Any) -> str:
    """A short text for a value of any size."""
    if value is None:
        return "nothing"
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    if isinstance(value, str):
        return repr(value[:MAX_SHOWN])
    try:
        return repr(value)[:MAX_SHOWN]
    except ValueError:  # Python refuses to write very long whole numbers
        return "a huge whole number"
