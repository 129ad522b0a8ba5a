"""`versions.json` in the models' folder: which version of a model answers the requests that name none."""

import contextlib
import fcntl
import itertools
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import field
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass
from pydantic_core import to_json

from ..format.files import BundleError, replace_file
from ..format.json_names import check_names_once

VERSIONS_FILE = "versions.json"
MOST_BYTES = 2**20
EXPECTED = (
    'an object that gives names of models their version, such as {"digits": "9"}, or with a share for another one: '
    '{"digits": {"version": "9", "canary": {"10": 0.1}}}'
)
Share = Annotated[float, Field(gt=0, lt=1)]


@dataclass(frozen=True, config=ConfigDict(extra="forbid", strict=True))
class Pinned:
    """The version of a model that answers requests which name none, and others for a share of these requests."""

    version: Annotated[str, Field(min_length=1)]
    canary: dict[str, Share] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if sum(self.canary.values()) > 1:
            raise ValueError(f"canary: found shares of {sum(self.canary.values()):g} in all, expected at most 1")
        if self.version in self.canary:
            raise ValueError(f"canary: found the version {self.version!r:.100} itself, expected others")

    def __str__(self) -> str:
        shares = ", ".join(f"version {version} for {100 * share:g} %" for version, share in self.canary.items())
        return f"version {self.version}" + (f" ({shares})" if shares else "")


def _spelled_out(value: Any) -> Any:
    return {"version": value} if isinstance(value, str) else value


ADAPTER: TypeAdapter[dict[str, Pinned]] = TypeAdapter(dict[str, Annotated[Pinned, BeforeValidator(_spelled_out)]])


class VersionsFileError(BundleError):
    """The file cannot be read, or is none: which versions are to answer is not known."""

    def __init__(self, file: Path, problem: str) -> None:
        pin = f"`demur pin {file.parent} NAME VERSION`"
        super().__init__(file, problem, f"{pin} writes it anew; without it the latest versions would answer")


def read_versions(models_folder: Path) -> dict[str, Pinned]:
    """What answers by model, as the file says; empty where there is none. Raises `VersionsFileError`."""
    file = models_folder / VERSIONS_FILE
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as stream:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise _refused(file, "no regular file")
            data = stream.read(MOST_BYTES + 1)
    except OSError as error:
        if isinstance(error, FileNotFoundError) and not file.is_symlink():  # nor a link that leads nowhere
            return {}
        raise VersionsFileError(file, f"cannot be read ({error.strerror})") from error
    try:
        if len(data) > MOST_BYTES:
            raise ValueError(f"more than {MOST_BYTES} bytes")
        check_names_once(data)
        return ADAPTER.validate_json(data, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        found = f"{place}: {first['msg']}" if place else first["msg"]
        raise _refused(file, found) from None
    except ValueError as error:
        raise _refused(file, str(error)) from None


def _refused(file: Path, found: str) -> VersionsFileError:
    return VersionsFileError(file, f"found {found:.300}, expected {EXPECTED}")


def write_versions(models_folder: Path, versions: Mapping[str, Pinned | str], name: str = VERSIONS_FILE) -> Path:
    """Write the file atomically; a version alone as its text. name: another one for it. Raises `OSError`."""
    written = {model: one if isinstance(one, str) or one.canary else one.version for model, one in versions.items()}
    replace_file(models_folder / name, to_json(written, indent=2) + b"\n")
    return models_folder / name


def rewrite(models_folder: Path, versions: Mapping[str, Pinned | str]) -> Path:
    """Write the file where something else stands in its place; returns where that is now. Raises `OSError`."""
    file = models_folder / VERSIONS_FILE
    fresh = write_versions(models_folder, versions, f".{VERSIONS_FILE}.new")
    names = (file.with_name(f"{VERSIONS_FILE}.broken{number or ''}") for number in itertools.count())
    aside = next(name for name in names if not os.path.lexists(name))
    try:  # a service that looks at this instant must not find that there is no file, and so no pinned version
        os.link(file, aside, follow_symlinks=False)
    except OSError:  # a folder, or a file system without hard links
        file.rename(aside)
    fresh.replace(file)
    return aside


@contextlib.contextmanager
def locked(models_folder: Path) -> Iterator[None]:
    """While the block runs, nobody else who asks for this changes the file. Raises `OSError`."""
    handle = os.open(models_folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
