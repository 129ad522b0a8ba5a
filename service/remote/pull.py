"""Bundles from elsewhere -> folders here: the manifest first, then what it lists, checked before it takes its place."""

import contextlib
import hashlib
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from ..bundle import MAX_MANIFEST_BYTES, MAX_SIGNATURE_BYTES, Manifest, Verify, is_bundle_at, read_bundle, read_head
from ..format.files import (
    COPY_AGAIN,
    MANIFEST,
    README,
    SIGNATURE,
    BundleError,
    explained_writing,
    staged_bundle,
    write_file,
)
from .place import Place, in_time
from .places import place_of

MAX_README_BYTES = 2**20
Progress = Callable[[int, int], None]
"""Called with the bytes that are here, and with those that there will be."""


def unseen(done: int, total: int) -> None:
    """Show nothing."""


def pull(
    uri: str, out: Path, verify: Verify | None = None, progress: Progress = unseen, *, hashed: bool = True
) -> Manifest:
    """Copy the bundle at `uri` to the folder `out`, atomically, in place of a bundle there.

    Nothing is copied where `out` holds it already: by the hashes of its files, or without `hashed` by their sizes,
    which a service that looks every few seconds can afford. verify: checks the signature, before anything but the
    manifest is fetched. Only what the manifest lists is fetched, up to the size that it says. Raises `BundleError`, and
    `UnreachableError`, one of these, where the place does not answer, or not whole in a time that grows with the sizes.
    """
    with place_of(uri) as place, _beside(out) as head:
        with _said_of(uri, head):
            manifest = in_time(uri, 0, lambda: _head(place, uri, head, verify))
        if not _holds(out, head, manifest, hashed):
            with staged_bundle(out) as folder, _said_of(uri, folder):
                size = sum(entry.bytes for entry in manifest.files.values())
                in_time(uri, size, lambda: _fetch_files(place, folder, manifest, size, progress))
                for name in (SIGNATURE, MANIFEST):
                    if (head / name).exists():
                        write_file(folder / name, (head / name).read_bytes())
                read_bundle(folder, verify)
    return manifest


@contextlib.contextmanager
def _beside(out: Path) -> Iterator[Path]:
    """A folder for what is fetched first, on the disk of `out`."""
    with explained_writing(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".head-", dir=out.parent, ignore_cleanup_errors=True) as scratch:
            yield Path(scratch)


def _head(place: Place, uri: str, folder: Path, verify: Verify | None) -> Manifest:
    """Fetch manifest and signature into the folder, and check them."""
    if not place.fetch(MANIFEST, folder / MANIFEST, MAX_MANIFEST_BYTES):
        raise BundleError(uri, f"found no bundle: there is no {MANIFEST}", "check the name, or push a bundle there")
    place.fetch(SIGNATURE, folder / SIGNATURE, MAX_SIGNATURE_BYTES)
    return read_head(folder, verify)


def _holds(out: Path, head: Path, manifest: Manifest, hashed: bool) -> bool:
    """Whether `out` is the same bundle, with the same signature."""
    try:
        for name in (MANIFEST, SIGNATURE):
            if _content(out / name) != _content(head / name):
                return False
        if not hashed:
            return all((out / name).stat().st_size == entry.bytes for name, entry in manifest.files.items())
        return is_bundle_at(out, _sha256(head / MANIFEST), manifest.files)
    except (BundleError, OSError):
        return False


def _content(file: Path) -> bytes | None:
    return file.read_bytes() if file.exists() else None


def _sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _fetch_files(place: Place, folder: Path, manifest: Manifest, total: int, progress: Progress) -> None:
    done = 0

    def report(count: int) -> None:
        nonlocal done
        done += count
        progress(done, total)

    for name, entry in manifest.files.items():
        if not place.fetch(name, folder / name, entry.bytes, report):
            raise BundleError(folder / name, "missing file", "push the bundle again")
    with contextlib.suppress(BundleError):  # a page for people, and no part of the bundle
        place.fetch(README, folder / README, MAX_README_BYTES)


@contextlib.contextmanager
def _said_of(uri: str, folder: Path) -> Iterator[None]:
    """Errors that name files in the folder name them at the URI."""
    try:
        yield
    except BundleError as error:
        if not error.file.startswith(str(folder)):
            raise
        remedy = "push the bundle again" if error.remedy == COPY_AGAIN else error.remedy
        raise BundleError(uri + error.file.removeprefix(str(folder)), error.problem, remedy) from None
