"""What tests run in a process of its own: `python -m tests.support.job_process MODE ...`, a JSON line as the answer.

memory BUDGET    a curvature within BUDGET bytes: the rows taken at once, and the growth measured by the kernel
curvature FOLDER KILL_AT   a checkpointed curvature whose loader kills the process at batch KILL_AT (-1: never)
distributed FOLDER FAIL    one of two: each process writes its results to FOLDER; FAIL: none, main or other fails
"""

import json
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from demur.offline.data.likelihood import Classification
from demur.offline.jacobian.jacobian import SubnetworkJacobian
from demur.offline.jacobian.plan import make_jacobian
from demur.offline.laplace.ggn import accumulate_ggn, curvature_rows, diagonal_ggn
from demur.offline.network.model_copy import private_copy
from demur.offline.network.weights import WeightLayout
from demur.offline.runtime.available_memory import chunk_bytes
from demur.offline.runtime.checkpoint import Checkpoint
from demur.offline.runtime.distributed import process_group
from demur.offline.runtime.resume import job_fingerprint
from tests.support.cases import CASES

CPU = torch.device("cpu")
CASE = next(case for case in CASES if case.name == "cnn-classification-10")
BATCHES = 6


def convolutions() -> nn.Module:
    """About 3 MB an example with S = 2,000 weights and 10 outputs."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 49, 10),
    )


def status(field: str) -> int:
    """VmRSS or VmHWM of this process in bytes. Not ru_maxrss, which a child inherits from its parent."""
    found = re.search(rf"{field}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found
    return int(found[1]) * 1024


def forget_peak() -> None:
    """Where the kernel lets us, the peak so far is set to the present; else the growth found is too large."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return


def memory(budget: int) -> dict[str, Any]:
    model, size, outputs = convolutions(), 2000, 10
    inputs, targets = torch.randn(80, 3, 32, 32), torch.randint(0, 10, (80,))
    forget_peak()
    baseline = status("VmRSS")
    network, layout = private_copy(model, CPU), WeightLayout.of(model)
    jacobian = make_jacobian(network, layout, torch.arange(size) * layout.total // size, inputs[:2])
    likelihood, room = Classification(outputs), chunk_bytes(network, CPU, budget, size)
    rows = curvature_rows(jacobian, likelihood, inputs[:1], room)
    accumulate_ggn(jacobian, [(inputs, targets)] * 2, likelihood, rows=rows)
    return {"rows": rows, "growth": status("VmHWM") - baseline}


class Killing:
    """Batches; the process gets SIGKILL in the place of number `at`."""

    def __init__(self, at: int) -> None:
        self.at = at

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for number, batch in enumerate(CASE.batches(4 * BATCHES, 4)):
            if number == self.at:
                os.kill(os.getpid(), signal.SIGKILL)
            yield batch


def count_calls(jacobian: SubnetworkJacobian) -> list[int]:
    """Grows by one element for every forward pass of the Jacobian's model from now on."""
    calls: list[int] = []
    jacobian.model.register_forward_hook(lambda module, args, output: calls.append(len(output)))
    return calls


def make_job(every: int = 3) -> SubnetworkJacobian:
    model = CASE.model()
    layout = WeightLayout.of(model)
    return make_jacobian(private_copy(model, CPU), layout, torch.arange(0, layout.total, every), CASE.data(2)[0])


def curvature(folder: str, kill_at: int) -> dict[str, Any]:
    jacobian = make_job()
    calls = count_calls(jacobian)
    checkpoint = Checkpoint(Path(folder), job_fingerprint(jacobian.model, "{}"), every_seconds=0)
    result = accumulate_ggn(jacobian, Killing(kill_at), Classification(CASE.outputs), checkpoint=checkpoint)
    checkpoint.remove()
    return {"ggn": result.ggn.tolist(), "examples": result.examples, "correct": result.correct, "calls": len(calls)}


def distributed(folder: str, fail: str) -> dict[str, Any]:
    with process_group(CPU) as distributed:
        jacobian = make_job()
        if fail == ("main" if distributed.is_main else "other"):
            raise SystemExit("this process fails")
        indices = distributed.broadcast(jacobian.indices if distributed.is_main else None)
        details = distributed.broadcast_json({"dead": None, "name": "zwölf"} if distributed.is_main else None)
        pairs: list[tuple[Tensor, Tensor]] = CASE.batches(22, 4)
        checkpoint = Checkpoint(
            Path(folder) / "checkpoint",
            job_fingerprint(jacobian.model, "{}", 2),
            every_seconds=0,
            rank=distributed.rank,
        )
        found = accumulate_ggn(
            jacobian, pairs, Classification(CASE.outputs), distributed=distributed, checkpoint=checkpoint
        )
        diagonal = diagonal_ggn(jacobian, pairs, Classification(CASE.outputs), distributed=distributed)
        saved = sorted(path.name for path in checkpoint.folder.iterdir()) if distributed.is_main else []
        distributed.barrier()
    numbers = {"ggn": found.ggn.tolist(), "diagonal": diagonal.tolist(), "indices": indices.tolist()}
    counted = {"examples": found.examples, "correct": found.correct, "details": details, "saved": saved}
    Path(folder, f"{distributed.rank}.json").write_text(json.dumps(numbers | counted))
    return {}


MODES: dict[str, Callable[..., dict[str, Any]]] = {
    "memory": lambda budget: memory(int(budget)),
    "curvature": lambda folder, at: curvature(folder, int(at)),
    "distributed": distributed,
}

if __name__ == "__main__":
    print(json.dumps(MODES[sys.argv[1]](*sys.argv[2:])))
