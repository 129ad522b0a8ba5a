"""What the query of a prediction asks for: a rate, which fields of the answer, and whether it is only a trial."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fastapi import Request

from ..codec.answers import FIELDS, View, usual_top
from ..format.manifest import Manifest
from ..format.text import suggestion
from ..http.problems import ProblemError

RATE, DETAIL, FULL, CHOSEN, TOP, TRIAL = "false_reject_rate", "detail", "full", "fields", "top", "trial"
NAMES = (RATE, DETAIL, CHOSEN, TOP, TRIAL)
PARAMETERS: list[dict[str, Any]] = [
    {"name": name, "in": "query", "required": False, "description": description, "schema": schema}
    for name, description, schema in (
        (
            RATE,
            "Share of in-distribution inputs that may be rejected, where the operator lets requests choose "
            "(`DEMUR_REQUESTED_RATES`).",
            {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
        ),
        (DETAIL, "`full`: every field that is known, of every class.", {"type": "string", "enum": [FULL]}),
        (CHOSEN, "Fields of each prediction, with commas between them: these alone.", {"type": "string"}),
        (
            TOP,
            "How many classes to show, the most probable first; without it, all where there are at most ten, else ten.",
            {"type": "integer", "minimum": 1},
        ),
        (
            TRIAL,
            "`true`: the examples are no traffic of the model: its metrics and the test for drift do not see them, the "
            "audit trail does, and the answer has no receipt.",
            {"type": "string", "enum": ["true"]},
        ),
    )
]


@dataclass(frozen=True)
class Query:
    """rate: None for the model's own; full: whether the answer says everything; trial: whether the
    model's metrics leave the examples out."""

    rate: float | None = None
    full: bool = False
    fields: Sequence[str] | None = None
    top: int | None = None
    trial: bool = False

    def view(self, manifest: Manifest) -> View:
        """What an answer of this model shows; raises `ProblemError` (422) for a field that it does not have."""
        known = FIELDS[manifest.task]
        for name in self.fields or ():
            if name not in known:
                raise _wrong(CHOSEN, name, f"some of {', '.join(known)}", suggestion(name, known))
        fields = list(known) if self.full and self.fields is None else self.fields
        return View(fields, self.top or (None if self.full else usual_top(manifest.outputs)))


USUAL = Query()


def query_of(request: Request) -> Query:
    """What the request asks for; raises `ProblemError` (422) for what is unknown or wrong."""
    if not request.scope["query_string"]:
        return USUAL
    given: dict[str, str] = {}
    for name, text in request.query_params.multi_items():
        if name not in NAMES:
            hint, expected = suggestion(name, NAMES), f"{', '.join(NAMES)} or none"
            detail = f"Found the query parameter {name!r:.100}{hint}, expected {expected}."
            raise ProblemError(422, "field", detail, field=name[:100], found=name[:100], expected=expected)
        if name in given:
            raise _wrong(name, f"{given[name]}, {text}", "one alone")
        given[name] = text
    if given.get(DETAIL, FULL) != FULL:
        raise _wrong(DETAIL, given[DETAIL], f"{FULL!r}, or no such parameter", suggestion(given[DETAIL], [FULL]))
    if given.get(TRIAL, "true") != "true":
        raise _wrong(TRIAL, given[TRIAL], "'true', or no such parameter")
    fields = [name.strip() for name in given[CHOSEN].split(",")] if CHOSEN in given else None
    return Query(_rate(given.get(RATE)), DETAIL in given, fields, _top(given.get(TOP)), TRIAL in given)


def _rate(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        rate = float(text)
    except ValueError:
        rate = math.nan
    if not 0 < rate < 1:
        raise _wrong(RATE, text, "one number between 0 and 1", code=RATE)
    return rate


def _top(text: str | None) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 10 and int(text)):
        raise _wrong(TOP, text, "a whole number, at least 1")
    return int(text)


def _wrong(name: str, found: str, expected: str, hint: str = "", code: str = "field") -> ProblemError:
    detail = f"{name}: found {found!r:.100}{hint}, expected {expected}."
    return ProblemError(422, code, detail, field=name, found=found[:100], expected=expected)
