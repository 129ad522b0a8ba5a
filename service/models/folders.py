"""Folders that hold bundles: which there are, and what tells that the content of one has changed."""

import os
from pathlib import Path

from service.bundle import MANIFEST, BundleError, read_manifest

Stamp = tuple[tuple[str | int, ...], ...]


def bundles_in(models_folder: Path) -> list[Path]:
    """Folders with a manifest in it, or one level deeper; hidden ones are somebody's work in progress.

    Raises `OSError` where `models_folder` itself cannot be read.
    """
    found = []
    next(models_folder.iterdir(), None)
    for folder in _subfolders(models_folder):
        found += (
            [folder]
            if (folder / MANIFEST).is_file()
            else [deeper for deeper in _subfolders(folder) if (deeper / MANIFEST).is_file()]
        )
    return found


def _subfolders(folder: Path) -> list[Path]:
    try:
        names = sorted(os.listdir(folder))  # noqa: PTH208  names only
    except OSError:
        return []
    return [folder / name for name in names if not name.startswith(".") and (folder / name).is_dir()]


def digest_of(folder: Path) -> str:
    """What the manifest says of itself; "" where it cannot be read."""
    try:
        return read_manifest(folder)[1]
    except BundleError:
        return ""


def stamp_of(folder: Path) -> Stamp | None:
    """Inode, time and size of every file: a bundle may be replaced as a whole, or be copied here file by file.

    None without a manifest.
    """
    try:
        files = sorted(os.scandir(folder), key=lambda file: file.name)
        marks = [(file.name, *_marks(file.stat())) for file in files]
    except OSError:  # it is being replaced
        return None
    return tuple(marks) if any(name == MANIFEST for name, *_ in marks) else None


def _marks(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_ino, status.st_mtime_ns, status.st_size
