"""What a connection tells the routes, where the server does so: that the client has gone, and that it took its answer.

ASGI's own way is to ask `receive` until it says so, which takes a task that does nothing but wait, for each request.
"""

from collections.abc import Awaitable, Callable

from starlette.types import Scope

EXTENSION = "probity.departure"
Listener = Callable[[], None]


async def _nothing_waits() -> None:
    """Before the connection is made, nothing was written to it."""


class Departure:
    """The end of one connection, and who wants to hear of it. `extensions` is what its requests' scopes hold.

    `drained` returns once the client has taken all but a small rest of what was written, or has gone.
    """

    def __init__(self) -> None:
        self.gone = False
        self.drained: Callable[[], Awaitable[None]] = _nothing_waits
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


async def answer_taken(scope: Scope) -> None:
    """Wait until the client has taken its answer, or has gone; not at all where the server does not tell."""
    found = departure_of(scope)
    if found is not None:
        await found.drained()


def departure_of(scope: Scope) -> Departure | None:
    """That of the request's connection; None where the server does not tell."""
    found: Departure | None = scope.get("extensions", {}).get(EXTENSION, {}).get("departure")
    return found
