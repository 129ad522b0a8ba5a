"""Killed and taken up again: the same sum, nothing computed twice; and whatever is damaged or foreign is refused."""

import hashlib
import json
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from demur.offline.data.likelihood import Classification, Regression
from demur.offline.laplace.ggn import accumulate_ggn
from demur.offline.runtime.checkpoint import Checkpoint, CheckpointError, update_digest
from demur.offline.runtime.resume import job_fingerprint, tensors_digest
from tests.support.job_process import BATCHES, CASE, count_calls, make_job

ROOT = Path(__file__).parents[3]
FINGERPRINT = {"version of demur": "1", "configuration": "{}"}
PAIRS = CASE.batches(4 * BATCHES, 4)


def checkpoint_in(folder: Path, **options: Any) -> Checkpoint:
    return Checkpoint(folder / "checkpoint", FINGERPRINT, **options)


def run(folder: Path, kill_at: int) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "tests.support.job_process", "curvature", str(folder), str(kill_at)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)


@pytest.mark.slow
def test_a_killed_job_is_taken_up_where_it_was(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    killed = run(folder, 4)
    assert killed.returncode == -signal.SIGKILL
    assert [path.name for path in folder.iterdir()] == ["curvature-0.safetensors"]
    resumed = run(folder, -1)
    assert resumed.returncode == 0, resumed.stderr
    answer = json.loads(resumed.stdout)
    expected = accumulate_ggn(make_job(), PAIRS, Classification(CASE.outputs))
    torch.testing.assert_close(torch.tensor(answer["ggn"], dtype=torch.float64), expected.ggn, rtol=1e-12, atol=1e-12)
    assert (answer["examples"], answer["correct"]) == (expected.examples, expected.correct)
    assert answer["calls"] == BATCHES - 4
    assert not folder.exists()


# --------------------------------------------------------------------------- a pass interrupted within the process


class Interrupted(Exception):
    pass


def until(batch: int) -> Iterator[tuple[Tensor, Tensor]]:
    yield from PAIRS[:batch]
    raise Interrupted


def interrupt(folder: Path, batch: int = 4, every: int = 3, **options: Any) -> None:
    """A curvature that stops before `batch`, saved after each batch."""
    checkpoint = checkpoint_in(folder, every_seconds=0, **options)
    with pytest.raises(Interrupted):
        accumulate_ggn(make_job(every), until(batch), Classification(CASE.outputs), checkpoint=checkpoint)


def resume(folder: Path, pairs: Any = PAIRS, every: int = 3, **options: Any) -> tuple[Tensor, int]:
    """(ggn, Jacobian calls)."""
    jacobian = make_job(every)
    calls = count_calls(jacobian)
    checkpoint = checkpoint_in(folder, **options)
    found = accumulate_ggn(jacobian, pairs, Classification(CASE.outputs), checkpoint=checkpoint)
    return found.ggn, len(calls)


@pytest.mark.parametrize("batch", [0, 1, BATCHES])
def test_any_position_can_be_resumed(tmp_path: Path, batch: int) -> None:
    interrupt(tmp_path, batch)
    ggn, calls = resume(tmp_path)
    expected = accumulate_ggn(make_job(), PAIRS, Classification(CASE.outputs)).ggn
    torch.testing.assert_close(ggn, expected, rtol=1e-12, atol=1e-12)
    assert calls == BATCHES - batch


def test_a_job_may_be_interrupted_again_and_again(tmp_path: Path) -> None:
    for batch in (2, 3, 5):
        interrupt(tmp_path, batch)
    assert resume(tmp_path)[1] == BATCHES - 5


def test_the_clock_decides_when_to_save(tmp_path: Path) -> None:
    """A clock that moves a second at each reading: a save every so many seconds, and no file before."""
    times = iter(range(1000))
    checkpoint = checkpoint_in(tmp_path, every_seconds=3, clock=lambda: float(next(times)))
    assert [checkpoint.due() for _ in range(4)] == [False, False, True, True]
    checkpoint.save("curvature", torch.zeros(2), {}, {})
    assert [checkpoint.due() for _ in range(3)] == [False, False, True]
    assert not list(Path(tmp_path).glob("*.tmp"))


@pytest.mark.parametrize(
    ("pairs", "found"),
    [
        (PAIRS[::-1], "found other examples in the first 4 batches"),
        ([(x + 1e-6, y) for x, y in PAIRS], "found other examples"),
        ([(x, (y + 1) % 10) for x, y in PAIRS], "found other examples"),
        (PAIRS[:2], "found 2 batches, expected at least 4"),
        (CASE.batches(4 * BATCHES, 3), "found other examples"),
    ],
    ids=["order", "inputs", "targets", "fewer", "batch size"],
)
def test_a_loader_that_does_not_repeat_is_found_out(tmp_path: Path, pairs: Any, found: str) -> None:
    interrupt(tmp_path)
    with pytest.raises(CheckpointError, match=f"{found}.*same order each time.*remove the folder"):
        resume(tmp_path, pairs)


def test_other_weights_chosen_are_another_job(tmp_path: Path) -> None:
    interrupt(tmp_path)
    with pytest.raises(CheckpointError, match="another job's: found sha256 of subnetwork_indices"):
        resume(tmp_path, every=4)


def test_every_process_has_its_own(tmp_path: Path) -> None:
    interrupt(tmp_path, rank=1)
    assert resume(tmp_path, rank=0)[1] == BATCHES
    assert resume(tmp_path, rank=1)[1] == BATCHES - 4


# --------------------------------------------------------------------------- the files


def test_indices_and_their_story_come_back(tmp_path: Path) -> None:
    indices = torch.tensor([3, 5, 2**40])
    assert checkpoint_in(tmp_path).load("selection", {}) is None
    assert checkpoint_in(tmp_path).check() == []
    assert checkpoint_in(tmp_path).save("selection", indices, {"dead_weights": None, "name": "é"}, {})
    assert checkpoint_in(tmp_path).check() == ["selection"]
    found = checkpoint_in(tmp_path).load("selection", {})
    assert found is not None
    assert torch.equal(found[0], indices)
    assert found[1] == {"dead_weights": None, "name": "é"}
    checkpoint_in(tmp_path).remove()
    assert list(tmp_path.iterdir()) == []


def saved(tmp_path: Path) -> Path:
    checkpoint_in(tmp_path).save("curvature", torch.arange(3000.0), {"batches": 3}, {})
    return tmp_path / "checkpoint" / "curvature-0.safetensors"


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-8])


def one_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    path.write_bytes(bytes(data))


def another_state(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b'batches\\": 3', b'batches\\": 7'))


def without_metadata(path: Path) -> None:
    save_file(load_file(path), path)


def newer(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b'format\\": 1', b'format\\": 9'))


@pytest.mark.parametrize(
    "damage",
    [truncated, one_bit, another_state, without_metadata, newer, lambda path: path.write_bytes(b"")],
    ids=["truncated", "one bit", "state", "metadata", "newer", "empty"],
)
def test_damage_is_an_error_and_nothing_is_lost(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    path = saved(tmp_path)
    before = path.read_bytes()
    damage(path)
    assert path.read_bytes() != before
    with pytest.raises(CheckpointError, match=r"curvature-0.safetensors: the checkpoint is damaged.*remove the folder"):
        checkpoint_in(tmp_path).load("curvature", {})
    assert path.exists()


@pytest.mark.parametrize("into", [torch.zeros(3001), torch.zeros(3000, dtype=torch.float64)], ids=["shape", "dtype"])
def test_a_tensor_of_another_kind_is_damage(tmp_path: Path, into: Tensor) -> None:
    saved(tmp_path)
    with pytest.raises(CheckpointError, match=r"damaged .found .*, expected"):
        checkpoint_in(tmp_path).load("curvature", {}, into)


@pytest.mark.parametrize("name", FINGERPRINT)
def test_another_jobs_checkpoint_is_refused_before_any_work(tmp_path: Path, name: str) -> None:
    saved(tmp_path)
    other = Checkpoint(tmp_path / "checkpoint", FINGERPRINT | {name: "another"})
    for refused in (other.check, lambda: other.load("curvature", {})):
        with pytest.raises(CheckpointError, match=f"another job's: found {name} .*, expected another; run that job"):
            refused()


def test_a_folder_of_something_else_is_not_touched(tmp_path: Path) -> None:
    path = saved(tmp_path)
    (path.parent / "thesis.tex").write_text("mine")
    with pytest.raises(CheckpointError, match=r"found thesis.tex, expected a checkpoint folder"):
        checkpoint_in(tmp_path).check()
    checkpoint_in(tmp_path).remove()
    assert (path.parent / "thesis.tex").read_text() == "mine"
    assert not path.exists()


def test_a_file_in_its_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "checkpoint").write_text("mine")
    with pytest.raises(CheckpointError, match="found a file, expected a checkpoint folder"):
        checkpoint_in(tmp_path).check()


def test_a_full_disk_warns_and_the_last_checkpoint_stays(tmp_path: Path) -> None:
    path = saved(tmp_path)
    before = path.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        with pytest.warns(RuntimeWarning, match=r"checkpoint: could not be saved .*the job goes on"):
            assert not checkpoint_in(tmp_path).save("curvature", torch.zeros(3000), {"batches": 4}, {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]
    assert path.read_bytes() == before


# --------------------------------------------------------------------------- fingerprints


def test_the_fingerprint_follows_every_weight_and_buffer() -> None:
    model = CASE.model()
    first = job_fingerprint(model, "{}")
    assert first == job_fingerprint(CASE.model(), "{}")
    with torch.no_grad():
        next(model.parameters()).view(-1)[0] += 1e-6
    changed = job_fingerprint(model, '{"seed": 1}', 2)
    same = [name for name in first if first[name] == changed[name]]
    assert same == ["version of demur"]


def test_digests_tell_name_dtype_shape_and_bytes_apart() -> None:
    base = torch.zeros(2, 3)
    kinds = [base, base.T, base.double(), base.int(), torch.zeros(6), base + 1, base.bool(), base.bfloat16()]
    digests = {tensors_digest({"a": tensor}) for tensor in kinds}
    assert len(digests) == len(kinds)
    assert tensors_digest({"b": base}) not in digests
    assert tensors_digest({"a": base.T.contiguous().T}) == tensors_digest({"a": base})
    assert tensors_digest({"a": torch.tensor(1.0)}) != tensors_digest({"a": torch.tensor(2.0)})


def test_a_digest_takes_many_rows() -> None:
    digests = []
    for spoiled in (0, 1):
        tensor = torch.zeros(5000, 2)
        tensor[4999, 1] = spoiled
        digest = hashlib.sha256()
        update_digest(digest, tensor)
        digests.append(digest.hexdigest())
    assert digests[0] != digests[1]


def test_of_a_configuration_only_what_differs_is_shown(tmp_path: Path) -> None:
    """However long the configuration is."""
    before, after = ({"a": "x" * 500, "seed": seed, "z": 1.5} for seed in (0, 1))
    first, second = (Checkpoint(tmp_path / "c", {"configuration": json.dumps(c)}) for c in (before, after))
    first.save("curvature", torch.zeros(2), {}, {})
    with pytest.raises(CheckpointError, match="found in the configuration seed 0, expected 1; run that job"):
        second.check()


def test_other_noises_of_several_targets_are_another_job(tmp_path: Path) -> None:
    """They are estimated on held-out data, and weight the rows of the curvature."""
    jacobian, inputs = make_job(), PAIRS[0][0]
    pairs = [(x, torch.zeros(len(x), CASE.outputs)) for x, _ in PAIRS]

    def sum_up(likelihood: Regression) -> None:
        accumulate_ggn(
            jacobian, pairs, likelihood, rows=len(inputs), checkpoint=checkpoint_in(tmp_path, every_seconds=0)
        )

    ratios = (1.0,) * CASE.outputs
    sum_up(Regression(CASE.outputs, 1.0, ratios))
    with pytest.raises(CheckpointError, match="another job's: found likelihood"):
        sum_up(Regression(CASE.outputs, 1.0, (2.0, 0.5, *ratios[2:])))
