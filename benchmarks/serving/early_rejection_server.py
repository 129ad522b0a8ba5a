"""The service with or without early rejection: `python -m benchmarks.serving.early_rejection_server with BUNDLE PORT`.

"without" serves through a subclass of the service's protocol that rejects nothing early, so that the application
answers every request. The service itself needs no setting for that.
"""

import sys
from typing import Any

from probity.service.process.forced_exit import ForcedExit
from probity.service.process.server import build_server
from probity.service.settings import load_settings

WITH, WITHOUT = "with", "without"


def without_early_rejection(protocol: Any) -> Any:
    """A subclass of the protocol class that leaves the decision to the application."""

    class WithoutEarlyRejection(protocol):  # type: ignore[misc]
        def reject_early(self, *_head: Any) -> None:
            return None

    return WithoutEarlyRejection


def main(variant: str, bundle: str, port: str) -> None:
    server = build_server(load_settings(bundle=(bundle,), port=int(port)), forced_exit=ForcedExit())
    if variant == WITHOUT:
        server.config.http = without_early_rejection(server.config.http)
    server.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
