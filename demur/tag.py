"""`demur tag`: a copy of a bundle under another name or version, without a fit."""

import dataclasses
from pathlib import Path

from demur.service.bundle import Manifest, ManifestError, read_bundle, reseal_manifest, staged_bundle
from demur.service.format.files import BundleError, write_file


def tag_bundle(source: Path, out: Path, name: str | None = None, version: str | None = None) -> Manifest:
    """Write the bundle at `source` to `out`, atomically, with this name and version (None: its own); unsigned.

    Every file but the manifest is copied as it is, the report of the fit too. Returns the new manifest. Raises
    `BundleError` for a bundle that is refused, or changes meanwhile, and `ValueError` for a name or version that none
    may have.
    """
    manifest = read_bundle(source).manifest
    try:
        tagged = dataclasses.replace(
            manifest,
            name=manifest.name if name is None else name,
            version=manifest.version if version is None else version,
        )
    except ManifestError as error:
        raise ValueError(f"--{error}") from None
    try:
        with staged_bundle(out) as folder:
            for file in manifest.files:
                write_file(folder / file, (source / file).read_bytes())
            sealed = reseal_manifest(folder, tagged)
            read_bundle(folder)  # what was read is what the manifest says
    except FileNotFoundError as error:
        raise BundleError(source, f"changed while it was copied ({error.strerror})", "try again") from None
    return sealed
