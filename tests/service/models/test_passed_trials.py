"""service/models/passed_trials.py: one of several worker processes tries a bundle, and the others know."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from demur.service.bundle import MANIFEST, BundleError, read_manifest
from demur.service.models.passed_trials import PassedTrials
from demur.service.models.trials import Trials
from demur.service.monitoring.metrics import SHARED_FOLDER
from demur.service.settings import Settings

TIMEOUT = 60


class Trial:
    """Counts its calls; each waits until it may end, and fails where there is a file called bad."""

    def __init__(self) -> None:
        self.calls, self.may_end = 0, threading.Event()

    def __call__(self, folder: Path) -> str:
        self.calls += 1
        assert self.may_end.wait(TIMEOUT)
        if (folder / "bad").exists():
            raise BundleError(folder, "is bad")
        return f"digest of {(folder / MANIFEST).read_text()}"


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    (tmp_path / "bundle").mkdir()
    (tmp_path / "bundle" / MANIFEST).write_text("one")
    return tmp_path / "bundle"


def test_while_one_process_tries_a_bundle_the_others_wait_and_then_know(bundle: Path, tmp_path: Path) -> None:
    trial = Trial()
    processes = [PassedTrials(str(tmp_path)) for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        found = [pool.submit(one.digest, bundle, trial) for one in processes]
        trial.may_end.set()
        assert {one.result(TIMEOUT) for one in found} == {"digest of one"}
    assert trial.calls == 1
    (bundle / MANIFEST).write_text("two")
    assert processes[0].digest(bundle, trial) == "digest of two"
    assert trial.calls == 2


def test_what_failed_is_tried_again(bundle: Path, tmp_path: Path) -> None:
    trial, one = Trial(), PassedTrials(str(tmp_path))
    trial.may_end.set()
    (bundle / "bad").touch()
    for _ in range(2):
        with pytest.raises(BundleError, match="is bad"):
            one.digest(bundle, trial)
    (bundle / "bad").unlink()
    assert one.digest(bundle, trial) == "digest of one"
    assert trial.calls == 3


def test_a_bundle_that_changes_meanwhile_has_not_passed(bundle: Path, tmp_path: Path) -> None:
    one, calls = PassedTrials(str(tmp_path)), []

    def trial(folder: Path) -> str:
        calls.append((folder / MANIFEST).read_text())
        (folder / MANIFEST).write_text("other")
        return "digest"

    one.digest(bundle, trial)
    (bundle / MANIFEST).write_text("one")
    one.digest(bundle, trial)
    assert calls == ["one", "one"]


@pytest.mark.parametrize("shared", [None, "", "missing/folder"])
def test_without_a_shared_folder_each_tries(bundle: Path, shared: str | None) -> None:
    trial, one = Trial(), PassedTrials(shared)
    trial.may_end.set()
    assert {one.digest(bundle, trial) for _ in range(2)} == {"digest of one"}
    assert trial.calls == 2


def test_what_is_no_bundle_is_told_by_the_trial(tmp_path: Path) -> None:
    trial = Trial()
    trial.may_end.set()
    (tmp_path / "bad").touch()
    with pytest.raises(BundleError, match="is bad"):
        PassedTrials(str(tmp_path)).digest(tmp_path, trial)


def test_a_second_worker_starts_no_process(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SHARED_FOLDER, str(tmp_path))
    with Trials(Settings()) as first, Trials(Settings()) as second:
        expected = read_manifest(folder)[1]
        assert first.check(folder) == expected
        monkeypatch.setattr("demur.service.models.trials.start_child", lambda _: pytest.fail("a second process"))
        assert second.check(folder) == expected
