"""Two processes on this machine add up to one; and when one fails, the other ends too."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from demur.offline.data.likelihood import Classification
from demur.offline.laplace.ggn import accumulate_ggn, diagonal_ggn
from demur.offline.runtime.distributed import DistributedContext, environment_context, local_device, process_group
from tests.support.job_process import CASE, make_job

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
CPU = torch.device("cpu")


def torchrun(folder: Path, fail: str) -> "subprocess.CompletedProcess[str]":
    """The limit is no measurement: a hang would last for ever."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    command = [*launcher, "-m", "tests.support.job_process", "distributed", str(folder), fail]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)


def test_two_processes_add_up_to_one(tmp_path: Path) -> None:
    done = torchrun(tmp_path, "none")
    assert done.returncode == 0, done.stderr
    jacobian, pairs = make_job(), CASE.batches(22, 4)
    expected = accumulate_ggn(jacobian, pairs, Classification(CASE.outputs))
    diagonal = diagonal_ggn(jacobian, pairs, Classification(CASE.outputs))
    for rank in range(2):
        found = json.loads((tmp_path / f"{rank}.json").read_text())
        ggn = torch.tensor(found["ggn"], dtype=torch.float64)
        torch.testing.assert_close(ggn, expected.ggn, rtol=1e-10, atol=1e-10)
        assert torch.equal(ggn, ggn.T)
        squares = torch.tensor(found["diagonal"], dtype=torch.float64)
        torch.testing.assert_close(squares, diagonal, rtol=1e-10, atol=1e-10)
        assert (found["examples"], found["correct"]) == (expected.examples, expected.correct)
        assert found["indices"] == jacobian.indices.tolist()
        assert found["details"] == {"dead": None, "name": "zwölf"}
    saved = json.loads((tmp_path / "0.json").read_text())["saved"]
    assert saved == ["curvature-0.safetensors", "curvature-1.safetensors"]


def test_a_process_that_fails_ends_the_job(tmp_path: Path) -> None:
    done = torchrun(tmp_path, "main")
    assert done.returncode != 0
    assert "this process fails" in done.stderr
    assert not list(tmp_path.glob("*.json"))


def test_the_other_process_does_not_wait_for_ever(tmp_path: Path) -> None:
    """Without a launcher that would end it: the closed connection is an error of its own."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2"}
    command = [sys.executable, "-m", "tests.support.job_process", "distributed", str(tmp_path), "other"]
    processes = [
        subprocess.Popen(
            command, cwd=ROOT, env=os.environ | address | {"RANK": rank}, stderr=subprocess.PIPE, text=True
        )
        for rank in "01"
    ]
    try:
        told = [process.communicate(timeout=300)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [1, 1]
    assert "DistributedError: another process of the job failed or left" in told[0]
    assert "this process fails" in told[1]


def test_without_a_launcher_there_is_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    with process_group(CPU) as distributed:
        assert distributed == DistributedContext(0, 1)
        assert distributed.is_main
        tensor = torch.ones(3)
        distributed.all_reduce(tensor)
        distributed.barrier()
        assert tensor.tolist() == [1, 1, 1]
        assert distributed.total(2, 0.5) == [2, 0.5]
        assert distributed.broadcast(tensor) is tensor
        assert distributed.broadcast_json({"a": [1]}) == {"a": [1]}
        assert list(distributed.shard_batches("abc")) == ["a", "b", "c"]


@pytest.mark.parametrize(("rank", "world"), [("2", "2"), ("-1", "2"), ("0", ""), ("", "2"), ("a", "2")])
def test_an_environment_that_does_not_fit_is_refused(monkeypatch: pytest.MonkeyPatch, rank: str, world: str) -> None:
    monkeypatch.setenv("RANK", rank)
    monkeypatch.setenv("WORLD_SIZE", world)
    with pytest.raises(ValueError, match=f"found RANK='{rank}' and WORLD_SIZE='{world}', expected whole numbers"):
        environment_context()


def test_the_environment_of_a_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1"}.items():
        monkeypatch.setitem(os.environ, name, value)
    assert environment_context() == DistributedContext(3, 4)
    assert not environment_context().is_main
    assert local_device(torch.device("cuda")) == torch.device("cuda", 1)
    assert local_device(torch.device("cuda", 0)) == torch.device("cuda", 0)
    assert local_device(CPU) == CPU
