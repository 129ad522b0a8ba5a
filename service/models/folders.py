"""Find the folders that hold bundles, and tell when the content of one has changed."""

import itertools
import os
from pathlib import Path

from ..bundle import MANIFEST
from ..format.files import is_ignored

# The files with their inodes, times and sizes; or the reason why the folder cannot be read.
Stamp = tuple[tuple[str | int, ...], ...]
GONE = (FileNotFoundError, NotADirectoryError)
MAX_FILES = 1000  # a bundle has five


def bundles_in(models_folder: Path) -> list[Path]:
    """Folders with a manifest, here or one level deeper; hidden ones are work in progress.

    Raises `OSError` where `models_folder` itself cannot be read.
    """
    found = []
    next(models_folder.iterdir(), None)
    for folder in _subfolders(models_folder):
        found += [folder] if _has_manifest(folder) else [each for each in _subfolders(folder) if _has_manifest(each)]
    return found


def _subfolders(folder: Path) -> list[Path]:
    try:
        names = sorted(os.listdir(folder))  # noqa: PTH208  names only
    except OSError:
        return []
    return [folder / name for name in names if not is_ignored(name) and _is_folder(folder / name)]


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # a link to a place that this process may not read
        return True


def _has_manifest(folder: Path) -> bool:
    """Whether the folder has an entry of that name. A dangling link, or a folder that may not be read, counts as a
    bundle (and is then refused): otherwise it would look as if it had been removed."""
    try:
        os.lstat(folder / MANIFEST)
    except GONE:
        return False
    except OSError:
        pass
    return True


def stamp_of(folder: Path) -> Stamp | None:
    """Inode, times and size of every file: a bundle may be replaced as a whole, or copied here file by file.

    None without a manifest. A link counts as what it leads to; an editor's lock file leads nowhere.
    """
    try:
        with os.scandir(folder) as files:
            some = itertools.islice(files, MAX_FILES)
            marks: list[tuple[str | int, ...]] = [(file.name, *_marks(_status(file))) for file in some]
        manifest = _marks(os.lstat(folder / MANIFEST))
    except GONE:  # or being replaced
        return None
    except OSError as error:
        return ((f"cannot be read: {error.strerror}",),)
    return ((MANIFEST, *manifest), *sorted(marks, key=lambda mark: mark[0]))


def _status(file: os.DirEntry[str]) -> os.stat_result:
    try:
        return file.stat()
    except OSError:
        return file.stat(follow_symlinks=False)


def _marks(status: os.stat_result) -> tuple[int, ...]:
    """The modification time can be set at will, the change time cannot."""
    return status.st_ino, status.st_mtime_ns, status.st_ctime_ns, status.st_size
