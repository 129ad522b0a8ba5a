"""A folder of this machine as a place of bundles, such as one that a network file system is mounted at."""

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import BinaryIO

from ..format.files import BLOCK_BYTES, DISK_FULL, BundleError, check_new, staged_bundle
from .place import Report, opened, unheard, write_blocks


class FolderPlace:
    """A bundle at `path`."""

    def __init__(self, path: str) -> None:
        self.path = Path(path)

    def fetch(self, name: str, file: Path, limit: int, report: Report = unheard) -> bool:
        """Copy one file."""
        source = self.path / name
        try:
            if not source.exists():
                return False
            if not source.is_file():
                raise BundleError(source, "is not a regular file")
            with open(source, "rb") as stream:
                write_blocks(_blocks(stream), file, str(source), limit, report)
        except OSError as error:
            if error.errno in DISK_FULL:  # of the destination
                raise
            raise BundleError(source, f"cannot be read ({error.strerror or error})") from error
        return True

    def store(self, files: Mapping[str, Path], replace: bool) -> str:
        """Copy the files, all or none."""
        check_new(self.path, replace)
        with staged_bundle(self.path) as folder:
            for name, file in files.items():
                with opened(file) as stream:
                    write_blocks(_blocks(stream), folder / name, str(file), file.stat().st_size, unheard)
        return str(self.path)

    def close(self) -> None:
        """Nothing is held."""


def _blocks(stream: BinaryIO) -> Iterator[bytes]:
    return iter(partial(stream.read, BLOCK_BYTES), b"")
