"""Folders that hold bundles: which there are, and what tells that the content of one has changed."""

import itertools
import os
from pathlib import Path

from service.bundle import MANIFEST

# Names, and of each what changes with its content; or why the folder cannot be looked into.
Stamp = tuple[tuple[str | int, ...], ...]
GONE = (FileNotFoundError, NotADirectoryError)
MAX_FILES = 1000  # a bundle has five


def bundles_in(models_folder: Path) -> list[Path]:
    """Folders with a manifest in it, or one level deeper; hidden ones are somebody's work in progress.

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
    return [folder / name for name in names if not name.startswith(".") and _is_folder(folder / name)]


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # behind a link that leads where this process may not look
        return True


def _has_manifest(folder: Path) -> bool:
    """Whether anything is there by that name. A link that leads nowhere, or a folder that may not be looked into, is a
    bundle to be refused: without, it would look like one that was removed."""
    try:
        os.lstat(folder / MANIFEST)
    except GONE:
        return False
    except OSError:
        pass
    return True


def stamp_of(folder: Path) -> Stamp | None:
    """Inode, times and size of every file: a bundle may be replaced as a whole, or be copied here file by file.

    None without a manifest. Links are looked at themselves: no bundle has any, and an editor's lock file is one.
    """
    try:
        with os.scandir(folder) as files:
            some = itertools.islice(files, MAX_FILES)
            marks: list[tuple[str | int, ...]] = [
                (file.name, *_marks(file.stat(follow_symlinks=False))) for file in some
            ]
        manifest = _marks(os.lstat(folder / MANIFEST))
    except GONE:  # or it is being replaced
        return None
    except OSError as error:
        return ((f"cannot be looked into: {error.strerror}",),)
    return ((MANIFEST, *manifest), *sorted(marks, key=lambda mark: mark[0]))


def _marks(status: os.stat_result) -> tuple[int, ...]:
    """The time of the last modification can be set at will, that of the last change cannot."""
    return status.st_ino, status.st_mtime_ns, status.st_ctime_ns, status.st_size
