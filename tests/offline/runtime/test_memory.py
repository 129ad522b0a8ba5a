"""The memory that a fit may take: what is free, what is refused, how many examples are taken at once."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from demur.offline.data.likelihood import Classification
from demur.offline.jacobian.plan import make_jacobian
from demur.offline.laplace.ggn import curvature_rows
from demur.offline.network.model_copy import private_copy
from demur.offline.network.weights import WeightLayout
from demur.offline.runtime.available_memory import (
    AVAILABLE_SHARE,
    available_memory,
    check_fits,
    chunk_bytes,
    default_budget,
    readable,
)
from demur.offline.runtime.peak_memory import MARGIN, MAX_ROWS, Ledger, measured_rows, peak_bytes, rows_within
from demur.offline.runtime.progress import readable_seconds
from tests.support.cases import CASES

ROOT = Path(__file__).parents[3]
CPU = torch.device("cpu")
MIB = 2**20
CASE = next(case for case in CASES if case.name == "cnn-classification-10")


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak is read from /proc; there is none here")
def test_a_process_grows_by_no_more_than_its_budget() -> None:
    """S = 2,000 weights of a convolutional network, in processes of their own."""
    found = []
    for budget in (230, 800):
        command = [sys.executable, "-m", "tests.support.job_process", "memory", str(budget * MIB)]
        answer = json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=300).stdout)
        assert answer["growth"] <= budget * MIB
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


@pytest.mark.parametrize(("memory", "rows"), [(0, 1), (6999, 1), (7000 * 3, 3), (2**40, MAX_ROWS)])
def test_as_many_rows_as_fit_with_a_margin(memory: int, rows: int) -> None:
    x = torch.zeros(2, 500)
    assert int(MARGIN * peak_bytes(lambda: (x[:1] + 1) + 1)) == 7000
    assert measured_rows(memory, lambda one: (one + 1) + 1, x) == rows


@pytest.mark.parametrize(("memory", "row", "expected"), [(100, 30, 3), (100, 100, 1), (100, 101, 1), (7, 0, 7)])
def test_at_least_one_row_whatever_it_costs(memory: int, row: int, expected: int) -> None:
    assert rows_within(memory, row) == expected


# --------------------------------------------------------------------------- what fits


def test_more_budget_more_rows_up_to_a_limit() -> None:
    network, layout = private_copy(CASE.model(), CPU), WeightLayout.of(CASE.model())
    jacobian = make_jacobian(network, layout, torch.arange(20), CASE.data(2)[0])
    rows = [
        curvature_rows(jacobian, Classification(10), CASE.data(1)[0], chunk_bytes(network, CPU, budget * MIB, 20))
        for budget in (100, 161, 163, 4000, 8000)
    ]
    assert rows == sorted(rows)
    assert rows[0] == 1 < rows[1] < rows[-1] == rows[-2] == MAX_ROWS


def test_the_chosen_weights_are_measured_themselves() -> None:
    """Weights of the last layer need no gradient of the layers below."""
    network, layout, x = private_copy(CASE.model(), CPU), WeightLayout.of(CASE.model()), CASE.data(2)[0]
    first, last = (
        curvature_rows(make_jacobian(network, layout, indices, x), Classification(10), x, MIB)
        for indices in (torch.arange(20), torch.arange(layout.total - 20, layout.total))
    )
    assert first < last


def test_what_cannot_fit_is_refused_with_what_would() -> None:
    network = private_copy(CASE.model(), CPU)
    with pytest.raises(ValueError, match=r"memory_budget: found 1048576 bytes .*expected at least (\d+)") as refused:
        check_fits(network, CPU, MIB, 20, 10)
    assert "give a larger memory_budget, fewer weights (subnetwork_size)" in str(refused.value)
    enough = int(str(refused.value).split("expected at least ")[1].split()[0])
    assert check_fits(network, CPU, enough, 20, 10) == enough
    beside = check_fits(network, CPU, 2**40, 0, 0)
    assert check_fits(network, CPU, 2**40, 10_000, 10) - beside == 5 * 8 * 10_000**2
    assert check_fits(network, CPU, 2**40, 500, 20_000) - beside == 2 * 8 * 500**2 + 64 * 500 * 20_000 + 4 * 20_000**2


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
