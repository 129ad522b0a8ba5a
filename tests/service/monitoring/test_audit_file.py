"""service/monitoring/audit_file.py: lines stay whole and are kept, whoever renames the file."""

import errno
import multiprocessing
import os
import resource
import stat
from pathlib import Path

import pytest

from demur.service.monitoring.audit_file import AuditFileError, RotatedFile

LINE = b"0123456789\n"


def test_old_files_are_renamed_and_the_oldest_deleted(tmp_path: Path) -> None:
    file = RotatedFile(tmp_path / "audit", most_bytes=6 * len(LINE), kept=2)
    for number in range(9):
        file.append(b"%d\n" % number * 11)
    file.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["audit", "audit.1", "audit.2"]
    texts = [(tmp_path / name).read_text().split() for name in ("audit.2", "audit.1", "audit")]
    assert texts == [["7"] * 11, ["8"] * 11, []]


def test_what_was_there_stays_and_only_the_owner_reads(tmp_path: Path) -> None:
    path = tmp_path / "audit"
    for _ in range(2):
        file = RotatedFile(path, most_bytes=2000, kept=1)
        file.append(LINE)
        file.close()
    assert path.read_bytes() == 2 * LINE
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_another_program_may_rename_it(tmp_path: Path) -> None:
    path = tmp_path / "audit"
    file = RotatedFile(path, most_bytes=2000, kept=1)
    file.append(LINE)
    path.rename(tmp_path / "moved")
    file.append(LINE)
    path.unlink()
    file.append(LINE)
    file.close()
    assert (tmp_path / "moved").read_bytes() == path.read_bytes() == LINE


def append_many(path: Path, letter: bytes) -> None:
    file = RotatedFile(path, most_bytes=202_000, kept=100)
    for number in range(300):
        file.append(letter * 20 + b"%d\n" % number)
    file.close()


def test_several_processes_lose_nothing(tmp_path: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    processes = [spawn.Process(target=append_many, args=(tmp_path / "audit", letter)) for letter in (b"a", b"b", b"c")]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    files = list(tmp_path.iterdir())
    assert len(files) > 5
    lines = [line for path in files for line in path.read_text().splitlines()]
    assert sorted(lines) == sorted(letter * 20 + str(number) for letter in "abc" for number in range(300))


@pytest.mark.parametrize("renamed", [False, True])
def test_a_line_that_was_cut_off_spoils_no_other(tmp_path: Path, renamed: bool) -> None:
    """As on a full disk: the limit on a file's size cuts a write off."""
    path = tmp_path / "audit"
    file = RotatedFile(path, most_bytes=10**6, kept=1)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (15, hard))
    try:
        file.append(LINE)
        with pytest.raises(OSError, match="No space left"):
            file.append(LINE)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    if renamed:
        path.rename(tmp_path / "moved")
    file.append(LINE)
    file.close()
    cut = LINE + LINE[:4]
    assert path.read_bytes() == (LINE if renamed else cut + b"\n" + LINE)
    assert not renamed or (tmp_path / "moved").read_bytes() == cut


def test_a_line_that_another_process_left_cut_off_spoils_none(tmp_path: Path) -> None:
    """Of a run before this one, or of another worker."""
    path = tmp_path / "audit"
    path.write_bytes(LINE[:4])
    file = RotatedFile(path, most_bytes=10**6, kept=1)
    file.append(LINE)
    with path.open("ab") as other:
        other.write(LINE + LINE[:3])
    file.append(LINE)
    file.close()
    assert path.read_bytes() == LINE[:4] + b"\n" + LINE + LINE + LINE[:3] + b"\n" + LINE


def test_another_process_may_rename_it_while_its_end_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "audit"
    file = RotatedFile(path, most_bytes=10**6, kept=1)
    file.append(LINE)
    with path.open("ab") as other:
        other.write(LINE)
    path.rename(tmp_path / "moved")
    path.touch()
    monkeypatch.setattr(file, "_renamed", lambda: False)  # as a moment before
    file.append(LINE)
    file.close()
    assert (tmp_path / "moved").read_bytes() == 3 * LINE


def test_where_it_cannot_be_renamed_it_grows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a file that is mounted by itself: what is written is not lost."""
    path = tmp_path / "audit"
    file = RotatedFile(path, most_bytes=3 * len(LINE), kept=1)

    def refuse(*_: object) -> None:
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))

    with monkeypatch.context() as mounted:
        mounted.setattr(Path, "replace", refuse)
        for _ in range(4):
            file.append(LINE, b"state\n")
    assert path.read_bytes() == b"state\n" + 4 * LINE
    file.append(LINE)
    file.close()
    assert (tmp_path / "audit.1").read_bytes() == b"state\n" + 5 * LINE


@pytest.mark.parametrize("name", ["missing/audit", "folder"])
def test_what_cannot_be_written_is_an_error(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(AuditFileError, match=r"cannot be written \(.*\), expected a file in a folder that exists"):
        RotatedFile(tmp_path / name, most_bytes=10, kept=1)
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_a_pipe_that_nobody_reads_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "audit")
    with pytest.raises(AuditFileError, match="cannot be written"):
        RotatedFile(tmp_path / "audit", 1000, 1)
    reader = os.open(tmp_path / "audit", os.O_RDONLY | os.O_NONBLOCK)
    file = RotatedFile(tmp_path / "audit", 1000, 1)
    file.append(b"a line\n")
    assert os.read(reader, 100) == b"a line\n"
    file.close()
    os.close(reader)
