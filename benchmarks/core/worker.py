"""A measuring process: builds one method, then answers requests from standard input, one JSON document per line.

    python -m benchmarks.core.worker MODULE:NAME VALUES

NAME is a `Method` or a function of the values. Requests and answers:

    {"do": "step", "batch": B, "batches": n}  {"seconds": ...}
    {"do": "peak"}                            {"bytes": ...}, above the resident set before `prepare`
    {"do": "answer"}                          {"values": [...]}
    {"do": "call"}, for a function            its result
"""

import importlib
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any, Protocol

import numpy.typing as npt

from benchmarks.core.memory import peak_bytes, reset_peak, resident_bytes

Array = npt.NDArray[Any]
Values = dict[str, Any]


class Method(Protocol):
    """A way to compute: built from plain values, prepared, then stepped through `batches` batches of `batch` examples.

    Its memory counts from after the constructor, which imports and loads model and data.
    preparation_counts: whether memory used during `prepare` counts.
    """

    preparation_counts: bool

    def prepare(self) -> None: ...
    def step(self, batch: int, batches: int) -> None: ...
    def answer(self) -> Array: ...
    def needed_bytes(self, batch: int) -> int: ...


class MeasuredMethod:
    """One method under measurement."""

    def __init__(self, method: Method) -> None:
        self.method = method
        reset_peak()
        self.resident_before = resident_bytes()
        method.prepare()
        if not method.preparation_counts:
            reset_peak()

    def step(self, batch: int, batches: int) -> Values:
        start = time.perf_counter()
        self.method.step(batch, batches)
        return {"seconds": time.perf_counter() - start}

    def peak(self) -> Values:
        return {"bytes": max(0, peak_bytes() - self.resident_before)}

    def answer(self) -> Values:
        return {"values": [float(value) for value in self.method.answer()]}

    def fits(self, batch: int, available: int) -> Values:
        needed = self.method.needed_bytes(batch)
        return {"fits": needed <= available, "needed_bytes": needed}


class FunctionCall:
    """A function to call once."""

    def __init__(self, function: Callable[[Values], Values], values: Values) -> None:
        self.function, self.values = function, values

    def call(self) -> Values:
        return self.function(self.values)


def resolve(name: str) -> Any:
    """The object called "module:name", imported on demand: a process holds only what it measures."""
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)


def main(name: str, values: Values) -> None:
    """Serve requests from standard input until it closes; redirect all other output to standard error."""
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    target = resolve(name)
    served = MeasuredMethod(target(values)) if isinstance(target, type) else FunctionCall(target, values)
    replies.write(json.dumps({"ready": True}) + "\n")
    for line in sys.stdin:
        request = json.loads(line)
        reply = getattr(served, request.pop("do"))(**request)
        replies.write(json.dumps(reply) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
