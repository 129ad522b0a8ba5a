"""`python -m demur.service.models.trial_process`: load one bundle and predict with it, in a process that may hang or
crash.

Standard input holds a `Task` as one JSON object; standard output receives the verdict as one JSON line: the bundle's
`digest`, or `file`, `problem` and `remedy` as in `BundleError`. The other side is `demur.service.models.trials`.
"""

import contextlib
import json
import os
import resource
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..bundle import BundleError, InputSpec, Verify, read_bundle
from ..environment.child import be_expendable
from ..inference.graph import NetworkError, NetworkFailed
from ..inference.predictor import Predictor

EXAMPLES = 3
# An orphan ends by itself this long after its parent would have killed it.
GRACE_SECONDS = 5
NICENESS = 5  # requests come first


@dataclass(frozen=True)
class Task:
    """The bundle to try, limits on time and memory (None: none), and how it will be served."""

    folder: str
    seconds: float
    memory_bytes: int | None
    trusted_keys: str | None


def attempt(task: Task) -> str:
    """Read and open the bundle, predict a few examples, and return its digest. Raises `BundleError`."""
    bundle = read_bundle(task.folder, _verify(task.trusted_keys))
    predictor = Predictor(bundle, threads=1)
    try:
        for inputs in _inputs(bundle.manifest.input):
            _predict(predictor, inputs)
    except NetworkFailed as error:
        raise BundleError(error.file, f"{len(inputs)} examples: {error.problem}") from error
    return bundle.digest


def _verify(trusted_keys: str | None) -> Verify | None:
    if trusted_keys is None:
        return None
    from ..security.signing import TrustedKeys  # cryptography is slow to import, and few need it

    return TrustedKeys.from_file(Path(trusted_keys))


def _predict(predictor: Predictor, inputs: npt.NDArray[Any]) -> None:
    """Predict. The network may refuse made-up values, such as an unknown category: that is not the bundle's fault."""
    with contextlib.suppress(NetworkError):
        predictor.predict(inputs)


def _inputs(spec: InputSpec) -> Iterator[npt.NDArray[Any]]:
    """Batches of one, two and three zeros, and of values that are ordinary for the kind of input."""
    for rows in range(1, EXAMPLES + 1):
        yield np.zeros((rows, *spec.shape), spec.dtype)
    if spec.dtype == "float32":
        yield np.full((EXAMPLES, *spec.shape), 0.5, np.float32) if spec.image is None else _grey(spec)


def _grey(spec: InputSpec) -> npt.NDArray[np.float32]:
    assert spec.image is not None
    scale = [np.array(each, np.float64).reshape(-1, 1, 1) for each in (spec.image.mean, spec.image.std)]
    grey = (127.5 * spec.image.scale - scale[0]) / scale[1]
    return np.broadcast_to(grey, (EXAMPLES, *spec.shape)).astype(np.float32)


def verdict(task: Task) -> dict[str, str]:
    """The verdict on the bundle, whatever it does to the code that tries it."""
    try:
        return {"digest": attempt(task)}
    except BundleError as error:
        return {"file": error.file, "problem": error.problem, "remedy": error.remedy}
    except MemoryError:
        problem = f"needs more memory than the {task.memory_bytes} bytes that a trial may take"
        return {"file": task.folder, "problem": problem, "remedy": "give the service more memory, or fit it smaller"}
    except Exception as error:
        problem = f"could not be tried: {type(error).__name__}: {error!s:.300}"
        return {"file": task.folder, "problem": problem, "remedy": "fit the bundle again, or copy it whole"}


def _limit(task: Task) -> None:
    """Bound this process's time and memory, and end it with its parent."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # ends native code too
    signal.setitimer(signal.ITIMER_REAL, task.seconds + GRACE_SECONDS)
    os.nice(NICENESS)
    be_expendable()
    if task.memory_bytes is not None and sys.platform == "linux":
        taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        most = taken + task.memory_bytes
        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        resource.setrlimit(resource.RLIMIT_AS, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def main() -> None:
    """Entry point."""
    with os.fdopen(os.dup(sys.stdout.fileno()), "w") as answer:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # whatever libraries print is not the verdict
        task = Task(**json.load(sys.stdin))
        _limit(task)
        print(json.dumps(verdict(task)), file=answer)
    os._exit(0)  # faster than freeing sessions and matrices


if __name__ == "__main__":
    main()
