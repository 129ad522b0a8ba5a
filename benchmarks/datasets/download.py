"""Download a file once: checked, then kept in a cache."""

import hashlib
import math
import os
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import httpx

from benchmarks.core.folders import CACHE
from benchmarks.core.harness import MeasurementError
from probity.offline.recipes.progress_bars import Bars
from probity.offline.runtime.progress import Track, silent

CHUNK = 1 << 20  # bytes
LARGE = 16 * CHUNK  # bytes, from which on progress is shown
TIMEOUT = 30.0  # seconds without an answer
# Bytes as they are stored: a server that compresses on the way would change the checksum.
HEADERS = {"Accept-Encoding": "identity", "User-Agent": "probity-benchmarks"}


class DataError(MeasurementError):
    """Data that are neither here nor to be had, or not what they should be."""


class _Unusable(Exception):
    """What one address sent is not the file."""


@dataclass(frozen=True)
class RemoteFile:
    """A file on the web, and where it goes below a folder of data: `folder`/`name`.

    urls: the original first, then mirrors. checksums: by algorithm, as in hashlib; each of them must match.
    """

    folder: str
    name: str
    urls: tuple[str, ...]
    checksums: Mapping[str, str]
    size: int  # bytes

    @property
    def path(self) -> Path:
        """Relative to a folder of data."""
        return Path(self.folder) / self.name


def cache() -> Path:
    """The folder of the downloads: PROBITY_DATA_CACHE, or benchmarks/cache/datasets."""
    return Path(os.environ.get("PROBITY_DATA_CACHE") or CACHE / "datasets")


def fetch(file: RemoteFile) -> Path:
    """The file in the cache, downloaded first where it is not there; says so in one line. Raises `DataError`."""
    path = cache() / file.path
    if path.is_file() and path.stat().st_size == file.size:
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    failures = []
    for url in file.urls:
        print(f"downloading {file.path} ({file.size / 1e6:.1f} MB) from {url} to {path.parent}", flush=True)
        try:
            _download(file, url, path)
        except (httpx.HTTPError, _Unusable) as error:
            failures.append(f"{url}: {error or type(error).__name__}")
        else:
            return path
    raise DataError(
        f"{file.path}: not downloaded. {'; '.join(failures)}. Try again with a connection to these addresses, or name "
        f"a folder that holds {file.path} in PROBITY_DATA_DIR"
    )


def _download(file: RemoteFile, url: str, path: Path) -> None:
    """To a file of its own first, which gets its name when it is whole and right."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=f"-{file.name}")
    hashes = {algorithm: hashlib.new(algorithm, usedforsecurity=False) for algorithm in file.checksums}
    written = 0
    try:
        with os.fdopen(handle, "wb") as stream:
            for chunk in _chunks(file, url):
                written += stream.write(chunk)
                for found in hashes.values():
                    found.update(chunk)
        _check(file, written, {algorithm: found.hexdigest() for algorithm, found in hashes.items()})
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    finally:
        Path(temporary).unlink(missing_ok=True)


def _chunks(file: RemoteFile, url: str) -> Iterable[bytes]:
    """The bytes at an address, with a bar for a large file; no more than the file has, and a chunk."""
    with httpx.stream("GET", url, headers=HEADERS, timeout=TIMEOUT, follow_redirects=True) as response:
        response.raise_for_status()
        if file.size < LARGE:
            yield from _bounded(file, response, silent)
        else:
            with Bars() as track:
                yield from _bounded(file, response, track)


def _bounded(file: RemoteFile, response: httpx.Response, track: Track) -> Iterable[bytes]:
    received = 0
    for chunk in track(response.iter_raw(CHUNK), f"download {file.name}", math.ceil(file.size / CHUNK)):
        yield chunk
        received += len(chunk)
        if received > file.size:
            return


def _check(file: RemoteFile, size: int, found: Mapping[str, str]) -> None:
    """Raises `_Unusable` where size or checksums differ."""
    if size != file.size:
        least = "more than " if size > file.size else ""
        raise _Unusable(f"found {least}{min(size, file.size):,} bytes, expected {file.size:,}")
    for algorithm, expected in file.checksums.items():
        if found[algorithm] != expected:
            raise _Unusable(f"found {algorithm} {found[algorithm]}, expected {expected}")
