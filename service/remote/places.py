"""URIs of bundles -> places."""

import contextlib
import re
from collections.abc import Iterator

from ..format.files import BundleError
from . import hub, registry
from .folder import FolderPlace
from .object_store import STORES, ObjectStore
from .place import Place

FORMS = (hub.FORM, *(f"{scheme}://BUCKET/PREFIX" for scheme in STORES), registry.FORM)
BUCKET = re.compile(
    r"(?P<bucket>[A-Za-z0-9][A-Za-z0-9._-]*)/(?P<prefix>(?!\.{1,2}(?:/|$))[^/?#,\s]+(?:/(?!\.{1,2}(?:/|$))[^/?#,\s]+)*)/?"
)


def is_uri(text: str) -> bool:
    """Whether the text names a bundle elsewhere, and no folder."""
    return "://" in text


@contextlib.contextmanager
def place_of(text: str) -> Iterator[Place]:
    """Where the URI or the folder leads; raises `BundleError` for a URI of another form."""
    place = _place(text) if is_uri(text) else FolderPlace(text)
    try:
        yield place
    finally:
        place.close()


def _place(uri: str) -> Place:
    scheme, _, rest = uri.partition("://")
    if scheme == "hf":
        return hub.Hub(rest)
    if scheme == "oci":
        return registry.Registry(rest)
    found = BUCKET.fullmatch(rest)
    if scheme not in STORES or found is None:
        raise BundleError(uri, "found another form of URI", f"give a folder, or one of {', '.join(FORMS)}")
    return ObjectStore(scheme, found["bucket"], found["prefix"])
