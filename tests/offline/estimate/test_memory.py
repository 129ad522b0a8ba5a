"""The memory that was predicted is never exceeded; budgets; what is refused; what is told."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from demur.offline.data.likelihood import Classification
from demur.offline.estimate.memory import MemoryPlan, plan_memory, readable
from demur.offline.estimate.stage_memory import Stage, copies
from demur.offline.network.model_copy import private_copy
from demur.offline.network.weights import WeightLayout
from demur.offline.runtime.available_memory import AVAILABLE_SHARE, available_memory, default_budget
from demur.offline.runtime.peak_memory import Ledger, peak_bytes
from demur.offline.runtime.progress import readable_seconds
from tests.support.cases import CASES

ROOT = Path(__file__).parents[3]
CPU = torch.device("cpu")
MIB = 2**20
CASE = next(case for case in CASES if case.name == "cnn-classification-10")


def plan(
    budget: int,
    size: int = 20,
    *,
    diagonal: bool = False,
    held: int = 0,
    indices: Tensor | None = None,
    verified: int = 0,
) -> MemoryPlan:
    model = CASE.model()
    layout, example = WeightLayout.of(model), CASE.data(2)[0]
    network = private_copy(model, CPU)
    return plan_memory(
        network,
        layout,
        size,
        Classification(10),
        example,
        budget,
        CPU,
        diagonal=torch.arange(layout.total) if diagonal else None,
        held_bytes=held,
        indices=indices,
        verified=verified,
    )


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak is read from /proc; there is none here")
def test_a_process_grows_by_no_more_than_was_predicted() -> None:
    """S = 2,000 weights of a convolutional network, in processes of their own."""
    found = []
    for budget in (230, 800):
        command = [sys.executable, "-m", "tests.support.job_process", "memory", str(budget * MIB)]
        answer = json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=300).stdout)
        assert answer["growth"] <= answer["predicted"] <= budget * MIB
        found.append(answer["rows"])
    assert 1 <= found[0] < found[1]


# --------------------------------------------------------------------------- the measurement


def test_the_ledger_counts_what_is_alive() -> None:
    outside = torch.zeros(1000)
    with Ledger() as ledger:
        first = torch.zeros(1000)
        second = first + outside
        view = second.view(10, 100)
        del second
        assert ledger.live == 8000
        del first, view
        outside.mul_(2)
    assert (ledger.live, ledger.peak) == (0, 8000)


def test_a_convolution_is_charged_for_its_reordered_copies() -> None:
    layer, x = nn.Conv2d(1, 1, 1, bias=False).requires_grad_(False), torch.zeros(1, 1, 10, 10)
    assert peak_bytes(lambda: layer(x)) == 400 + (400 + 400 + 4)


def test_a_sparse_tensor_has_no_storage_of_its_own() -> None:
    ones = torch.ones(4, 2)
    assert peak_bytes(lambda: torch.sparse.mm(torch.eye(4).to_sparse(), ones)) >= 4 * 4 * 4


def test_the_backward_pass_is_seen() -> None:
    x = torch.zeros(1000, requires_grad=True)
    assert peak_bytes(lambda: torch.autograd.grad((x.exp() * 2).sum(), x)) >= 8000


def test_copies_of_a_matrix() -> None:
    """The matrix, two of work space, and what the step makes."""
    assert copies(lambda h: h + 1) == 4
    assert copies(lambda h: (h + 1) @ (h + 2)) == 6
    assert copies(torch.linalg.eigh) == 5  # the vectors, and a few numbers beside


# --------------------------------------------------------------------------- the plan


def test_more_budget_more_rows_up_to_a_limit() -> None:
    rows = [plan(budget * MIB).rows("curvature") for budget in (162, 163, 170, 4000, 8000)]
    assert rows == sorted(rows)
    assert rows[0] < rows[-1] == rows[-2] == 512


def test_the_peak_is_the_largest_stage_above_what_stays() -> None:
    found = plan(4000 * MIB, held=7 * MIB, diagonal=True, verified=16)
    names = [stage.name for stage in found.stages]
    assert names == [
        "curvature diagonal",
        "plan check",
        "curvature",
        "held-out",
        "eigenvalues",
        "export and verification",
    ]
    assert found.peak_bytes == found.resident_bytes + max(stage.peak_bytes for stage in found.stages)
    assert found.resident_bytes == plan(4000 * MIB).resident_bytes + 7 * MIB
    assert found.stage("curvature").fixed_bytes >= 8 * 20 * 20
    assert found.peak_bytes <= found.budget_bytes


def test_what_is_verified_is_allowed_for() -> None:
    stages = [plan(4000 * MIB, verified=count).stage("export and verification") for count in (1, 16)]
    example = plan(4000 * MIB).stage("held-out").bytes_per_row
    assert stages[1].peak_bytes - stages[0].peak_bytes == 15 * example


def test_the_chosen_weights_are_measured_themselves() -> None:
    """Weights of the last layer need no gradient of the layers below."""
    total = WeightLayout.of(CASE.model()).total
    last = plan(4000 * MIB, indices=torch.arange(total - 20, total))
    assert last.stage("curvature").bytes_per_row < plan(4000 * MIB).stage("curvature").bytes_per_row


@pytest.mark.parametrize("diagonal", [False, True])
def test_a_budget_too_small_is_refused_with_what_would_do(diagonal: bool) -> None:
    with pytest.raises(ValueError, match=r"memory_budget: found 1048576 bytes .*expected at least (\d+)") as refused:
        plan(MIB, diagonal=diagonal)
    assert "give a larger memory_budget, fewer weights (subnetwork_size)" in str(refused.value)


def test_one_example_that_does_not_fit_is_told() -> None:
    with pytest.raises(ValueError, match="with one example at a time"):
        plan(162 * MIB, size=512)


def test_the_budget_that_the_error_names_is_enough() -> None:
    budget, tries = 160 * MIB, 0
    while tries < 10:
        try:
            assert plan(budget).rows("curvature") >= 1
            break
        except ValueError as error:
            budget = int(str(error).split("expected at least ")[1].split()[0])
            tries += 1
    assert 0 < tries < 6


def test_the_plan_tells_people() -> None:
    lines = plan(300 * MIB).lines()
    assert lines[0] == "D = 512 weights, S = 20 of them at most, outputs: 10"
    assert "budget 300.0 MiB" in lines[1]
    assert any("curvature: " in line and "examples at once" in line for line in lines)


def test_a_stage_without_rows_is_its_fixed_bytes() -> None:
    assert Stage("eigenvalues", 100).peak_bytes == 100
    assert Stage("curvature", 100, 7, 3).peak_bytes == 121


def test_readable() -> None:
    assert (readable(3 * MIB // 2), readable(5 * 2**30)) == ("1.5 MiB", "5.0 GiB")


# --------------------------------------------------------------------------- the budget


def machine(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


MEMINFO = {"proc/meminfo": "MemTotal: 9000 kB\nMemAvailable:   8000 kB\n"}
TWO = {"proc/self/cgroup": "0::/jobs/one\n"}
TOP = "sys/fs/cgroup"
GROUPS = {
    "none": ({}, 8000 * 1024),
    "no limit": (TWO | {f"{TOP}/jobs/one/memory.max": "max\n"}, 8000 * 1024),
    "own": (TWO | {f"{TOP}/jobs/one/memory.max": "5000\n", f"{TOP}/jobs/one/memory.current": "1000\n"}, 4000),
    "above": (
        TWO
        | {f"{TOP}/jobs/one/memory.max": "5000", f"{TOP}/jobs/one/memory.current": "1000"}
        | {f"{TOP}/jobs/memory.max": "9000", f"{TOP}/jobs/memory.current": "8500"},
        500,
    ),
    "container": (TWO | {f"{TOP}/memory.max": "5000", f"{TOP}/memory.current": "100"}, 4900),
    "cached files": (
        TWO
        | {f"{TOP}/memory.max": "5000", f"{TOP}/memory.current": "4000"}
        | {f"{TOP}/memory.stat": "anon 1000\ninactive_file 3000\n"},
        4000,
    ),
    "version 1": (
        {"proc/self/cgroup": "4:cpuset,memory:/a\n3:cpu:/b\n"}
        | {f"{TOP}/memory/a/memory.limit_in_bytes": "700", f"{TOP}/memory/a/memory.usage_in_bytes": "200"},
        500,
    ),
    "full": (TWO | {f"{TOP}/memory.max": "5000", f"{TOP}/memory.current": "6000"}, 0),
}


@pytest.mark.parametrize(("files", "expected"), GROUPS.values(), ids=GROUPS)
def test_control_groups_limit_what_is_available(tmp_path: Path, files: dict[str, str], expected: int) -> None:
    assert available_memory(machine(tmp_path, MEMINFO | files)) == expected


def test_a_machine_without_proc_has_half_its_memory(tmp_path: Path) -> None:
    assert available_memory(tmp_path) > 0


def test_the_default_is_a_share_of_what_is_free() -> None:
    assert 0 < default_budget(CPU) < available_memory() / AVAILABLE_SHARE


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.04, "0.0 s"), (9.96, "10.0 s"), (60.2, "60 s"), (600.0, "10 min"), (60_000.0, "16.7 h")]
)
def test_a_duration_is_readable(seconds: float, text: str) -> None:
    assert readable_seconds(seconds) == text
