"""Try bundles in processes of their own first: one that hangs or crashes does so there."""

import json
import os
import signal
import subprocess
import threading
from dataclasses import asdict
from pathlib import Path
from typing import Self

from ..bundle import BundleError
from ..environment.child import start_child
from ..environment.memory import available_bytes
from ..monitoring.metrics import SHARED_FOLDER
from ..settings import PREFIX, Settings
from .passed_trials import PassedTrials
from .trial_process import Task

MODULE = f"{__package__}.trial_process"


class Trials:
    """Tries bundles with the settings that they will be served with. Thread-safe."""

    def __init__(self, settings: Settings) -> None:
        self._settings, self._passed = settings, PassedTrials(os.environ.get(SHARED_FOLDER))
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def check(self, folder: Path) -> str:
        """Read, open and predict with the bundle in `folder`, unless another worker process has done so; returns its
        digest.

        Raises `BundleError`, also where that took longer than the settings allow, or ended the process.
        """
        return self._passed.digest(folder, self._try)

    def _try(self, folder: Path) -> str:
        process = self._start(folder)
        seconds = self._settings.compute_timeout_seconds
        try:
            with process:
                try:
                    verdict, _ = process.communicate(self._task(folder), seconds)
                finally:
                    process.kill()
        except subprocess.TimeoutExpired:
            problem = f"was not read, opened and asked for a few predictions within {seconds:g} s"
            remedy = f"export the network again; if it only takes long, raise {PREFIX}COMPUTE_TIMEOUT_SECONDS"
            raise BundleError(folder, problem, remedy) from None
        finally:
            with self._lock:
                self._running.discard(process)
        return _digest(folder, process.returncode, verdict)

    def close(self) -> None:
        """Kill the running trials, and start no more."""
        with self._lock:
            self._closed = True
            for process in self._running:
                process.kill()

    def _start(self, folder: Path) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._closed:
                raise BundleError(folder, "was not tried: the service is ending", "start it again")
            process = start_child(MODULE)
            self._running.add(process)
        return process

    def _task(self, folder: Path) -> bytes:
        settings = self._settings
        task = Task(
            folder=str(folder),
            seconds=settings.compute_timeout_seconds,
            memory_bytes=settings.trial_bytes or available_bytes(),
            trusted_keys=None if settings.trusted_keys is None else str(settings.trusted_keys),
        )
        return json.dumps(asdict(task)).encode()


def _digest(folder: Path, status: int, verdict: bytes) -> str:
    try:
        found = json.loads(verdict)
    except ValueError:
        raise BundleError(folder, *_end(status)) from None
    if "digest" in found:
        return str(found["digest"])
    raise BundleError(found["file"], found["problem"], found["remedy"])


def _end(status: int) -> tuple[str, str]:
    """The problem and the remedy where a process ended without a verdict."""
    if status == -signal.SIGKILL:
        problem = "the process that tried it was killed, most likely because it took more memory than there is"
        return problem, "give the service more memory, or fit a smaller model"
    how = f"signal {-status}" if status < 0 else f"status {status}"
    return f"the process that tried it crashed ({how})", "export the network again; report it if it is one of yours"
