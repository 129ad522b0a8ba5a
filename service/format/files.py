"""The folder of a bundle on disk: read safely, published atomically. `demur.service.bundle` knows the files'
content."""

import contextlib
import ctypes
import errno
import fcntl
import hashlib
import os
import re
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, TypeVar

from .text import printable

MANIFEST, MODEL = "manifest.json", "model.onnx"
POSTERIOR, CALIBRATION = "posterior.safetensors", "calibration.safetensors"
REPORT, TOKENIZER, SIGNATURE = "report.html", "tokenizer.json", "signature.json"
README = "README.md"  # of people, and so neither listed nor signed
REQUIRED_FILES = frozenset({MODEL, POSTERIOR, CALIBRATION})
OPTIONAL_FILES = frozenset({REPORT, TOKENIZER})
UNLISTED_FILES = frozenset({MANIFEST, SIGNATURE})  # a manifest can name neither itself nor what is made from it
BESIDE = frozenset({README, "lost+found"})  # what hubs and file systems put beside the files
REPLACED_TRIES = 10
BLOCK_BYTES = 2**20
DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})  # or the user's share of it

STAGING = ".staging-"
COPY_AGAIN = "fit the bundle again, or copy it whole"
ELSEWHERE = "choose another destination"

T = TypeVar("T")


class BundleError(ValueError):
    """A bundle was refused. `file` is the file at fault; the message names what was found and the remedy."""

    def __init__(self, file: Path | str, problem: str, remedy: str = COPY_AGAIN) -> None:
        self.file, self.remedy = str(file), remedy
        self.problem = printable(" ".join(problem.split()))[:1000]  # one line, whatever a hostile file holds
        super().__init__(f"{printable(self.file)}: {self.problem} (remedy: {printable(remedy)})")


def is_ignored(name: str) -> bool:
    """Whether what is called so is none of a bundle's and never read: hidden, a hub's page, or of the file system."""
    return name.startswith(".") or name in BESIDE


def write_file(path: Path, data: bytes) -> None:
    """Write and flush to disk."""
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def replace_file(path: Path, data: bytes, scratch: Path | None = None) -> None:
    """Write `path` atomically: it holds all of `data` or what it held before. Raises `OSError`.

    scratch: where the temporary file stands, on the same file system; by default beside `path`.
    """
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=scratch or path.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        write_file(temporary, data)
        temporary.chmod(0o644)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def staged_bundle(out: Path) -> Iterator[Path]:
    """A temporary folder beside `out` that becomes `out` when the block ends well and vanishes when it fails.

    An existing bundle at `out` is replaced; anything else there is refused with `BundleError` before any work. A full
    disk is a `BundleError` too. Leftovers of a killed process are removed.
    """
    out = Path(os.path.abspath(out))
    check_destination(out)
    with explained_writing(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(out)
        with _locked_folder(out) as staging:
            yield staging
            staging.chmod(0o755)
            for file in staging.iterdir():
                file.chmod(0o644)
            check_destination(out)
            _publish(staging, out)


@contextlib.contextmanager
def explained_writing(out: Path) -> Iterator[None]:
    """`BundleError` for `OSError`: what was to be written to `out` could not be."""
    try:
        yield
    except OSError as error:
        problem = f"could not be written ({error.strerror or error})"
        remedy = f"free some space, or {ELSEWHERE}" if error.errno in DISK_FULL else ELSEWHERE
        raise BundleError(out, problem, remedy) from error


@contextlib.contextmanager
def _locked_folder(out: Path) -> Iterator[Path]:
    """A new folder beside `out`, locked while its process lives, and removed with the block."""
    staging, handle = _new_locked(out)
    try:
        yield staging
    finally:
        shutil.rmtree(staging, ignore_errors=True)
        os.close(handle)


def _new_locked(out: Path) -> tuple[Path, int]:
    """A new folder and its locked handle; another process may take one that is not locked yet for abandoned."""
    while True:
        staging = Path(tempfile.mkdtemp(prefix=f".{out.name}{STAGING}", dir=out.parent))
        try:
            handle = os.open(staging, os.O_RDONLY)
        except FileNotFoundError:
            continue
        fcntl.flock(handle, fcntl.LOCK_EX)
        if os.fstat(handle).st_nlink and staging.exists():
            return staging, handle
        os.close(handle)


def _remove_abandoned(out: Path) -> None:
    """Remove staging folders of `out` that no living process holds."""
    for name in os.listdir(out.parent):  # noqa: PTH208  names only
        if not name.startswith(f".{out.name}{STAGING}"):
            continue
        with contextlib.suppress(OSError):
            handle = os.open(out.parent / name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(out.parent / name, ignore_errors=True)
            finally:
                os.close(handle)


def check_destination(out: Path) -> None:
    """Refuse a destination that holds something other than a bundle (or nothing)."""
    if (around := bundle_around(out)) is not None:
        raise BundleError(out, f"lies in the bundle {around}, which may hold nothing else", "choose a place outside it")
    if not os.path.lexists(out):
        return
    if out.is_symlink():
        raise BundleError(out, f"is a link to {out.readlink()}", "give the folder itself")
    if not out.is_dir():
        raise BundleError(out, "exists and is not a folder", "choose another destination")
    with_folder(out, _check_is_bundle)


def _check_is_bundle(out: "Folder") -> None:
    names, known = out.names(), REQUIRED_FILES | OPTIONAL_FILES | UNLISTED_FILES | {README}
    if names and (MANIFEST not in names or names - known):
        raise BundleError(out.path, "exists and is not a bundle; nothing was overwritten", "choose another destination")


def bundle_around(path: Path) -> Path | None:
    """The bundle in whose folder, or below it, `path` lies; None outside of any."""
    above = Path(os.path.realpath(path)).parents
    return next((folder for folder in above if all(os.path.lexists(folder / name) for name in (MANIFEST, MODEL))), None)


def misplaced_file(out: Path, read: Sequence[Path] = ()) -> str | None:
    """What is wrong with `out` as the place of a new file: it is a folder, lies in a bundle, or is one of the files
    that are `read`; None for nothing."""
    if (around := bundle_around(out)) is not None:
        return f"lies in the bundle {around}, which may hold nothing else; choose a place outside it"
    if os.path.lexists(out) and not out.is_file():
        return "exists and is no file; give the name of a new file"
    if any(os.path.realpath(out) == os.path.realpath(file) for file in read):
        return "is the file that is read, which would be lost; give another name"
    return None


def check_new(out: Path, replace: bool) -> None:
    """`check_destination`, which refuses an existing bundle too unless it is to be replaced."""
    check_destination(out)
    if not replace and os.path.lexists(out / MANIFEST):
        raise BundleError(
            out, "holds a bundle", "remove it, or choose another destination; a command replaces it with --force"
        )


def check_writable(out: Path) -> None:
    """`BundleError` where no folder can be made beside `out`, or where it could not take the place of `out`. Call it
    before hours of work."""
    parent = Path(os.path.abspath(out)).parent
    while not parent.exists() and parent != parent.parent:
        parent = parent.parent
    try:
        os.rmdir(tempfile.mkdtemp(prefix=f".{out.name}.", dir=parent))  # noqa: PTH106  a name, not a path
    except OSError as error:
        remedies = {errno.ENAMETOOLONG: "give a shorter name", errno.ENOTDIR: f"{parent} is a file: choose a folder"}
        other = f"make {parent} writable, or choose another destination"
        remedy = remedies.get(error.errno or 0, other)
        raise BundleError(out, f"cannot be written ({error.strerror})", remedy) from None
    if _is_mount(out):
        remedy = f"mount the folder that is to hold the bundle, and choose a name in it, such as {out / 'bundle'}"
        raise BundleError(out, "is a mount point, which no other folder can replace", remedy)


def _is_mount(path: Path) -> bool:
    """Whether a file system is mounted at the path, also part of the same one (`mount --bind`, `docker run -v`)."""
    with contextlib.suppress(OSError):  # Linux lists them, with \\040 for a space, and so on
        lines = Path("/proc/self/mountinfo").read_bytes().splitlines()
        places = {re.sub(rb"\\([0-7]{3})", lambda octal: bytes([int(octal[1], 8)]), line.split()[4]) for line in lines}
        if os.fsencode(os.path.realpath(path)) in places:
            return True
    return os.path.ismount(path)


def _publish(staging: Path, out: Path) -> None:
    """Make `staging` become `out`; the old content of `out` goes where `staging` was.

    Linux exchanges two folders in one step. Elsewhere the old one is moved aside first, and back if the second
    rename fails: for an instant there is no bundle, but never half of one.
    """
    if not out.exists():
        try:
            os.rename(staging, out)
            return
        except OSError:
            if not out.exists():
                raise  # or else another process was first
    if not _exchange(staging, out):
        aside = Path(tempfile.mkdtemp(prefix=f".{out.name}.old.", dir=out.parent))
        try:
            os.rename(out, aside / out.name)
            try:
                os.rename(staging, out)
            except BaseException:
                os.rename(aside / out.name, out)
                raise
        finally:
            shutil.rmtree(aside, ignore_errors=True)


def _exchange(first: Path, second: Path) -> bool:
    """Swap two paths atomically with Linux's renameat2(RENAME_EXCHANGE); False where that cannot be had."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None) if sys.platform == "linux" else None
    at_cwd, exchange = -100, 2
    return rename is not None and rename(at_cwd, os.fsencode(first), at_cwd, os.fsencode(second), exchange) == 0


@dataclass(frozen=True)
class Folder:
    """An open folder: `path` for messages, `handle` for access."""

    path: Path
    handle: int

    def names(self) -> set[str]:
        """The names of the files in the folder."""
        return set(os.listdir(self.handle))  # noqa: PTH208  a handle, not a path

    def read(self, name: str, limit: int) -> bytes:
        """The bytes of a regular file (no device or pipe), or of one that a link leads to, of at most `limit` bytes."""
        with self._open(name, limit) as (stream, size):
            try:
                return stream.read(size + 1)
            except (MemoryError, OverflowError):
                raise BundleError(self.path / name, f"found {size} bytes, more than there is memory for") from None

    def hash(self, name: str, limit: int) -> tuple[int, str]:
        """Size and SHA-256 (hexadecimal) of such a file, read block by block."""
        with self._open(name, limit) as (stream, _):
            found, size = hashlib.sha256(), 0
            while size <= limit and (block := stream.read(BLOCK_BYTES)):
                found.update(block)
                size += len(block)
            return size, found.hexdigest()

    def _bundles_inside(self) -> list[Path]:
        with contextlib.suppress(OSError):
            return sorted(folder for folder in self.path.iterdir() if (folder / MANIFEST).is_file())
        return []

    @contextlib.contextmanager
    def _open(self, name: str, limit: int) -> Iterator[tuple[BinaryIO, int]]:
        """The file and its size."""
        file, flags = self.path / name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            _check_regular(file, os.stat(name, dir_fd=self.handle))  # some devices act when they are opened
            descriptor = os.open(name, flags, dir_fd=self.handle)
        except FileNotFoundError:
            inside = self._bundles_inside() if name == MANIFEST else []
            if inside:
                problem, remedy = f"is no bundle, but holds {len(inside)}", f"name one of them, such as {inside[0]}"
                raise BundleError(self.path, problem, remedy) from None
            raise BundleError(file, "missing file") from None
        except OSError as error:
            raise BundleError(file, f"cannot be read as a regular file ({error.strerror})") from error
        try:
            status = os.fstat(descriptor)
            _check_regular(file, status)
            if status.st_size > limit:
                raise BundleError(file, f"found {status.st_size} bytes, expected at most {limit}")
            with open(descriptor, "rb", closefd=False) as stream:
                yield stream, status.st_size
        finally:
            os.close(descriptor)


def _check_regular(file: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise BundleError(file, "is not a regular file")


def with_folder(path: Path, read: Callable[[Folder], T]) -> T:
    """Run `read` on the open folder, and again where it fails because the folder was replaced meanwhile."""
    for attempt in range(REPLACED_TRIES):
        try:
            handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            found, remedy = f"no such folder ({reason})", "give the path of a bundle written by `demur fit`"
            if isinstance(error, PermissionError):
                found, remedy = f"cannot be read ({reason})", "let the user of this process read the folder"
            raise BundleError(f"{path!s:.500}", found, remedy) from None
        try:
            return read(Folder(path, handle))
        except BundleError:
            if attempt == REPLACED_TRIES - 1 or not _was_replaced(path, handle):
                raise
        finally:
            os.close(handle)
    raise AssertionError("unreachable: the last attempt returns or raises")


def _was_replaced(path: Path, handle: int) -> bool:
    try:
        return not os.path.samestat(path.stat(), os.fstat(handle))
    except OSError:
        return False
