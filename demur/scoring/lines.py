"""Inputs from JSON lines, such as those of a service's audit trail that keeps inputs."""

import codecs
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from pydantic_core import from_json

from demur.service.bundle import InputSpec
from demur.service.format.json_names import NameTwice, check_names_once
from demur.service.inference.frames import numbers_of

from .errors import ScoringError
from .inputs import MAX_CELL, Batch, Source, bounded_lines, checked_rows

INPUTS, MODEL, EVENT = "inputs", "model", "event"
NAME = re.compile(r".*\.jsonl(\.[0-9]+)?")  # also one that the audit trail has rotated
Line = tuple[int, dict[str, Any]]
"""The number of a line, from 1, and what it says."""


def open_json_lines(path: Path, spec: InputSpec, model: str, keep: Sequence[str] = ()) -> Source:
    """A file of JSON objects, one a line, with an example as the network takes it in `inputs`.

    Where the lines are of several models, those of `model` count; lines with an `event`, of the service itself, do
    not. keep: the fields to write beside the predictions.
    Raises `ScoringError`.
    """
    models = Counter(str(line.get(MODEL, "")) for _, line in _lines(path, spec))
    if not models:
        raise ScoringError(f"{path}: found no line, expected at least one input")
    if len(models) > 1 and model not in models:
        names = ", ".join(map(repr, sorted(models)))
        raise ScoringError(f"{path}: found lines of the models {names!s:.200}, expected some of {model!r}")
    only = model if len(models) > 1 else None
    count = models[model] if only else models.total()

    def batches(start: int, size: int) -> Iterator[Batch]:
        wanted = (each for each in _lines(path, spec) if only is None or each[1].get(MODEL) == only)
        rest, first = islice(wanted, start, None), start
        # Each line is left behind as its example is read: parsed, it takes many times as much.
        while block := [
            (each[0], _example(each, spec, path), [_kept(each, name, path) for name in keep])
            for each in islice(rest, size)
        ]:
            numbers, examples, cells = zip(*block, strict=True)
            where = [f"row {first + i} (line {number})" for i, number in enumerate(numbers)]
            kept = dict(zip(keep, map(list, zip(*cells, strict=True)), strict=True))
            yield Batch(checked_rows(np.stack(examples), spec, path, where), kept=kept)
            first += len(block)

    return Source(count, batches, dict.fromkeys(keep, str))


def _lines(path: Path, spec: InputSpec) -> Iterator[Line]:
    """Those that are not empty, and no events."""
    with open(path, "rb") as file:
        for number, text in enumerate(bounded_lines(file, spec, path), start=1):
            if not text.strip():
                continue
            try:
                check_names_once(text)
                line = from_json(text.removeprefix(codecs.BOM_UTF8))
            except NameTwice as error:
                raise ScoringError(f"{path}: line {number}: found {error}, expected each name once") from None
            except ValueError as error:
                raise ScoringError(f"{path}: line {number}: found no JSON ({error!s:.150})") from None
            if not isinstance(line, dict):
                raise ScoringError(f"{path}: line {number}: found {type(line).__name__}, expected a JSON object")
            if EVENT in line and INPUTS not in line:
                continue
            yield number, line


def _example(line: Line, spec: InputSpec, path: Path) -> Any:
    number, fields = line
    if INPUTS not in fields:
        raise ScoringError(
            f"{path}: line {number}: found no {INPUTS!r}, expected an example as the network takes it; a service keeps "
            "them with DEMUR_AUDIT_INPUTS=true"
        )
    try:
        example = numbers_of(fields[INPUTS], INPUTS)
    except ValueError as error:
        raise ScoringError(f"{path}: line {number}: {error!s:.300}") from None
    if example.shape != spec.shape:
        raise ScoringError(f"{path}: line {number}: {INPUTS}: found shape {example.shape}, expected {spec.shape}")
    return example


def _kept(line: Line, name: str, path: Path) -> str | None:
    number, fields = line
    if name not in fields:
        raise ScoringError(f"--keep: found no {name!r:.80} in line {number} of {path}, expected it in every line")
    value = fields[name]
    cell = value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if cell is not None and len(cell) > MAX_CELL:
        found = f"found {len(cell):,} characters, expected at most {MAX_CELL:,}"
        raise ScoringError(f"{path}: line {number}, {name!r:.80}: {found}")
    return cell
