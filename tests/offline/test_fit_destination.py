"""fit_bundle writes where nothing else is lost, or says before any work that it cannot."""

import errno
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

import demur.service.bundle
from demur.offline import fit_bundle
from demur.service.bundle import BundleError
from demur.service.format.files import write_file
from tests.support.small_fit import CONFIG, batches, network, skip_export


def contents(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def file(path: Path) -> None:
    path.write_text("precious")


def link(path: Path) -> None:
    path.symlink_to(path.parent, target_is_directory=True)


def folder(path: Path) -> None:
    path.mkdir()
    file(path / "thesis.txt")


@pytest.mark.parametrize("make", [file, link, folder])
def test_a_destination_that_is_no_bundle_is_refused_before_any_work(tmp_path: Path, make: Callable[..., None]) -> None:
    make(tmp_path / "out")
    with pytest.raises(
        BundleError, match=r"out: (exists and is not .*choose another destination|is a link to .*give the folder)"
    ):
        fit_bundle(network(), [], tmp_path / "out", calibration_loader=[], config=CONFIG)
    assert list(contents(tmp_path).values()) == [] if make is link else ["precious"]


@pytest.mark.parametrize("written", [0, 1, 3])
def test_a_full_disk_leaves_the_old_bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: int) -> None:
    out = tmp_path / "bundle"
    out.mkdir()
    for name in ("manifest.json", "model.onnx", "posterior.safetensors", "calibration.safetensors"):
        (out / name).write_text(f"old {name}")
    before = contents(tmp_path)
    skip_export(monkeypatch)
    calls: list[Path] = []

    def full(path: Path, data: bytes) -> None:
        calls.append(path)
        if len(calls) > written:
            path.write_bytes(data[: len(data) // 2])
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        write_file(path, data)

    monkeypatch.setattr(demur.service.bundle, "write_file", full)
    with pytest.raises(BundleError, match=r"bundle: could not be written \(No space left on device\) .*free some"):
        fit_bundle(network(), batches(), out, calibration_loader=batches(seed=1), config=CONFIG)
    assert len(calls) == written + 1
    assert contents(tmp_path) == before


def test_a_destination_that_cannot_be_written_is_known_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> str:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(tempfile, "mkdtemp", refuse)
    with pytest.raises(BundleError, match=r"out: cannot be written \(Read-only file system\) .*make .* writable"):
        fit_bundle(network(), [], tmp_path / "new" / "out", calibration_loader=[], config=CONFIG)


def test_a_destination_that_no_permission_mends_has_a_remedy_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for out, remedy in ((tmp_path / "file" / "sub", "is a file: choose a folder"), (tmp_path / ("x" * 300), "shorter")):
        with pytest.raises(BundleError, match=remedy):
            fit_bundle(network(), [], out, calibration_loader=[], config=CONFIG)


def test_a_configuration_in_place_of_the_destination_is_told() -> None:
    with pytest.raises(TypeError, match=r"out: found FitConfig, expected a path; give the configuration as config="):
        fit_bundle(network(), batches(), CONFIG, calibration_loader=batches())  # type: ignore[arg-type]
