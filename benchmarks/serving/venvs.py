"""A virtual environment for each other server, made once: the server, and the computing libraries in our versions."""

import hashlib
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.core.environment import library_version
from benchmarks.core.folders import ROOT
from benchmarks.core.harness import MeasurementError
from benchmarks.serving.fitted import SERVING

# What the predictor imports, in the same versions everywhere; the rest as the server wants it.
COMPUTING = ("numpy", "onnxruntime", "safetensors", "pydantic", "threadpoolctl")
STAMP = "installed"
LIST = "import importlib.metadata as m, json; print(json.dumps({d.name.lower(): d.version for d in m.distributions()}))"


def environment(name: str, packages: Sequence[str], computing: bool = True) -> Path:
    """The folder of an environment; raises `MeasurementError` with pip's message where it cannot be made. computing:
    with what the predictor needs."""
    wanted = [*packages, *(needs() if computing else ())]
    folder = SERVING / f"venv-{name}-{hashlib.sha256(json.dumps(wanted).encode()).hexdigest()[:8]}"
    if not (folder / STAMP).is_file():
        shutil.rmtree(folder, ignore_errors=True)
        _install(folder, wanted)
        (folder / STAMP).touch()
    return folder


def needs() -> list[str]:
    """What the predictor of this checkout needs."""
    return [f"{name}=={library_version(name)}" for name in COMPUTING]


def versions(folder: Path) -> dict[str, str]:
    """Everything installed in an environment."""
    found = subprocess.run([folder / "bin" / "python", "-c", LIST], capture_output=True, text=True, check=True)
    result: dict[str, str] = json.loads(found.stdout)
    return result


def _install(folder: Path, wanted: Sequence[str]) -> None:
    _run([sys.executable, "-m", "venv", str(folder)])
    _run([str(folder / "bin" / "python"), "-m", "pip", "install", "-qq", "--disable-pip-version-check", *wanted])


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        told = re.sub(r"(https?|file)://\S+", "(address)", done.stderr.strip()).replace(str(ROOT), ".")
        raise MeasurementError(f"{Path(command[0]).name}: exit status {done.returncode}: {told[-600:]}")
