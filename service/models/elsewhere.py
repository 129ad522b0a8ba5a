"""The bundles that the settings name by a URI: fetched at the start, and looked for again."""

import logging

from probity.service.bundle import BundleError
from probity.service.format.text import printable
from probity.service.models.loading import verifier
from probity.service.remote.cache import cache_folder, fetched, kept_at
from probity.service.remote.pull import pull
from probity.service.settings import Settings

log = logging.getLogger("probity")


def fetch_bundles(settings: Settings) -> None:
    """Bring them here as they are now; raises `BundleError`. Where a place does not answer, the copy of before does."""
    verify = verifier(settings) if settings.uris else None
    for uri in settings.uris:
        folder = fetched(uri, settings.cache_dir, verify)
        log.info("%s: is in %s", printable(uri), printable(str(folder)))


class Elsewhere:
    """Looks for what has changed since. What fails is logged, once until it changes."""

    def __init__(self, settings: Settings) -> None:
        self._settings, self._trouble = settings, dict[str, str]()

    def fetch(self) -> None:
        """Bring what has changed to the folders from which it is served."""
        for uri in self._settings.uris:
            trouble = self._pull(uri)
            if trouble and trouble != self._trouble.get(uri):
                log.error("%s; what is served stays", trouble)
            self._trouble[uri] = trouble

    def _pull(self, uri: str) -> str:
        try:
            pull(uri, kept_at(uri, self._settings.cache_dir or cache_folder()), verifier(self._settings))
        except BundleError as error:
            return str(error)
        return ""
