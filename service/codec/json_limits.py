"""Limits on JSON before it is parsed. Parsing holds Python's lock, so too many values would stop every other request;
counting bytes is quick."""

import math
from dataclasses import dataclass

from ..bundle import InputSpec
from .arrays import InputTooLarge

# Parsing more would stop every other request for a good part of a second.
MAX_NUMBERS = 2_000_000
# A request that is somewhat too large should reach the error that names what is too large.
FACTOR, SLACK = 2, 20_000
MARKS_IN_TEXTS = 200_000  # brackets and colons, which texts hold too


@dataclass(frozen=True)
class JsonLimits:
    """Most values in lists, most lists, and most fields of objects."""

    values: int
    lists: int
    fields: int


def json_limits_for(spec: InputSpec, rows: int) -> JsonLimits:
    """Somewhat more than the largest request for the model holds."""
    values = rows * math.prod(spec.shape)
    shapes = [spec.shape] if spec.parts is None else [part.shape for part in spec.parts]
    lists = sum(rows * math.prod(shape[:depth]) for shape in shapes for depth in range(len(shape))) + len(shapes)
    if spec.text is not None:
        return JsonLimits(MAX_NUMBERS, MARKS_IN_TEXTS, MARKS_IN_TEXTS)
    fields = values + rows if spec.feature_names else rows  # examples may be objects with a field for each feature
    return JsonLimits(
        min(MAX_NUMBERS, FACTOR * values + SLACK), FACTOR * lists + SLACK, min(MAX_NUMBERS, FACTOR * fields + SLACK)
    )


def check_json_size(body: bytes, limits: JsonLimits) -> None:
    """Raises `InputTooLarge` for more commas, brackets or colons than the limits allow."""
    remedy = "send fewer, or an .npy file or binary tensors"
    for marks, most, what in (
        ((b",",), limits.values, "values"),
        ((b"[",), limits.lists, "lists"),
        ((b"{", b":"), limits.fields, "fields"),
        ((b'"',), 2 * (limits.values + limits.fields), "quotes"),
    ):
        if max(map(body.count, marks)) > most:
            raise InputTooLarge("body", f"more than {most} {what} in JSON", f"at most {most}: {remedy}")
