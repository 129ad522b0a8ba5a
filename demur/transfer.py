"""`demur pull` and `demur push`, and bundles that a command names by their URI."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from demur.service.bundle import Manifest
from demur.service.remote.cache import fetched
from demur.service.remote.places import is_uri
from demur.service.remote.pull import Progress as Report
from demur.service.remote.pull import pull
from demur.service.security.signing import TrustedKeys

T = TypeVar("T")


def pull_bundle(uri: str, out: Path, trusted_keys: Path | None) -> Manifest:
    """Copy the bundle at `uri` to `out`; trusted_keys: the file of the keys one of which must have signed it, by
    default that of `DEMUR_TRUSTED_KEYS`."""
    verify = trusted_by_environment() if trusted_keys is None else TrustedKeys.from_file(trusted_keys)
    return _with_bytes(lambda report: pull(uri, out, verify, report))


def local_bundle(text: str) -> Path:
    """The folder that the text names; of a URI, the folder of the copy that is fetched. Raises `BundleError`.

    What is fetched must be signed where `DEMUR_TRUSTED_KEYS` says by whom, as for a service.
    """
    if not is_uri(text):
        return Path(text)
    verify = trusted_by_environment()
    return _with_bytes(lambda report: fetched(text, None, verify, report))


def trusted_by_environment() -> TrustedKeys | None:
    """The keys of the file that `DEMUR_TRUSTED_KEYS` names; None without it. Raises `BundleError`, also where it is
    empty: that must not open the door."""
    named = os.environ.get("DEMUR_TRUSTED_KEYS")
    return None if named is None else TrustedKeys.from_file(Path(named))


def _with_bytes(job: Callable[[Report], T]) -> T:
    """Run the job with a bar on stderr, and only on a terminal."""
    screen = Console(stderr=True)
    shown = TextColumn("fetched"), BarColumn(), DownloadColumn(), TimeRemainingColumn()
    with Progress(*shown, console=screen, disable=not screen.is_terminal) as progress:
        task = progress.add_task("", total=None)
        return job(lambda done, total: progress.update(task, completed=done, total=total))
