"""The clients of Triton and KServe against the service: what each does, and whether the answers are the predictor's."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import nn

from benchmarks.core.folders import ROOT
from benchmarks.core.harness import MeasurementError
from benchmarks.core.settings import Settings, Values
from benchmarks.serving.clients.common import VALUES
from benchmarks.serving.digits import Request
from benchmarks.serving.process import free_port, started
from benchmarks.serving.venvs import environment, versions
from demur.offline.config import FitConfig
from demur.offline.fit import fit_bundle
from demur.service.inference.predictor import Predictor

CLIENTS = {
    "of_triton": ("tritonclient", ["tritonclient[all]==2.69.0"]),
    "of_kserve": ("kserve", ["kserve==0.21.0"]),
}
MODEL = "asked"


def run(settings: Settings) -> Values:
    """A small classification is served, and each client does all that it can."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = _bundle(Path(scratch) / "bundle")
        port, rpc = free_port(), free_port()
        command = [sys.executable, "-m", "demur.service", str(folder), "--port", str(port), "--grpc-port", str(rpc)]
        with started(command, {}, port, settings.scratch / "service.log") as server:
            server.wait_until_answered(Request("first", "/predict", json.dumps({"inputs": VALUES}).encode()))
            asked = [f"127.0.0.1:{port}", f"127.0.0.1:{rpc}", MODEL, json.dumps(_expected(folder))]
            found = {module: _rows(module, package, asked) for module, (_, package) in CLIENTS.items()}
    return {
        "versions": {
            name: versions(environment(module, packages, computing=False))[name]
            for module, (name, packages) in CLIENTS.items()
        },
        "rows": [row for rows in found.values() for row in rows],
    }


def _rows(module: str, packages: list[str], asked: list[str]) -> list[dict[str, str]]:
    python = environment(module, packages, computing=False) / "bin" / "python"
    command = [str(python), "-m", f"benchmarks.serving.clients.{module}", *asked]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode:
        raise MeasurementError(f"{module}: exit status {done.returncode}: {done.stderr[-600:]}")
    rows: list[dict[str, str]] = json.loads(done.stdout.splitlines()[-1])
    return rows


def _bundle(folder: Path) -> Path:
    torch.manual_seed(0)
    x, held_out = torch.randn(200, 4), torch.randn(200, 4)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    with torch.no_grad():
        y, own = ((model(each) + torch.randn(200, 3)).argmax(1) for each in (x, held_out))
    config = FitConfig(subnetwork_size=20, name=MODEL)
    return fit_bundle(model, (x, y), folder, calibration_loader=(held_out, own), config=config)


def _expected(folder: Path) -> list[list[float]]:
    """The means of the examples."""
    found: list[list[float]] = Predictor.load(folder).predict(np.array(VALUES, np.float32)).mean.tolist()
    return found
