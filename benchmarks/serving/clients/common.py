"""What each client is asked to do, and how it tells: runs in environments that have nothing of this project's."""

import json
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

VALUES = [[1, 2, 3, 4], [5, 6, 7, 8], [0, 1, 0, 1]]
TYPES = {
    "UINT8": np.uint8,
    "UINT16": np.uint16,
    "UINT32": np.uint32,
    "UINT64": np.uint64,
    "INT8": np.int8,
    "INT16": np.int16,
    "INT32": np.int32,
    "INT64": np.int64,
    "FP16": np.float16,
    "FP32": np.float32,
    "FP64": np.float64,
}
CLOSE = 1e-4


class Notes:
    """What a client did, a row each, printed as JSON at the end."""

    def __init__(self, expected: Any) -> None:
        """expected: the means that the predictor gives."""
        self._expected, self.rows = expected, list[dict[str, str]]()

    def note(self, client: str, what: str, found: str) -> None:
        """found: "ok", or what went wrong."""
        self.rows.append({"client": client, "what": what, "found": found})

    def attempt(self, client: str, what: str, act: Callable[[], bool]) -> None:
        """Note whether `act` is true, or what it raises."""
        try:
            self.note(client, what, "ok" if act() else "another answer")
        except Exception as error:  # whatever a client raises is what is asked for
            self.note(client, what, self.told(error))

    def told(self, error: Exception) -> str:
        """An error in one line."""
        return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"

    def is_expected(self, mean: Any) -> bool:
        """Whether the means are the predictor's."""
        return bool(np.allclose(np.array(mean).reshape(3, -1), self._expected, rtol=CLOSE, atol=CLOSE))

    def end(self) -> None:
        """Print the rows."""
        print(json.dumps(self.rows))


def values(datatype: str) -> Any:
    """The examples in this datatype."""
    return np.array(VALUES).astype(TYPES[datatype])


def arguments() -> tuple[str, str, str, Notes]:
    """Where HTTP and gRPC are, the model's name, and the notes."""
    http, rpc, model, expected = sys.argv[1:]
    return http, rpc, model, Notes(json.loads(expected))
