"""How much JSON is parsed at all. Parsing holds Python's lock, so that a flood of entries would stop everything else;
counting bytes does not take long."""

import math
from dataclasses import dataclass

from service.bundle import InputSpec
from service.codec.arrays import InputTooLarge

# Beyond, parsing would keep every other request waiting for a good part of a second.
MOST_NUMBERS = 2_000_000
# Somewhat too much should get as far as an error that says what is too much.
FACTOR, SLACK = 2, 20_000


@dataclass(frozen=True)
class JsonBounds:
    """Most values in lists, most lists, and most fields of objects."""

    values: int
    lists: int
    fields: int


def bounds_for(spec: InputSpec, rows: int) -> JsonBounds:
    """What the largest request for a model holds, and somewhat more."""
    values = rows * math.prod(spec.shape)
    lists = sum(rows * math.prod(spec.shape[:depth]) for depth in range(len(spec.shape))) + 1
    return JsonBounds(min(MOST_NUMBERS, FACTOR * values + SLACK), FACTOR * lists + SLACK, FACTOR * rows + SLACK)


def refuse_flood(body: bytes, bounds: JsonBounds) -> None:
    """Raises `InputTooLarge` where there are more commas, brackets or colons than the bounds have room for."""
    remedy = "send fewer, or an .npy file or binary tensors"
    for marks, most, what in (
        ((b",",), bounds.values, "values"),
        ((b"[",), bounds.lists, "lists"),
        ((b"{", b":"), bounds.fields, "fields"),
    ):
        if max(map(body.count, marks)) > most:
            raise InputTooLarge("body", f"more than {most} {what} in JSON", f"at most {most}: {remedy}")
