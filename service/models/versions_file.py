"""`versions.json` in the models' folder: which version of a model answers the requests that name none."""

from collections.abc import Mapping
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from probity.service.format.files import replace_file
from probity.service.format.text import printable

VERSIONS_FILE = "versions.json"
MOST_BYTES = 2**20
EXPECTED = 'an object that gives names of models their version, such as {"digits": "9"}'
ADAPTER: TypeAdapter[dict[str, str]] = TypeAdapter(dict[str, str])


class VersionsFileError(ValueError):
    """The file cannot be read, or is none."""


def read_versions(models_folder: Path) -> dict[str, str]:
    """Version by model, as the file says; empty where there is none. Raises `VersionsFileError`."""
    file = models_folder / VERSIONS_FILE
    try:
        with open(file, "rb") as stream:
            data = stream.read(MOST_BYTES + 1)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise VersionsFileError(f"{printable(str(file))}: cannot be read ({error.strerror})") from None
    try:
        if len(data) > MOST_BYTES:
            raise ValueError(f"more than {MOST_BYTES} bytes")
        return ADAPTER.validate_json(data, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        found = f"{place}: {first['msg']}" if place else first["msg"]
        raise _refused(file, found) from None
    except ValueError as error:
        raise _refused(file, str(error)) from None


def _refused(file: Path, found: str) -> VersionsFileError:
    return VersionsFileError(printable(f"{file}: found {found:.300}, expected {EXPECTED}"))


def write_versions(models_folder: Path, versions: Mapping[str, str]) -> None:
    """Write the file atomically. Raises `OSError`."""
    replace_file(models_folder / VERSIONS_FILE, ADAPTER.dump_json(dict(versions), indent=2) + b"\n")
