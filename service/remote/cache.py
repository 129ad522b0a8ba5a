"""Bundles that are named by a URI, kept on this machine from one start to the next."""

import hashlib
import logging
import os
import re
from pathlib import Path
from urllib.parse import quote

from ..bundle import Verify, read_head
from ..format.files import ELSEWHERE, MANIFEST, BundleError
from ..format.text import printable
from .errors import UnreachableError
from .places import is_uri
from .pull import Progress, pull, unseen

VARIABLE = "DEMUR_CACHE_DIR"
log = logging.getLogger("demur")


def cache_folder() -> Path:
    """Where they are kept unless something else is said: as the variable says, or where the user's other caches are."""
    named, caches = os.environ.get(VARIABLE), os.environ.get("XDG_CACHE_HOME")
    if named:
        return Path(named)
    return (Path(caches) if caches else Path(os.path.expanduser("~")) / ".cache") / "demur"  # noqa: PTH111


def kept_at(uri: str, cache: Path) -> Path:
    """The folder of the bundle."""
    last = re.sub(r"[^A-Za-z0-9._-]+", "-", uri.rstrip("/").rpartition("/")[2]).lstrip(".") or "bundle"
    return cache / hashlib.sha256(uri.encode()).hexdigest()[:16] / last[:100]


def fetched(uri: str, cache: Path | None = None, verify: Verify | None = None, progress: Progress = unseen) -> Path:
    """The folder of the bundle at `uri`, as it is there now; the copy of before where the place does not answer, or
    where the cache cannot be written.

    Raises `BundleError` where the place answers that there is none, or refuses, and where there is no copy.
    """
    folder = kept_at(uri, cache_folder() if cache is None else cache)
    log.info("%s: fetching", printable(uri))
    try:
        pull(uri, folder, verify, progress)
    except BundleError as error:
        ours = error.file.startswith(str(folder))
        if not ours and not isinstance(error, UnreachableError):
            raise
        if not (folder / MANIFEST).exists():
            if not ours:
                raise
            remedy = error.remedy.replace(ELSEWHERE, f"name another folder as {VARIABLE}")
            raise BundleError(error.file, error.problem, remedy) from None
        read_head(folder, verify)  # by the keys of now
        log.warning("%s; taking the copy of before: %s", error, printable(str(folder)))
    return folder


def pretrained(
    name: Path | str, revision: str | None = None, cache: Path | None = None, verify: Verify | None = None
) -> Path:
    """The folder of a bundle that is named by a folder, by a URI, or as OWNER/NAME on the Hugging Face Hub.

    revision: a branch, a tag or a commit there. verify: what is fetched must pass. Raises `BundleError`, and
    `ValueError` for a revision of anything else.
    """
    text, of_hub = str(name), False
    if not is_uri(text) and not Path(text).exists() and re.fullmatch(r"\w[\w.-]*/\w[\w.-]*", text):
        text, of_hub = f"hf://{text}", True
    if revision is not None:
        if not of_hub:
            raise ValueError(f"revision: found {revision!r:.100} beside {text!r:.200}, expected OWNER/NAME on the Hub")
        text += f"@{quote(revision, safe='')}"
    if not is_uri(text):
        return Path(text)
    try:
        return fetched(text, cache, verify)
    except BundleError as error:
        if not of_hub:
            raise
        raise BundleError(error.file, f"{error.problem}; there is no folder {name} either", error.remedy) from None
