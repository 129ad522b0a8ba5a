"""The folder of data that a person names, which goes before any download."""

import os
from pathlib import Path

from benchmarks.datasets.download import DataError, RemoteFile, fetch


def data_folder() -> Path | None:
    """The folder in DEMUR_DATA_DIR, None where it is not set; raises `DataError` where it is no folder."""
    named = os.environ.get("DEMUR_DATA_DIR")
    if named and not Path(named).is_dir():
        raise DataError(
            f"DEMUR_DATA_DIR: found {named!r}, which is no folder; expected one that holds mnist/, cifar10/, uci/ "
            "and others. Without the variable, the data are downloaded"
        )
    return Path(named) if named else None


def given(path: str | Path) -> Path | None:
    """The file at a path below DEMUR_DATA_DIR, None where it is not there."""
    folder = data_folder()
    return folder / path if folder is not None and (folder / path).is_file() else None


def local(file: RemoteFile) -> Path:
    """The given file where there is one, otherwise the downloaded one."""
    return given(file.path) or fetch(file)
