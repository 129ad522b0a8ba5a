"""The bundles that the settings name by a URI: fetched at the start, and looked for again."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from ..bundle import BundleError
from ..format.text import printable
from ..remote.cache import fetched
from ..remote.errors import UnreachableError
from ..remote.pull import pull
from ..settings import Settings
from .loading import verifier

log = logging.getLogger("demur")


def fetch_bundles(settings: Settings) -> None:
    """Bring them here as they are now; raises `BundleError`. Where a place does not answer, the copy of before does."""
    verify = verifier(settings) if settings.uris else None
    for uri in settings.uris:
        folder = fetched(uri, settings.cache_dir, verify)
        log.info("%s: is in %s", printable(uri), printable(str(folder)))


class Elsewhere:
    """Brings what has changed since to the folders from which it is served. A place that does not answer delays no
    other, and what fails is logged, once until it changes.

    `note` is called after each look with the folder, and why what is there now is refused; empty where it is not.
    """

    def __init__(self, settings: Settings, note: Callable[[Path, str], None]) -> None:
        self._settings, self._note, self._trouble = settings, note, dict[str, str]()
        self._busy = {uri: asyncio.Lock() for uri in settings.uris}

    async def watch(self, seconds: float) -> None:
        """Look at each place every `seconds`, for ever."""
        await asyncio.gather(*(self._watch(uri, seconds) for uri in self._busy))

    async def _watch(self, uri: str, seconds: float) -> None:
        while True:
            await asyncio.sleep(seconds)
            await self._fetch(uri)

    async def fetch(self) -> None:
        """Look once, but where a look still lasts."""
        await asyncio.gather(*(self._fetch(uri) for uri, busy in self._busy.items() if not busy.locked()))

    async def _fetch(self, uri: str) -> None:
        async with self._busy[uri]:
            trouble, is_refused = await asyncio.to_thread(self._pull, uri)
        if is_refused is not None:
            self._note(self._settings.folder_of(uri), trouble if is_refused else "")
        if trouble and trouble != self._trouble.get(uri):
            log.error("%s; what is served stays", trouble)
        self._trouble[uri] = trouble

    def _pull(self, uri: str) -> tuple[str, bool | None]:
        """Why it could not be had, empty where it could; and whether it is there and refused, None: nobody knows."""
        try:
            pull(uri, self._settings.folder_of(uri), verifier(self._settings), hashed=False)
        except UnreachableError as error:
            return str(error), None
        except BundleError as error:
            return str(error), True
        except Exception as error:
            log.exception("%s: could not be fetched", printable(uri))
            return f"{uri}: {type(error).__name__}", True
        return "", False
