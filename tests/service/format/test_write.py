"""Writing a bundle is all or nothing, and never harms what is not a bundle."""

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from demur.service.bundle import (
    MANIFEST,
    MODEL,
    BundleError,
    CholeskyPosterior,
    check_destination,
    check_writable,
    read_bundle,
    seal_bundle,
    staged_bundle,
)
from tests.support.bundles import FEATURE_SPEC, Synthetic, rewrite, write_linear
from tests.support.server import ROOT
from tests.support.tamper import contents, copy_bundle

TIMEOUT = 60


def listing(folder: Path) -> set[str]:
    return {entry.name for entry in folder.iterdir()}


def test_a_new_bundle_appears_whole_with_its_parents(classification: Synthetic, tmp_path: Path) -> None:
    out = tmp_path / "not" / "yet" / "there"
    assert rewrite(classification.path, out) == out
    assert contents(out) == contents(classification.path)
    assert listing(out.parent) == {"there"}
    assert out.stat().st_mode & 0o777 == 0o755


def test_an_existing_bundle_or_empty_folder_is_replaced(
    classification: Synthetic, regression: Synthetic, tmp_path: Path
) -> None:
    out = tmp_path / "bundle"
    out.mkdir()
    rewrite(classification.path, out)
    assert contents(out) == contents(classification.path)
    rewrite(regression.path, out)
    assert contents(out) == contents(regression.path)
    assert listing(tmp_path) == {"bundle"}


def test_what_a_killed_process_left_is_removed_and_what_a_living_one_holds_is_not(
    classification: Synthetic, tmp_path: Path
) -> None:
    """Only staging folders of this very bundle: neither another's, nor a file, nor what a link leads to."""
    elsewhere = tmp_path / "elsewhere"
    for folder in (tmp_path / ".bundle.staging-dead", tmp_path / ".other.staging-dead", elsewhere):
        folder.mkdir()
        (folder / "half").write_text("a bundle")
    (tmp_path / ".bundle.staging-link").symlink_to(elsewhere)
    with staged_bundle(tmp_path / "bundle") as held:
        rewrite(classification.path, tmp_path / "bundle")
        assert listing(tmp_path) == {"bundle", "elsewhere", ".other.staging-dead", ".bundle.staging-link", held.name}
        shutil.copytree(classification.path, held, dirs_exist_ok=True)
    assert listing(elsewhere) == {"half"}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_rights_is_refused_before_any_work(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(BundleError, match=r"cannot be written \(Permission denied\)"):
        check_writable(tmp_path / "new" / "bundle")


MOUNT = ["unshare", "--mount", "sh", "-c", 'mount --bind there "the bundle" && exec "$@"', "sh"]
can_mount = pytest.mark.skipif(
    shutil.which("unshare") is None or subprocess.run([*MOUNT[:4], "mount --bind / /mnt"], check=False).returncode != 0,
    reason="needs the right to mount",
)


@can_mount
def test_a_mount_point_is_refused_before_any_work_and_left_as_it_was(classification: Synthetic, tmp_path: Path) -> None:
    """`docker run -v $PWD/there:"/the bundle"`: part of the same file system, which no device number tells."""
    (tmp_path / "the bundle").mkdir()
    shutil.copytree(classification.path, tmp_path / "there")
    before = contents(tmp_path / "there")

    def refused(code: str) -> str:
        start = "from pathlib import Path; import shutil; from demur.service.bundle import *; out = Path('the bundle')"
        command = [*MOUNT, sys.executable, "-c", f"{start}\n{code}"]
        done = subprocess.run(
            command,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 1
        return done.stderr.strip().splitlines()[-1]

    told = refused("check_writable(out)")
    assert "the bundle: is a mount point" in told
    assert "such as the bundle/bundle" in told
    told = refused("with staged_bundle(out) as staging: shutil.copytree('there', staging, dirs_exist_ok=True)")
    assert "could not be written (Device or resource busy) (remedy: choose another destination)" in told
    assert listing(tmp_path) == {"the bundle", "there"}
    assert contents(tmp_path / "there") == before


def test_a_check_leaves_nothing_behind(tmp_path: Path) -> None:
    check_writable(tmp_path / "new" / "bundle")
    assert listing(tmp_path) == set()


def test_a_relative_path_is_taken_from_the_working_folder(
    classification: Synthetic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rewrite(classification.path, Path("here"))
    assert contents(tmp_path / "here") == contents(classification.path)


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("exists", [True, False], ids=["over a bundle", "anew"])
def test_a_failure_leaves_everything_as_it_was(folder: Path, exists: bool, error: type[BaseException]) -> None:
    out = folder if exists else folder.parent / "new"
    before, around = contents(folder), listing(folder.parent)

    def fail() -> None:
        with staged_bundle(out) as staging:
            shutil.copy(folder / MODEL, staging)
            (staging / MANIFEST).write_text("half a mani")
            raise error

    with pytest.raises(error):
        fail()
    assert contents(folder) == before
    assert listing(folder.parent) == around


@pytest.mark.parametrize("part", ["model", "posterior", "calibration"])
def test_unwritable_parts_leave_everything_as_it_was(folder: Path, part: str) -> None:
    before = contents(folder)
    with pytest.raises((TypeError, ValueError, AttributeError, IndexError)):
        rewrite(folder, folder, **{part: object()})
    assert contents(folder) == before
    assert listing(folder.parent) == {folder.name}


def fill(path: Path) -> None:
    path.mkdir()
    (path / "thesis.tex").write_text("years of work")


def almost_a_bundle(path: Path) -> None:
    path.mkdir()
    (path / MANIFEST).write_text("{}")
    (path / "thesis.tex").write_text("years of work")


def no_manifest(path: Path) -> None:
    path.mkdir()
    (path / MODEL).write_bytes(b"")


def symlink_to_folder(path: Path) -> None:
    fill(path.parent / "target")
    path.symlink_to("target")


def dangling_symlink(path: Path) -> None:
    path.symlink_to("nowhere")


def file(path: Path) -> None:
    path.write_text("hello")


@pytest.mark.parametrize("make", [fill, almost_a_bundle, no_manifest, symlink_to_folder, dangling_symlink, file])
def test_what_is_no_bundle_is_never_overwritten(
    classification: Synthetic, tmp_path: Path, make: Callable[[Path], None]
) -> None:
    out = tmp_path / "out"
    make(out)
    before = sorted(
        (str(path), path.is_symlink(), path.is_file() and path.read_bytes()) for path in tmp_path.rglob("*")
    )
    with pytest.raises(BundleError, match=r"exists and is not a .*: choose another|is a link to .*give the folder"):
        rewrite(classification.path, out)
    after = sorted((str(path), path.is_symlink(), path.is_file() and path.read_bytes()) for path in tmp_path.rglob("*"))
    assert after == before


def test_what_appeared_while_the_bundle_was_made_is_not_overwritten(classification: Synthetic, tmp_path: Path) -> None:
    out = tmp_path / "out"
    bundle = read_bundle(classification.path)

    def write() -> None:
        with staged_bundle(out) as staging:
            seal_bundle(
                staging,
                bundle.manifest,
                bundle.model,
                bundle.posterior,
                bundle.subnetwork_indices,
                bundle.calibration,
            )
            fill(out)

    with pytest.raises(BundleError, match="is not a bundle; nothing was overwritten"):
        write()
    assert listing(tmp_path) == {"out"}
    assert listing(out) == {"thesis.tex"}


def test_a_bundle_that_is_replaced_while_it_is_looked_at_is_a_bundle(
    classification: Synthetic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another writer puts a new one in its place, and removes the old one file by file, while the names are read."""
    out, aside, real = tmp_path / "bundle", tmp_path / "aside", os.listdir
    shutil.copytree(classification.path, out)

    def listdir(place: Any) -> list[str]:
        if aside.exists():
            return real(place)
        handle = os.open(out, os.O_RDONLY)
        try:
            out.rename(aside)
            shutil.copytree(classification.path, out)
            (aside / MANIFEST).unlink()
            return real(handle)
        finally:
            os.close(handle)

    monkeypatch.setattr(os, "listdir", listdir)
    check_destination(out)
    assert aside.exists()


def test_a_reader_sees_the_old_bundle_or_the_new_one(shelf: Path, tmp_path: Path) -> None:
    """Both are replaced by one another again and again while a reader reads without a pause."""
    sources = [write_linear(shelf / f"turn {i}", outputs=3, spec=FEATURE_SPEC, seed=i).path for i in range(2)]
    digests = {read_bundle(source).digest for source in sources}
    out = copy_bundle(sources[0], tmp_path / "live")
    seen: list[str] = []
    errors: list[BaseException] = []
    started, stop = threading.Event(), threading.Event()

    def read() -> None:
        while not stop.is_set():
            try:
                seen.append(read_bundle(out).digest)
            except BaseException as error:
                errors.append(error)
            started.set()

    reader = threading.Thread(target=read)
    reader.start()
    assert started.wait(TIMEOUT)
    for turn in range(60):
        rewrite(sources[turn % 2], out)
    stop.set()
    reader.join(TIMEOUT)
    assert not reader.is_alive()
    assert not errors, f"{len(errors)} of {len(errors) + len(seen)} reads failed: {str(errors[0])[:200]}"
    assert set(seen) <= digests


class TestWithoutAtomicExchange:
    """On systems that cannot exchange two folders in one step."""

    @pytest.fixture(autouse=True)
    def _another_system(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys, "platform", "sunos5")

    def test_a_bundle_is_replaced(self, regression: Synthetic, folder: Path) -> None:
        rewrite(regression.path, folder)
        assert contents(folder) == contents(regression.path)
        assert listing(folder.parent) == {folder.name}

    def test_the_old_bundle_comes_back_when_the_new_one_cannot_be_moved(
        self, regression: Synthetic, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        before = contents(folder)
        rename, calls = os.rename, iter(range(10))

        def fail_second(source: Any, target: Any) -> None:
            if next(calls) == 1:
                raise OSError("disk on fire")
            rename(source, target)

        monkeypatch.setattr(os, "rename", fail_second)
        with pytest.raises(BundleError, match="disk on fire"):
            rewrite(regression.path, folder)
        assert contents(folder) == before
        assert listing(folder.parent) == {folder.name}


def test_the_hashes_in_a_given_manifest_are_not_trusted(classification: Synthetic, tmp_path: Path) -> None:
    bundle = read_bundle(classification.path)
    assert isinstance(bundle.posterior, CholeskyPosterior)
    doubled = CholeskyPosterior(2 * bundle.posterior.scale_tril)
    found = read_bundle(rewrite(classification.path, tmp_path / "new", posterior=doubled)).posterior
    assert isinstance(found, CholeskyPosterior)
    np.testing.assert_array_equal(found.scale_tril, doubled.scale_tril)
