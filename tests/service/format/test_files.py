"""service/bundle.py against files that are not what the manifest says: changed, missing, extra, or no files."""

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from demur.service.bundle import (
    CALIBRATION,
    MANIFEST,
    MAX_MANIFEST_BYTES,
    MODEL,
    POSTERIOR,
    BundleError,
    read_bundle,
    read_manifest,
)
from tests.support.tamper import FILES, load_json, put, refusal, replaced, save_json

DATA_FILES = (MODEL, POSTERIOR, CALIBRATION)


@pytest.mark.parametrize("file", DATA_FILES)
def test_a_changed_byte_anywhere_is_refused(folder: Path, file: str) -> None:
    data = (folder / file).read_bytes()
    for position in {0, 1, 7, 8, len(data) - 1, *range(0, len(data), max(1, len(data) // 60))}:
        flipped = bytearray(data)
        flipped[position] ^= 1 << position % 8
        (folder / file).write_bytes(flipped)
        with pytest.raises(BundleError, match=r"found sha256 .*, expected .*: the file was changed") as caught:
            read_bundle(folder)
        assert caught.value.file == str(folder / file)


def test_a_changed_byte_in_the_manifest_is_refused_or_changes_nothing(folder: Path) -> None:
    file = folder / MANIFEST
    data, original = file.read_bytes(), read_manifest(folder)[0]
    accepted = []
    for position in range(0, len(data), 3):
        flipped = bytearray(data)
        flipped[position] ^= 1 << position % 8
        file.write_bytes(flipped)
        with contextlib.suppress(BundleError):
            if read_bundle(folder).manifest != original:
                accepted.append(flipped[max(0, position - 25) : position + 10].decode(errors="replace"))
    assert not accepted, f"{len(accepted)} changes were accepted, such as {accepted[:3]}"


@pytest.mark.parametrize("file", FILES)
def test_a_missing_file_is_refused(folder: Path, file: str) -> None:
    (folder / file).unlink()
    refusal(folder, file, "missing file")


@pytest.mark.parametrize("file", DATA_FILES)
@pytest.mark.parametrize("change", ["emptied", "halved", "one short", "one more"])
def test_a_file_of_another_length_is_refused(folder: Path, file: str, change: str) -> None:
    data = (folder / file).read_bytes()
    size = len(data)
    changed = {"emptied": b"", "halved": data[: size // 2], "one short": data[:-1], "one more": data + b"\0"}[change]
    (folder / file).write_bytes(changed)
    refusal(folder, file, f"found {len(changed)} bytes, expected", str(size))


@pytest.mark.parametrize("length", [0, 1, 100, -2])
def test_a_truncated_manifest_is_refused(folder: Path, length: int) -> None:
    data = (folder / MANIFEST).read_bytes().rstrip()
    (folder / MANIFEST).write_bytes(data[:length])
    refusal(folder, MANIFEST, "not valid JSON")


@pytest.mark.parametrize("name", ["extra.bin", "report.html", "README", "model.onnx.data"])
def test_an_extra_file_is_refused(folder: Path, name: str) -> None:
    (folder / name).write_text("hello")
    error = refusal(folder, name, "extra file, not listed in the manifest")
    assert error.remedy == "remove it, or copy the bundle again"


def test_what_hubs_and_file_systems_put_beside_it_is_left_alone(folder: Path) -> None:
    for name in (".gitattributes", "README.md"):
        (folder / name).write_text("hello")
    for name in (".cache", "lost+found"):
        (folder / name).mkdir()
    assert read_bundle(folder).manifest.files.keys() == {MODEL, POSTERIOR, CALIBRATION}


def test_a_listed_report_is_welcome_and_an_extra_folder_is_not(folder: Path) -> None:
    put(folder, "report.html", b"<p>hello</p>")
    assert "report.html" in read_bundle(folder).manifest.files
    (folder / "folder").mkdir()
    refusal(folder, "folder", "extra file")


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "a/b", "..", ".", "", "other.bin", "model.onnx\0", "é"])
def test_any_other_name_in_the_manifest_is_refused(folder: Path, name: str) -> None:
    (folder.parent / "secret").write_bytes(b"")
    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    save_json(folder, replaced(load_json(folder), ("files", name), {"sha256": empty, "bytes": 0}))
    refusal(folder, MANIFEST, f"files: found the name {name!r}")


@pytest.mark.parametrize("file", DATA_FILES)
def test_a_file_that_the_manifest_does_not_list_is_refused(folder: Path, file: str) -> None:
    manifest = load_json(folder)
    del manifest["files"][file]
    save_json(folder, manifest)
    refusal(folder, MANIFEST, f"files: '{file}' is not listed")


@pytest.mark.parametrize("size", [-1, 0, 1, 10**12, 2**62, 2**63 - 1])
def test_a_wrong_size_in_the_manifest_is_refused(folder: Path, size: int) -> None:
    save_json(folder, replaced(load_json(folder), ("files", MODEL, "bytes"), size))
    refusal(folder, MODEL, "bytes, expected")


@pytest.mark.parametrize("digest", ["", "0" * 64, "é", "x" * 100_000])
def test_a_wrong_hash_in_the_manifest_is_refused(folder: Path, digest: str) -> None:
    save_json(folder, replaced(load_json(folder), ("files", MODEL, "sha256"), digest))
    refusal(folder, MODEL, "found sha256")


def to_device(file: Path) -> None:
    file.unlink()
    file.symlink_to("/dev/zero")


def to_loop(file: Path) -> None:
    file.unlink()
    file.symlink_to(file.name)


def to_dangling_symlink(file: Path) -> None:
    file.unlink()
    file.symlink_to("/nowhere/at/all")


def to_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


def to_fifo(file: Path) -> None:
    """Opening it for reading would wait for a writer for ever."""
    file.unlink()
    os.mkfifo(file)


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("change", [to_device, to_dangling_symlink, to_loop, to_folder, to_fifo])
def test_only_regular_files_are_read(folder: Path, file: str, change: Callable[[Path], None]) -> None:
    change(folder / file)
    refusal(folder, file, "missing file" if change is to_dangling_symlink else "regular file")


def test_links_to_files_are_followed(folder: Path) -> None:
    """As in the cache of a hub, whose snapshots are links to files by their content."""
    before = read_bundle(folder)
    for file in list(folder.iterdir()):
        target = file.rename(folder.parent / f"blob-{file.name}")
        file.symlink_to(Path("..") / target.name)
    assert read_bundle(folder).digest == before.digest
    (folder.parent / f"blob-{MODEL}").write_bytes(b"another")
    refusal(folder, MODEL, "found 7 bytes, expected")


def test_a_folder_reached_through_a_symlink_is_welcome(folder: Path) -> None:
    link = folder.parent / "current"
    link.symlink_to(folder.name)
    assert read_bundle(link).digest == read_bundle(folder).digest


def test_a_folder_of_bundles_is_told_from_a_bundle(folder: Path) -> None:
    shelf = folder.parent
    remedy = rf"is no bundle, but holds 1 \(remedy: name one of them, such as .*{folder.name}\)"
    with pytest.raises(BundleError, match=remedy):
        read_bundle(shelf)


@pytest.mark.parametrize("kind", ["nothing", "a file", "no manifest", "empty path", "a long path"])
def test_what_is_no_bundle_folder_is_refused(tmp_path: Path, kind: str) -> None:
    path = {"empty path": Path(), "a long path": tmp_path / ("x" * 5000)}.get(kind, tmp_path / "thing")
    if kind == "a file":
        path.write_text("{}")
    if kind == "no manifest":
        path.mkdir()
    with pytest.raises(BundleError, match="remedy"):
        read_bundle(path)


DEEP = 100_000
BAD_JSON: dict[str, bytes] = {
    "text": b"hello",
    "deep lists": b"[" * DEEP,
    "deep objects": b'{"format":' * DEEP,
    "deep and closed": b"[" * DEEP + b"]" * DEEP,
    "NaN": b'{"format": NaN}',
    "infinity": b'{"format": -Infinity}',
    "a number of 5000 digits": b'{"format": ' + b"9" * 5000 + b"}",
    "not UTF-8": b'{"format": "\xff"}',
    "two documents": b"{}{}",
    "zeros": bytes(100),
}


@pytest.mark.parametrize("case", BAD_JSON)
def test_a_manifest_that_is_no_sound_json_is_refused(folder: Path, case: str) -> None:
    (folder / MANIFEST).write_bytes(BAD_JSON[case])
    refusal(folder, MANIFEST)


def test_a_number_too_large_for_a_float_is_refused_wherever_it_stands(folder: Path) -> None:
    text = (folder / MANIFEST).read_text()
    changed = text.replace('"share": 0.5', '"share": 1e999')
    assert changed != text
    (folder / MANIFEST).write_text(changed)
    refusal(folder, MANIFEST)


def test_a_huge_manifest_is_refused_before_it_is_read(folder: Path) -> None:
    with open(folder / MANIFEST, "r+b") as file:
        file.truncate(MAX_MANIFEST_BYTES + 1)
    refusal(folder, MANIFEST, f"found {MAX_MANIFEST_BYTES + 1} bytes, expected at most {MAX_MANIFEST_BYTES}")


@pytest.mark.parametrize("place", [("added" * 10_000,), ("input", "a\nb\nc")], ids=["long", "lines"])
def test_a_message_stays_one_short_line(folder: Path, place: tuple[str, ...]) -> None:
    save_json(folder, replaced(load_json(folder), place, 1))
    assert "\n" not in str(refusal(folder, MANIFEST, "unknown field"))


@pytest.mark.parametrize("place", [("name",), ("class_names",), ("format_version",)], ids=str)
def test_a_message_shortens_what_was_found(folder: Path, place: tuple[str, ...]) -> None:
    value: Any = ["x" * 100_000] if place == ("class_names",) else "x" * 100_000
    save_json(folder, replaced(load_json(folder), place, value))
    refusal(folder, MANIFEST, place[0])


@pytest.mark.parametrize("file", DATA_FILES)
def test_a_file_larger_than_the_memory_is_refused(folder: Path, file: str) -> None:
    os.truncate(folder / file, 2**42)  # of holes
    save_json(folder, replaced(load_json(folder), ("files", file, "bytes"), 2**42))
    refusal(folder, file, "more than there is memory for")


def test_a_line_break_in_a_path_forges_no_line_of_a_log(folder: Path) -> None:
    odd = folder.rename(folder.with_name("a\nINFO: all is well\x1b[2J"))
    (odd / MODEL).write_bytes(b"changed")
    with pytest.raises(BundleError) as caught:
        read_bundle(odd)
    assert str(caught.value).isprintable()
    assert "a\\nINFO: all is well\\x1b[2J/model.onnx: " in str(caught.value)
