"""`python -m probity.service.models.shadow_process`: predict what another model has answered, and say how they differ.

It has the lowest priority: whatever else runs comes first. Standard input holds a `Task` as a line of JSON, then for
each request the length of an .npz file and the file: `inputs` and the answer's arrays. Standard output receives a line
of JSON for each: the sums of `Differences`, or what went wrong. The other side is `probity.service.models.shadow`.
"""

import contextlib
import ctypes
import io
import json
import os
import signal
import struct
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from probity.service.inference.graph import NetworkError, NetworkFailed
from probity.service.inference.policy import Policy
from probity.service.inference.predictor import Predictor
from probity.service.maths.disagreement import COMPARED, Differences

Array = npt.NDArray[Any]
SIZE = struct.Struct("<Q")
NICENESS = 19
PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Task:
    """The bundle that predicts, which must have this digest, and the operator's policy."""

    folder: str
    digest: str
    policy: dict[str, Any]


def compared(predictor: Predictor, inputs: Array, answer: Mapping[str, Array]) -> dict[str, float]:
    """The sums of `Differences` between the answer and what the predictor says, and how many examples there are."""
    prediction = predictor.predict(inputs)
    own = {name: value for name in COMPARED if (value := getattr(prediction, name)) is not None}
    return Differences.of(answer, own, prediction.multilabel).sums() | {"examples": float(len(prediction))}


def serve(stream: BinaryIO, out: BinaryIO) -> None:
    """Answer until the stream ends."""
    task = Task(**json.loads(stream.readline()))
    predictor = Predictor.load(task.folder, threads=1, policy=Policy(**task.policy))
    if predictor.digest != task.digest:
        raise ValueError(f"{task.folder}: found the digest {predictor.digest}, expected {task.digest}")
    while len(head := stream.read(SIZE.size)) == SIZE.size:
        with np.load(io.BytesIO(stream.read(*SIZE.unpack(head))), allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
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
    os.nice(NICENESS)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    with contextlib.suppress(BrokenPipeError):
        try:
            serve(sys.stdin.buffer, sys.stdout.buffer)
        except Exception as error:
            sys.stdout.buffer.write(json.dumps(_told(error)).encode() + b"\n")
            sys.stdout.buffer.flush()
            raise


if __name__ == "__main__":
    main()
