"""service/models/trials.py: a bundle that hangs, crashes or takes all memory does so in a process of its own."""

import contextlib
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from demur.service.bundle import MODEL, BundleError, read_manifest
from demur.service.models.loading import load_predictor
from demur.service.models.trials import Trials
from demur.service.settings import Settings
from tests.support.bundles import Synthetic
from tests.support.hostile import endless, greedy, huge_input, many_dimensions
from tests.support.processes import children_of, wait_until
from tests.support.tamper import FILES, load_json, replaced, save_json

ROOT = Path(__file__).parents[3]
TIMEOUT = 60
needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs Linux's /proc")


def check(folder: Path, **settings: float) -> str:
    with Trials(Settings(**settings)) as trials:  # type: ignore[arg-type]
        return trials.check(folder)


def refusal(folder: Path, *fragments: str, **settings: float) -> BundleError:
    with pytest.raises(BundleError) as caught:
        check(folder, **settings)
    for fragment in fragments:
        assert fragment in str(caught.value)
    return caught.value


def test_a_sound_bundle_passes_with_its_digest(any_bundle: Synthetic) -> None:
    assert check(any_bundle.path) == read_manifest(any_bundle.path)[1]


def test_tokens_pass(tokens: Synthetic) -> None:
    assert check(tokens.path)


@pytest.mark.parametrize("file", FILES)
def test_what_the_reader_finds_is_told_as_the_reader_does(folder: Path, file: str) -> None:
    (folder / file).write_bytes(b"changed")
    assert refusal(folder).file == str(folder / file)


def test_it_is_found_from_any_folder(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """And nothing that lies there is imported."""
    (tmp_path / "service.py").write_text("raise SystemExit(9)")
    (tmp_path / "numpy.py").write_text("raise SystemExit(9)")
    monkeypatch.chdir(tmp_path)
    assert check(folder)


def test_a_graph_that_never_ends_is_refused_in_time(tmp_path: Path) -> None:
    folder = endless(tmp_path / "endless")
    error = refusal(folder, "within 2 s", "DEMUR_COMPUTE_TIMEOUT_SECONDS", compute_timeout_seconds=2.0)
    assert error.file == str(folder)


@pytest.mark.skipif(sys.platform != "linux", reason="limits memory as Linux does")
def test_a_graph_that_takes_all_memory_is_refused(tmp_path: Path) -> None:
    refusal(greedy(tmp_path / "greedy"), MODEL, trial_bytes=2**30)


@pytest.mark.skipif(sys.platform != "linux", reason="limits memory as Linux does")
def test_files_that_do_not_fit_are_refused(folder: Path) -> None:
    os.truncate(folder / MODEL, 2**34)  # of holes
    save_json(folder, replaced(load_json(folder), ("files", MODEL, "bytes"), 2**34))
    refusal(folder, "more than there is memory for", trial_bytes=2**30)


@pytest.mark.parametrize("make", [many_dimensions, huge_input])
def test_absurd_inputs_are_refused(tmp_path: Path, make: object) -> None:
    assert callable(make)
    refusal(make(tmp_path / "bundle"), "input.shape")


@contextlib.contextmanager
def hanging(folder: Path) -> Iterator[tuple[Trials, "Future[str]", int]]:
    """A trial that does not end, as a future, and its process."""
    before = children_of(os.getpid())
    with ThreadPoolExecutor(1) as pool, Trials(Settings()) as trials:
        future = pool.submit(trials.check, folder)
        wait_until(lambda: future.done() or children_of(os.getpid()) > before)
        (pid,) = children_of(os.getpid()) - before
        yield trials, future, pid


@needs_proc
@pytest.mark.parametrize(
    ("number", "message"),
    [(signal.SIGKILL, "was killed, most likely because it took more memory"), (signal.SIGSEGV, "crashed (signal 11)")],
)
def test_a_process_that_dies_is_a_refusal(tmp_path: Path, number: int, message: str) -> None:
    with hanging(endless(tmp_path / "endless")) as (_, future, pid):
        os.kill(pid, number)
        with pytest.raises(BundleError) as caught:
            future.result(TIMEOUT)
        assert message in str(caught.value)


@needs_proc
def test_the_end_waits_for_no_trial_and_leaves_none(tmp_path: Path) -> None:
    folder = endless(tmp_path / "endless")
    with hanging(folder) as (trials, future, pid):
        trials.close()
        with pytest.raises(BundleError):
            future.result(TIMEOUT)
        assert not Path(f"/proc/{pid}").exists()
        with pytest.raises(BundleError, match="the service is ending"):
            trials.check(folder)


ORPHAN = """
import os, sys, threading
from pathlib import Path
from demur.service.models.trials import Trials
from demur.service.settings import Settings
from tests.support.processes import children_of, wait_until
trials = Trials(Settings())
threading.Thread(target=trials.check, args=[Path(sys.argv[1])], daemon=True).start()
wait_until(lambda: bool(children_of(os.getpid())))
print(*children_of(os.getpid()), flush=True)
threading.Event().wait()
"""


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs Linux")
def test_a_trial_does_not_outlive_a_service_that_was_killed(tmp_path: Path) -> None:
    folder = endless(tmp_path / "endless")
    command = [sys.executable, "-c", ORPHAN, str(folder)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        trial = os.pidfd_open(int(parent.stdout.readline()))
        parent.kill()
    ended, _, _ = select.select([trial], [], [], TIMEOUT)
    os.close(trial)
    assert ended


def test_only_what_has_passed_is_opened(folder: Path, images: Synthetic, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bundle is replaced after each trial."""
    tried = list[Path]()

    class Replacing(Trials):
        def check(self, folder: Path) -> str:
            tried.append(folder)
            return super().check(images.path)

    with Replacing(Settings()) as trials, pytest.raises(BundleError, match="was replaced during each attempt"):
        load_predictor(folder, Settings(), trials)
    assert len(tried) == 5


def test_several_are_tried_at_the_same_time(folder: Path, images: Synthetic) -> None:
    with Trials(Settings()) as trials, ThreadPoolExecutor(2) as pool:
        together = threading.Barrier(2)

        def one(path: Path) -> str:
            together.wait(TIMEOUT)
            return trials.check(path)

        assert list(pool.map(one, [folder, images.path])) == [read_manifest(path)[1] for path in (folder, images.path)]
