"""onnxruntime-node: JavaScript that runs standalone models. Installed by `make javascript`."""

import base64
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.support.server import ROOT

Array = npt.NDArray[Any]
FOLDER = ROOT / "tests" / "javascript"
MODULES = FOLDER / "node_modules"
NODE = shutil.which("node")
DTYPES = {"float32": np.float32, "float64": np.float64, "bool": np.bool_}
SECONDS = 300

needs_javascript = pytest.mark.skipif(
    NODE is None or not (MODULES / "onnxruntime-node").is_dir(),
    reason="needs node and onnxruntime-node: `make javascript` installs the package",
)


def run_javascript(script: Path, text: str = "", cwd: Path | None = None) -> str:
    """What the script prints, given `text` on its standard input."""
    assert NODE is not None
    command, quiet = [NODE, str(script)], {**os.environ, "ORT_DISABLE_TELEMETRY": "1"}
    done = subprocess.run(
        command, input=text, cwd=cwd, env=quiet, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def javascript_answers(jobs: list[tuple[Path, list[Array]]]) -> list[list[dict[str, Array]]]:
    """For each model and batch of inputs, every output by name."""
    request = [{"model": str(model), "inputs": [_encoded(batch) for batch in batches]} for model, batches in jobs]
    answers = json.loads(run_javascript(FOLDER / "predict.mjs", json.dumps(request)))
    return [[{name: _decoded(value) for name, value in batch.items()} for batch in batches] for batches in answers]


def _encoded(array: Array) -> dict[str, Any]:
    data = base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()
    return {"type": str(array.dtype), "dims": array.shape, "base64": data}


def _decoded(value: dict[str, Any]) -> Array:
    flat: Array = np.frombuffer(base64.b64decode(value["base64"]), DTYPES[value["type"]])
    return flat.reshape(value["dims"])


def link_modules(folder: Path) -> None:
    """Let the scripts in a folder import what is installed here."""
    (folder / "node_modules").symlink_to(MODULES, target_is_directory=True)
