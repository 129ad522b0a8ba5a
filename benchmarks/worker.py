"""A measuring process: it builds one contender, then does what it is told, line by line, and reports in JSON.

    python -m benchmarks.worker MODULE:NAME VALUES

NAME is a contender (`benchmarks.contenders.Contender`) or a function of the values. Its requests: {"do": "step",
"batch": B, "batches": n} -> {"seconds": ...}; {"do": "peak"} -> {"bytes": ...}, above the baseline taken when imports,
model and data were there; {"do": "answer"} -> {"values": [...]}; {"do": "call"}, for a function -> what it returns.
"""

import importlib
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from benchmarks.memory import peak_bytes, reset_peak, resident_bytes

Values = dict[str, Any]


class Bench:
    """One contender under measurement."""

    def __init__(self, contender: Any) -> None:
        self.contender = contender
        reset_peak()
        self.baseline = resident_bytes()
        contender.prepare()
        if not contender.preparation_counts:
            reset_peak()

    def step(self, batch: int, batches: int) -> Values:
        start = time.perf_counter()
        self.contender.step(batch, batches)
        return {"seconds": time.perf_counter() - start}

    def peak(self) -> Values:
        return {"bytes": max(0, peak_bytes() - self.baseline)}

    def answer(self) -> Values:
        return {"values": [float(value) for value in self.contender.answer()]}

    def fits(self, batch: int, available: int) -> Values:
        needed = self.contender.needed_bytes(batch)
        return {"fits": needed <= available, "needed_bytes": needed}


class Task:
    """A function that is called once."""

    def __init__(self, function: Callable[[Values], Values], values: Values) -> None:
        self.function, self.values = function, values

    def call(self) -> Values:
        return self.function(self.values)


def resolve(name: str) -> Any:
    """The object called "module:name"; imported here, so that a process holds only what it measures."""
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)


def main(name: str, values: Values) -> None:
    """Serve requests from standard input until it closes; everything else that is printed goes to standard error."""
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    target = resolve(name)
    served = Bench(target(values)) if isinstance(target, type) else Task(target, values)
    replies.write(json.dumps({"ready": True}) + "\n")
    for line in sys.stdin:
        request = json.loads(line)
        reply = getattr(served, request.pop("do"))(**request)
        replies.write(json.dumps(reply) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
