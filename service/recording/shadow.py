"""A version that predicts what another has answered, in a process of low priority; metrics say how they differ."""

import contextlib
import json
import logging
import random
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from ..environment.child import start_child
from ..format.text import printable
from ..inference.policy import Policy
from ..inference.prediction import Prediction
from ..models.served import ServedModel
from ..models.store import ModelStore
from ..monitoring.background import BackgroundThread, Work
from ..monitoring.metrics import Metrics
from ..settings.shadow import ShadowChoice
from .shadow_process import Task, frame

Array = npt.NDArray[Any]
MODULE = f"{__package__}.shadow_process"
MOST_ROWS = 64  # of a request
ARRAYS = 6  # at most, that an answer has of so many numbers an example as the network has outputs
# Each turn of the thread and of the process takes processor time, Python's lock and the caches from those that ask,
# however few examples it is for: twenty a second raised their 99th percentile by a fifth, one a second did not.
GATHER_SECONDS = 1.0
END_SECONDS = 2.0
RETRY_SECONDS = 30.0  # a process that ended by itself is not started again sooner after its start
log = logging.getLogger("demur")


@dataclass(frozen=True)
class _Ask:
    """What requests ask: the version, and the arrays of inputs and answers."""

    folder: str
    digest: str
    arrays: Mapping[str, Array]

    @property
    def rows(self) -> int:
        """How many examples there are."""
        return len(self.arrays["inputs"])

    @classmethod
    def together(cls, asked: "Sequence[_Ask]") -> "list[_Ask]":
        """Those of one version as one."""
        found: dict[tuple[str, str], list[_Ask]] = {}
        for one in asked:
            found.setdefault((one.folder, one.digest), []).append(one)
        return [
            cls(*version, {name: np.concatenate([each.arrays[name] for each in some]) for name in some[0].arrays})
            for version, some in found.items()
        ]


class Shadow:
    """Offers a share of the answers to another version of the same model. None waits for it or is changed by it."""

    def __init__(
        self, choice: ShadowChoice, policy: Policy, store: ModelStore, metrics: Metrics, seconds: float = 60.0
    ) -> None:
        """seconds: how long one request may take there, the loading of the bundle included."""
        self._seconds = seconds
        self._choice, self._policy, self._store = choice, policy, store
        model = choice.name, choice.version
        self._series = {
            "examples": metrics.shadow_examples.labels(*model),
            "changed": metrics.shadow_changed.labels(*model),
            "newly_rejected": metrics.shadow_newly_rejected.labels(*model),
            "newly_accepted": metrics.shadow_newly_accepted.labels(*model),
            "p_value_distance": metrics.shadow_p_value_distance.labels(*model),
        }
        lost = metrics.shadow_lost.labels(*model)
        what = printable(f"Examples for the shadow {choice.name} version {choice.version}")
        self._thread = BackgroundThread(
            "demur-shadow", what, lost, self._compare, GATHER_SECONDS, full="it is too slow for its share"
        )
        self._lost, self._refused = lost, ""
        self._child: _Child | None = None
        self._closing = False

    def start(self) -> None:
        """Begin to compare."""
        self._thread.start()

    def close(self) -> None:
        """End the process; what waits is left."""
        self._closing = True
        if self._child is not None:
            self._child.kill()
        self._thread.close()

    def check(self) -> None:
        """Log where nothing can be compared: call it once models are loaded."""
        choice, answering = self._choice, self._store.answering(self._choice.name)
        shown = printable(f"{choice.name} version {choice.version}")
        if self._store.loaded(choice.name, choice.version) is None:
            log.warning("the shadow %s is not loaded: nothing is compared until it is", shown)
        elif answering is not None and answering.version == choice.version:
            log.warning("the shadow %s itself answers: pin another version, to compare them", shown)

    def offer(self, model: ServedModel, prediction: Prediction, inputs: Array) -> None:
        """Have the answer compared, if it is one of the share; call it in the event loop, returns at once.

        inputs (B, ...): as the network took them.
        """
        choice = self._choice
        if model.name != choice.name or model.version == choice.version:
            return
        shadow = self._store.loaded(choice.name, choice.version)
        if shadow is None or random.random() >= choice.share:  # noqa: S311  no secret
            return
        rows = min(len(prediction), MOST_ROWS)
        if problem := _incomparable(model, shadow):
            self._refuse(problem, rows)
            return
        few = prediction if rows == len(prediction) else prediction.rows(0, rows)
        numbers = inputs.size + ARRAYS * few.mean.size  # a part of an array keeps all of it
        self._thread.note(Work(partial(_packed, shadow, few, inputs[:rows]), rows, numbers))

    def _refuse(self, problem: str, rows: int) -> None:
        self._lost.inc(rows)
        if problem != self._refused:
            log.error("%s", printable(problem))
        self._refused = problem

    def _compare(self, asked: Sequence[_Ask]) -> None:
        """Several requests at once: one after the other they would take more from those that ask."""
        for several in _Ask.together(asked):
            verdict = self._asked(several)
            own = [one for one in asked if (one.folder, one.digest) == (several.folder, several.digest)]
            if "error" not in verdict or len(own) == 1:
                self._refuse_or_count(verdict, several.rows)
                continue
            for one in own:  # one of them may be to blame
                self._refuse_or_count(self._asked(one), one.rows)
        if self._closing and self._child is not None:
            self._child.close()

    def _asked(self, one: _Ask) -> Mapping[str, Any]:
        if self._closing:
            return {"error": "the service is ending"}
        try:
            return self._child_for(one).ask(frame(one.arrays), self._seconds)
        except OSError as error:
            return {"error": str(error)}

    def _refuse_or_count(self, verdict: Mapping[str, Any], rows: int) -> None:
        if "error" not in verdict:
            self._count(verdict)
        elif not self._closing:
            self._refuse(f"the shadow could not predict some answers: {verdict['error']}", rows)

    def _child_for(self, one: _Ask) -> "_Child":
        """The process of this version: another one than before, or one that ended by itself, is started anew."""
        child = self._child
        if child is not None and child.task.digest == one.digest:
            if child.alive:
                return child
            if time.monotonic() < child.started + RETRY_SECONDS:
                raise OSError("its process ended, and is not started again at once")
        if child is not None:
            child.close()
        self._child = _Child(Task(one.folder, one.digest, self._policy.model_dump()))
        return self._child

    def _count(self, verdict: Mapping[str, Any]) -> None:
        for name, counter in self._series.items():
            counter.inc(float(verdict[name]))


def _incomparable(model: ServedModel, shadow: ServedModel) -> str:
    """Why the two cannot be compared by the same arrays; "" where they can."""
    one, other = model.manifest, shadow.manifest
    if (one.task, one.outputs) != (other.task, other.outputs):
        what = f"{other.task} with {other.outputs} outputs and not {one.task} with {one.outputs}"
    elif one.input != other.input:
        what = "other inputs or another preprocessing: compare them with `demur compare`"
    else:
        return ""
    return f"the shadow {shadow.name} version {shadow.version} is not compared: it has {what}"


def _packed(shadow: ServedModel, prediction: Prediction, inputs: Array) -> _Ask:
    return _Ask(str(shadow.predictor.path), shadow.digest, {"inputs": inputs, **prediction.compared})


class _Child:
    """A running process; raises `OSError` where it has ended."""

    def __init__(self, task: Task) -> None:
        self.task, self.started = task, time.monotonic()
        self._process = start_child(MODULE)
        with contextlib.suppress(BrokenPipeError):
            self._write(json.dumps(asdict(task)).encode() + b"\n")

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process.poll() is None

    def ask(self, data: bytes, seconds: float) -> Mapping[str, Any]:
        """The verdict on one request; a process that takes longer is killed."""
        timer = threading.Timer(seconds, self.kill)
        timer.start()
        try:
            with contextlib.suppress(BrokenPipeError):  # its last line says why it ended
                self._write(data)
            assert self._process.stdout is not None
            line = self._process.stdout.readline()
        finally:
            timer.cancel()
        if not line:
            raise OSError(f"its process ended with status {self._process.wait()}, or took longer than {seconds:g} s")
        verdict: dict[str, Any] = json.loads(line)
        return verdict

    def kill(self) -> None:
        """End the process; who asks it gets an error."""
        self._process.kill()

    def close(self) -> None:
        """End the process, and release what it held."""
        self.kill()
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:  # where all else is busy, it has no time to end
            threading.Thread(target=self._process.wait, daemon=True).start()
        for stream in (self._process.stdin, self._process.stdout):
            _close(stream)

    def _write(self, data: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(data)
        self._process.stdin.flush()


def _close(stream: IO[bytes] | None) -> None:
    if stream is not None:
        with contextlib.suppress(OSError):  # what was written last cannot be flushed
            stream.close()
