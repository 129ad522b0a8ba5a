"""Files of the repository cambridge-mlg/DUN (Antoran et al., 2020; MIT licence): UCI tables with splits, and toy data.

dun.csv lists them: where each lies in a folder of data, its SHA-256, its bytes, and its source in the repository.
"""

import csv
from pathlib import Path

from benchmarks.datasets.download import DataError, RemoteFile
from benchmarks.datasets.folder import local

COMMIT = "4fc85182f911d48c0de8b71f901866f42f7955e4"
SOURCE = f"https://raw.githubusercontent.com/cambridge-mlg/DUN/{COMMIT}/experiments/data"
LIST = Path(__file__).with_name("dun.csv")


def files() -> dict[str, RemoteFile]:
    """Every file by its path below a folder of data."""
    with LIST.open(newline="") as rows:
        return {row["file"]: _file(**row) for row in csv.DictReader(rows)}


def _file(file: str, sha256: str, bytes: str, source: str) -> RemoteFile:  # noqa: A002, the columns
    path = Path(file)
    return RemoteFile(str(path.parent), path.name, (f"{SOURCE}/{source}",), sha256, int(bytes))


def local_file(path: str) -> Path:
    """The file on this machine; raises `DataError` for one that is not listed."""
    listed = files()
    if path not in listed:
        known = ", ".join(name for name in listed if Path(name).parent == Path(path).parent)
        raise DataError(f"data: found {path}, expected {known or f'a file that {LIST.name} lists'}")
    return local(listed[path])
