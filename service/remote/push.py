"""Folders here -> bundles elsewhere."""

from pathlib import Path

from ..bundle import read_bundle
from ..format.files import MANIFEST, README, SIGNATURE, BundleError
from .place import in_time
from .places import is_uri, place_of


def push(bundle: Path | str, uri: str, replace: bool = False) -> str:
    """Copy the bundle with its signature and its README.md to `uri`; returns the URI of just this bundle.

    Only a sound bundle is copied. Raises `BundleError`: for one that is none, where another is there that is not to be
    replaced (a repository of the Hub keeps it in its history), and where the place refuses or does not answer.
    """
    if is_uri(str(bundle)):
        raise BundleError(str(bundle), "found a URI, expected the folder of a bundle", "fetch it with `demur pull`")
    manifest = read_bundle(bundle).manifest
    bundle = Path(bundle)
    beside = [name for name in (SIGNATURE, README) if (bundle / name).is_file()]
    files = {name: bundle / name for name in (*manifest.files, *beside, MANIFEST)}
    with place_of(uri) as place:
        size = sum(file.stat().st_size for file in files.values())
        return in_time(uri, size, lambda: place.store(files, replace))
