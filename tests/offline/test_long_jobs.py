"""Whole fits by the command line: killed and taken up again, and shared out over two processes."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from demur.cli import app
from demur.offline.runtime import checkpoint
from demur.service.bundle import Bundle, read_bundle
from demur.service.maths.posterior_factor import CholeskyPosterior

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("short_fits")]

ROOT = Path(__file__).parents[2]
RECIPE = """
import atexit, contextlib, os, pathlib, signal, torch
from torch import nn
import demur.offline.fit
from demur.offline import FitConfig
from demur.offline.report import figures
from demur.offline.runtime import checkpoint

checkpoint.EVERY_SECONDS = 1e-9
# As the fixture `short_fits` does, also in other processes.
demur.offline.fit.check_whole_way = lambda *_: None
figures.render = lambda *_: "data:,"

def threads():
    names = []
    for task in pathlib.Path("/proc/self/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # a thread that ends meanwhile
            names.append(task.joinpath("comm").read_text().strip())
    print("threads left:", *names, flush=True)

if "RANK" in os.environ:
    atexit.register(threads)

config = FitConfig(subnetwork_size=30, selection="random", seed=3)

class Killing(list):
    '''The third time it is read, after two looks at its first batch, the process is killed at the batch that the
    environment names.'''
    passes = 0
    def __iter__(self):
        self.passes += 1
        for number, batch in enumerate(super().__iter__()):
            if self.passes == 3 and number == int(os.environ.get("KILL_AT", "-1")):
                os.kill(os.getpid(), signal.SIGKILL)
            yield batch

def batches(count, seed):
    generator = torch.Generator().manual_seed(seed)
    return Killing((torch.randn(10, 4, generator=generator),
                    torch.randint(0, 3, (10,), generator=generator)) for _ in range(count))

def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))

def train_data(): return batches(8, 1)
def calibration_data(): return batches(6, 2)
"""
CLI = [sys.executable, "-m", "demur"]
TORCHRUN = [
    sys.executable,
    "-m",
    "torch.distributed.run",
    "--standalone",
    "--nproc-per-node=2",
    "-m",
    "demur",
]


def left_in(folder: Path) -> list[str]:
    """Its files, without what Python keeps of an imported recipe."""
    return sorted(path.name for path in folder.iterdir() if path.name != "__pycache__")


def arguments(folder: Path) -> list[str]:
    """The command of a fit of the recipe, which is written."""
    (folder / "recipe.py").write_text(RECIPE)
    return ["fit", str(folder / "recipe.py"), "--out", str(folder / "bundle")]


def fit(command: list[str], folder: Path, **environment: str) -> "subprocess.CompletedProcess[str]":
    variables = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
    command = [*command, *arguments(folder)]
    return subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, timeout=300)


def fit_here(folder: Path) -> str:
    """The same in this process, which has imported torch already: what it prints."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoint, "EVERY_SECONDS", checkpoint.EVERY_SECONDS)  # the recipe sets another
        done = CliRunner().invoke(app, arguments(folder))
    assert done.exit_code == 0, done.output
    return done.stdout


def factor_of(bundle: Bundle) -> np.ndarray:
    assert isinstance(bundle.posterior, CholeskyPosterior)
    return bundle.posterior.scale_tril


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    folder = tmp_path_factory.mktemp("whole")
    assert "at least, beside the data" in fit_here(folder)
    assert left_in(folder) == ["bundle", "recipe.py"]
    return read_bundle(folder / "bundle")


def test_a_killed_fit_goes_on_and_ends_as_if_nothing_had_happened(whole: Bundle, tmp_path: Path) -> None:
    killed = fit(CLI, tmp_path, KILL_AT="5")
    assert killed.returncode == -signal.SIGKILL
    names = sorted(path.name for path in (tmp_path / ".bundle.checkpoint").iterdir())
    assert names == ["curvature-0.safetensors", "selection-0.safetensors"]
    assert not (tmp_path / "bundle").exists()
    fit_here(tmp_path)
    found = read_bundle(tmp_path / "bundle")
    assert found.manifest.metrics["train_examples"] == 80
    np.testing.assert_allclose(factor_of(found), factor_of(whole), rtol=1e-6)
    assert left_in(tmp_path) == ["bundle", "recipe.py"]


def test_two_processes_write_one_bundle(whole: Bundle, tmp_path: Path) -> None:
    done = fit(TORCHRUN, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("at least, beside the data") == 1  # by one process
    assert done.stdout.count("threads left") == 2
    assert "gloo" not in done.stdout  # such a thread may abort the process while Python ends
    found = read_bundle(tmp_path / "bundle")
    assert found.manifest.metrics == pytest.approx(whole.manifest.metrics, rel=1e-6)
    np.testing.assert_array_equal(found.subnetwork_indices, whole.subnetwork_indices)
    # Other sums of Jacobians in float32: below a step of float32 at the largest entry nothing is determined.
    step = np.spacing(np.float32(np.abs(factor_of(whole)).max()))
    np.testing.assert_allclose(factor_of(found), factor_of(whole), rtol=1e-6, atol=step)
    assert left_in(tmp_path) == ["bundle", "recipe.py"]
