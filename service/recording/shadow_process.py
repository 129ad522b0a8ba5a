"""`python -m demur.service.recording.shadow_process`: predict what another model has answered, and say how they differ.

Once it has loaded the bundle, it has the lowest priority: whatever else runs comes first. Standard input holds a `Task`
as a line of JSON, then frames of arrays (`frame`): `inputs` and the answer's, of several requests together. Standard
output receives a line of JSON for each: the sums of `Differences`, or what went wrong. The other side is
`demur.service.recording.shadow`.
"""

import contextlib
import json
import os
import struct
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import safetensors.numpy

from ..environment.child import be_expendable, run_when_idle
from ..inference.graph import NetworkError, NetworkFailed
from ..inference.policy import Policy
from ..inference.predictor import Predictor
from ..maths.disagreement import Differences

Array = npt.NDArray[Any]
SIZE = struct.Struct("<Q")
LOADING_NICENESS = 5


@dataclass(frozen=True)
class Task:
    """The bundle that predicts, which must have this digest, and the operator's policy."""

    folder: str
    digest: str
    policy: dict[str, Any]


def frame(arrays: Mapping[str, Array]) -> bytes:
    """The arrays as safetensors, behind the number of bytes."""
    data = safetensors.numpy.save({name: np.ascontiguousarray(array) for name, array in arrays.items()})
    return SIZE.pack(len(data)) + data


def next_frame(stream: BinaryIO) -> dict[str, Array] | None:
    """The arrays of the next frame; None at the end."""
    size = stream.read(SIZE.size)
    if len(size) < SIZE.size:
        return None
    data = stream.read(*SIZE.unpack(size))
    return safetensors.numpy.load(data) if len(data) == SIZE.unpack(size)[0] else None


def compared(predictor: Predictor, inputs: Array, answer: Mapping[str, Array]) -> dict[str, float]:
    """The sums of `Differences` between the answer and what the predictor says, and how many examples there are."""
    prediction = predictor.predict(inputs)
    return Differences.of(answer, prediction.compared, prediction.multilabel).sums() | {
        "examples": float(len(prediction))
    }


def serve(stream: BinaryIO, out: BinaryIO, loaded: Callable[[], None] = lambda: None) -> None:
    """Answer until the stream ends. loaded: called before the first answer."""
    task = Task(**json.loads(stream.readline()))
    predictor = Predictor.load(task.folder, threads=1, policy=Policy(**task.policy))
    if predictor.digest != task.digest:
        raise ValueError(f"{task.folder}: found the digest {predictor.digest}, expected {task.digest}")
    loaded()
    while (arrays := next_frame(stream)) is not None:
        try:
            verdict: dict[str, Any] = compared(predictor, arrays.pop("inputs"), arrays)
        except (NetworkError, NetworkFailed, ValueError) as error:
            verdict = _told(error)
        out.write(json.dumps(verdict).encode() + b"\n")
        out.flush()


def _told(error: Exception) -> dict[str, str]:
    return {"error": " ".join(str(error).split())[:300] or type(error).__name__}


def main() -> None:
    """Until the service closes the stream, or ends; what cannot be mended is told in a last line."""
    os.nice(LOADING_NICENESS)  # with the lowest priority, a busy machine would never let it begin
    be_expendable()
    with contextlib.suppress(BrokenPipeError):
        try:
            serve(sys.stdin.buffer, sys.stdout.buffer, run_when_idle)
        except Exception as error:
            sys.stdout.buffer.write(json.dumps(_told(error)).encode() + b"\n")
            sys.stdout.buffer.flush()
            raise


if __name__ == "__main__":
    main()
