"""How a route learns that its client has gone: told by the connection itself, where the server does so.

ASGI's own way is to ask `receive` until it says so, which takes a task that does nothing but wait, for each request.
"""

from collections.abc import Callable

from starlette.types import Scope

EXTENSION = "probity.departure"
Listener = Callable[[], None]


class Departure:
    """The end of one connection, and who wants to hear of it. `extensions` is what its requests' scopes hold."""

    def __init__(self) -> None:
        self.gone = False
        self.extensions: dict[str, dict[object, object]] = {EXTENSION: {"departure": self}}
        self._listeners: set[Listener] = set()

    def subscribe(self, listener: Listener) -> None:
        """Call it when the client goes. Who comes when it has gone already sees that by `gone`."""
        self._listeners.add(listener)

    def unsubscribe(self, listener: Listener) -> None:
        """Do not call it any more."""
        self._listeners.discard(listener)

    def announce(self) -> None:
        """The client has gone."""
        self.gone = True
        while self._listeners:
            self._listeners.pop()()


def departure_of(scope: Scope) -> Departure | None:
    """That of the request's connection; None where the server does not tell."""
    found: Departure | None = scope.get("extensions", {}).get(EXTENSION, {}).get("departure")
    return found
