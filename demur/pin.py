"""`demur pin`: which version of a model answers the requests that name none."""

from collections.abc import Mapping
from pathlib import Path

from pydantic import ValidationError

from demur.service.bundle import BundleError, read_manifest
from demur.service.models.folders import bundles_in
from demur.service.models.store import version_key
from demur.service.models.versions_file import Pinned, VersionsFileError, locked, read_versions, rewrite, write_versions


def pin_version(models: Path, name: str, version: str | None, canary: Mapping[str, float] | None = None) -> list[str]:
    """Pin the model in the folder to this version; None: the latest one answers again. canary: other versions, and
    the share of the requests that each of them answers. Returns what there is to say, a line each.

    A file that cannot be read is kept under another name, and none of what it said. Raises `ValueError` where no such
    version is there, or the shares are none, and `OSError` where the folder cannot be read or written.
    """
    with locked(models):
        versions, broken = _read(models)
        if version is not None:
            for one in (version, *(canary or {})):
                _check_there(models, name, one)
            versions[name] = _pinned(version, canary or {})
        elif versions.pop(name, None) is None and broken is None:
            pinned = ", ".join(map(repr, sorted(versions))) or "none"
            raise ValueError(f"{models}: found no pinned version of {name!r:.200}; pinned are: {pinned}")
        answer = f"{name}: {versions.get(name) or 'the latest version'} answers"
        if broken is None:
            write_versions(models, versions)
            return [answer]
        kept = rewrite(models, versions)
        rest = f"written anew, without a version of any other model; what was there is {kept.name} now"
        return [f"{broken.file}: {broken.problem}: {rest}", answer]


def _read(models: Path) -> tuple[dict[str, Pinned], VersionsFileError | None]:
    """What is pinned, and why it cannot be read, where that is so; raises `ValueError` where others may read it."""
    try:
        return read_versions(models), None
    except VersionsFileError as error:
        if isinstance(error.__cause__, PermissionError):
            raise ValueError(f"{error.file}: {error.problem}; pin as a user who may read it") from None
        return {}, error


def _pinned(version: str, canary: Mapping[str, float]) -> Pinned:
    try:
        return Pinned(version=version, canary=dict(canary))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise ValueError(f"--canary: {place}: {first['msg']}".replace(": Value error, canary", "")) from None


def _check_there(models: Path, name: str, version: str) -> None:
    found: dict[str, list[str]] = {}
    for folder in bundles_in(models):
        try:
            manifest = read_manifest(folder)[0]
        except BundleError:  # the service refuses it too
            continue
        found.setdefault(manifest.name, []).append(manifest.version)
    if name not in found:
        names = ", ".join(map(repr, sorted(found))) or "none"
        raise ValueError(f"{models}: found no model {name!r:.200}, expected one that is there: {names}")
    if version not in found[name]:
        there = ", ".join(sorted(found[name], key=version_key))
        raise ValueError(
            f"{models}: found no version {version!r:.200} of {name!r}, expected one that is there: {there}"
        )
