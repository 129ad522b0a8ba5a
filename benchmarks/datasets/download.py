"""Download a file once: checked, then kept in a cache."""

import hashlib
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

import httpx

from benchmarks.core.folders import CACHE
from benchmarks.core.harness import MeasurementError

CHUNK = 1 << 20  # bytes
TIMEOUT = 30.0  # seconds without an answer
# Bytes as they are stored: a server that compresses on the way would change the checksum.
HEADERS = {"Accept-Encoding": "identity", "User-Agent": "demur-benchmarks"}


class DataError(MeasurementError):
    """Data that are neither here nor to be had, or not what they should be."""


class _Unusable(Exception):
    """What one address sent is not the file."""


@dataclass(frozen=True)
class RemoteFile:
    """A file on the web, and where it goes below a folder of data: `folder`/`name`.

    urls: the original first, then mirrors.
    """

    folder: str
    name: str
    urls: tuple[str, ...]
    sha256: str
    size: int  # bytes

    @property
    def path(self) -> Path:
        """Relative to a folder of data."""
        return Path(self.folder) / self.name


def cache() -> Path:
    """The folder of the downloads: DEMUR_DATA_CACHE, or benchmarks/cache/datasets."""
    return Path(os.environ.get("DEMUR_DATA_CACHE") or CACHE / "datasets")


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
        f"a folder that holds {file.path} in DEMUR_DATA_DIR"
    )


def _download(file: RemoteFile, url: str, path: Path) -> None:
    """To a file of its own first, which gets its name when it is whole and right."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=f"-{file.name}")
    sha256, size = hashlib.sha256(), 0
    try:
        with (
            os.fdopen(handle, "wb") as stream,
            httpx.stream("GET", url, headers=HEADERS, timeout=TIMEOUT, follow_redirects=True) as response,
        ):
            response.raise_for_status()
            for chunk in response.iter_raw(CHUNK):
                sha256.update(chunk)
                size += stream.write(chunk)
                if size > file.size:
                    break
        if size != file.size:
            least = "more than " if size > file.size else ""
            raise _Unusable(f"found {least}{min(size, file.size):,} bytes, expected {file.size:,}")
        if sha256.hexdigest() != file.sha256:
            raise _Unusable(f"found sha256 {sha256.hexdigest()}, expected {file.sha256}")
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    finally:
        Path(temporary).unlink(missing_ok=True)
