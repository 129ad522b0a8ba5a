"""URIs of bundles -> places, and the place that a folder of this machine is, such as a mounted network file system."""

import contextlib
import re
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import BinaryIO

from ..format.files import BLOCK_BYTES, DISK_FULL, BundleError, check_new, staged_bundle
from . import hub, registry
from .object_store import STORES, ObjectStore
from .place import Place, Report, opened, unheard, write_blocks


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


FORMS = (hub.FORM, *(f"{scheme}://BUCKET/PREFIX" for scheme in STORES), registry.FORM)
BUCKET = re.compile(
    r"(?P<bucket>[A-Za-z0-9][A-Za-z0-9._-]*)/(?P<prefix>(?!\.{1,2}(?:/|$))[^/?#,\s]+(?:/(?!\.{1,2}(?:/|$))[^/?#,\s]+)*)/?"
)


def is_uri(text: str) -> bool:
    """Whether the text names a bundle elsewhere, and no folder."""
    return "://" in text


@contextlib.contextmanager
def place_of(text: str) -> Iterator[Place]:
    """Where the URI or the folder leads; raises `BundleError` for a URI of another form."""
    place = _place(text) if is_uri(text) else FolderPlace(text)
    try:
        yield place
    finally:
        place.close()


def _place(uri: str) -> Place:
    scheme, _, rest = uri.partition("://")
    if scheme == "hf":
        return hub.Hub(rest)
    if scheme == "oci":
        return registry.Registry(rest)
    found = BUCKET.fullmatch(rest)
    if scheme not in STORES or found is None:
        raise BundleError(uri, "found another form of URI", f"give a folder, or one of {', '.join(FORMS)}")
    return ObjectStore(scheme, found["bucket"], found["prefix"])
