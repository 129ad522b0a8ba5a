"""Where lines go that several processes write: a file that is renamed when it has grown large, or standard output."""

import contextlib
import errno
import fcntl
import os
from pathlib import Path

from ..format.files import bundle_around

PRIVATE = 0o600
LOOKED_AT_BYTES = 1000
KEPT = 9  # renamed files
STANDARD_OUTPUT = Path("-")


class AuditFileError(ValueError):
    """The file of the audit trail cannot be used."""


class RotatedFile:
    """Appends to `path`, readable by its owner alone. With its part of `most_bytes`, which all files take together, it
    becomes `path`.1, that `path`.2, and so on, up to `kept` of them.

    Every process that has the file open may append and rename: lines are written whole, at the file's end, and a
    process notices before each write that another one, or a program such as logrotate, has renamed the file or cut it
    short. Raises `AuditFileError` where it cannot be opened at first.
    """

    def __init__(self, path: Path, most_bytes: int, kept: int = KEPT) -> None:
        self.path, self._each_bytes, self.kept = path, most_bytes // (kept + 1), kept
        self._stated, self._size = False, 0  # whether the file has the state, and its size then
        try:
            self._file = self._open()
        except OSError as error:
            raise AuditFileError(
                f"{path}: cannot be written ({error.strerror}), expected a file in a folder that exists and that the "
                "service may write to; check DEMUR_AUDIT_FILE"
            ) from None

    def append(self, lines: bytes, state: bytes = b"") -> None:
        """Write whole lines; raises `OSError`. state: lines to be written before them where the file has none of this
        process yet, or some were lost."""
        stated, self._stated = self._stated, False  # until all is written
        if self._renamed():
            self._reopen()
            stated = False
        beginning = b"" if stated and os.fstat(self._file).st_size >= self._size else state
        text = b"\n" * self._torn() + beginning + lines
        if os.write(self._file, text) < len(text):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._size, self._stated = os.fstat(self._file).st_size, True
        if self._size >= self._each_bytes:
            with contextlib.suppress(OSError):  # of a mount, or in a folder of others: the file grows
                self._rename()
                self._stated = False

    def close(self) -> None:
        """Release the file."""
        os.close(self._file)

    def _open(self) -> int:
        """A pipe without a reader is an error, and no wait for one."""
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
        file = os.open(self.path, flags, PRIVATE)
        os.set_blocking(file, True)
        return file

    def _reopen(self) -> None:
        fresh = self._open()
        os.close(self._file)
        self._file = fresh

    def _torn(self) -> bool:
        """Whether the last line lacks its end, as a full disk leaves it, of this process or of another one."""
        if os.fstat(self._file).st_size not in (0, self._size):
            with contextlib.suppress(OSError), self.path.open("rb") as file:  # it may be renamed at this moment
                file.seek(-1, os.SEEK_END)
                return file.read(1) != b"\n"
        return False

    def _renamed(self) -> bool:
        try:
            return not os.path.samestat(self.path.stat(), os.fstat(self._file))
        except FileNotFoundError:
            return True

    def _rename(self) -> None:
        """The lock on the open file makes one process rename it, and the others find that it has been renamed."""
        fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            if not self._renamed():
                for number in range(self.kept, 0, -1):
                    newer = self._old(number - 1)
                    if newer.exists():
                        newer.replace(self._old(number))
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)
        self._reopen()

    def _old(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}") if number else self.path


class StandardOutput:
    """Each line in one piece, so that those of other processes and of the log stay whole: a pipe takes up to 4,096
    bytes so."""

    def __init__(self, descriptor: int = 1) -> None:
        self._descriptor = descriptor

    def append(self, lines: bytes, _state: bytes = b"") -> None:
        """Write whole lines; raises `OSError`. Nobody begins it anew, so there is no state to repeat."""
        for line in lines.splitlines(keepends=True):
            while line:
                line = line[os.write(self._descriptor, line) :]

    def close(self) -> None:
        """Standard output stays open."""


def open_audit(path: Path, most_bytes: int) -> RotatedFile | StandardOutput:
    """What `-` or the path names; raises `AuditFileError`."""
    if path == STANDARD_OUTPUT:
        return StandardOutput()
    check_audit_file(path)
    return RotatedFile(path, most_bytes)


def check_audit_file(path: Path) -> None:
    """`AuditFileError` for a place in a bundle, and for a file that begins as no audit trail does: it would be
    renamed, and deleted in the end."""
    if (around := bundle_around(path)) is not None:
        raise AuditFileError(f"{path}: lies in the bundle {around}, which may hold nothing else; give another file")
    if not path.is_file():
        return
    try:
        with open(path, "rb") as file:
            beginning = file.read(LOOKED_AT_BYTES).lstrip()
    except OSError:  # opening it for writing tells more
        return
    if beginning and not beginning.startswith(b"{"):
        raise AuditFileError(f"{path}: found a file that is no audit trail, whose lines are JSON; give another file")
