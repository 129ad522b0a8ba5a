"""Which bundles have passed a trial: worker processes tell each other, so that one alone tries a bundle.

What passed is known by its manifest, which holds the hash of every file; whoever loads a bundle compares them.
"""

import contextlib
import fcntl
import hashlib
import os
from collections.abc import Callable
from pathlib import Path

from ..format.files import MANIFEST
from ..format.seal import MAX_MANIFEST_BYTES

FOLDER = "trials"  # in the folder that the processes share


class PassedTrials:
    """`shared`: the folder that worker processes share; None: there is one process, which remembers nothing."""

    def __init__(self, shared: str | None) -> None:
        self._folder = None if not shared else Path(shared) / FOLDER

    def digest(self, folder: Path, trial: Callable[[Path], str]) -> str:
        """The digest that the trial of this bundle gives, or gave to another process; while that one tries it, this one
        waits. Raises what `trial` raises: what failed is tried again."""
        manifest = _manifest(folder)
        if self._folder is None or manifest is None:
            return trial(folder)
        with contextlib.ExitStack() as stack:
            try:
                self._folder.mkdir(exist_ok=True)
                file = stack.enter_context(open(self._folder / hashlib.sha256(manifest).hexdigest(), "a+b"))
                fcntl.flock(file, fcntl.LOCK_EX)
                file.seek(0)
                known = file.read()
            except OSError:  # no room, or no such folder any more: it costs a trial
                return trial(folder)
            if known:
                return known.decode("ascii")
            digest = trial(folder)
            if _manifest(folder) == manifest:
                with contextlib.suppress(OSError):
                    os.write(file.fileno(), digest.encode("ascii"))
            return digest


def _manifest(folder: Path) -> bytes | None:
    try:
        with open(folder / MANIFEST, "rb") as file:
            found = file.read(MAX_MANIFEST_BYTES + 1)
    except OSError:
        return None
    return found if 0 < len(found) <= MAX_MANIFEST_BYTES else None
