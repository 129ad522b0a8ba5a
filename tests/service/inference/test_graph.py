"""service/inference/graph.py: memory that all sessions of a process share."""

import subprocess
import sys
from pathlib import Path

import pytest

from demur.service.bundle import InputSpec
from tests.support.bundles import Synthetic, write_linear

ROOT = Path(__file__).parents[3]
TIMEOUT = 120
ROWS, OUTPUTS, SIZE, MODELS = 2000, 10, 300, 6
DERIVATIVES_KIB = 4 * ROWS * OUTPUTS * SIZE / 1024
RESIDENT = """
import re, sys
from pathlib import Path
import numpy as np
from demur.service.inference.predictor import Predictor
from demur.service.inference.graph import share_memory
folder, rows, models, shared = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
if shared == "shared":
    share_memory()
loaded = []
for _ in range(models):
    loaded.append(Predictor.load(folder, threads=1))
    loaded[-1].graph.chunk_rows = rows
    loaded[-1].graph.outputs(np.ones((rows, *loaded[-1].manifest.input.shape), np.float32))
    print(re.search(r"VmRSS:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
"""


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Synthetic:
    folder = tmp_path_factory.mktemp("wide") / "bundle"
    return write_linear(folder, outputs=OUTPUTS, spec=InputSpec(shape=(40,)), size=SIZE)


def growth_kib(bundle: Path, shared: str) -> float:
    """How much the process grows from the first model, after its largest batch, to the last."""
    command = [sys.executable, "-W", "error", "-c", RESIDENT, str(bundle), str(ROWS), str(MODELS), shared]
    ended = subprocess.run(command, cwd=ROOT, text=True, capture_output=True, timeout=TIMEOUT, check=False)
    assert ended.returncode == 0, ended.stderr
    first, *_, last = map(float, ended.stdout.split())
    return last - first


@pytest.mark.skipif(sys.platform != "linux", reason="reads the memory of a process from /proc")
def test_models_that_share_memory_need_that_of_one_batch(wide: Synthetic) -> None:
    assert growth_kib(wide.path, "shared") < DERIVATIVES_KIB
    assert growth_kib(wide.path, "apart") > (MODELS - 1) * DERIVATIVES_KIB
