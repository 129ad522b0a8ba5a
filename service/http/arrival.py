"""When a request began to arrive: from then on its deadline runs, however long it waits to be looked at."""

import asyncio

from starlette.types import Scope

ARRIVAL = "demur.arrival"


def arrived_at(scope: Scope) -> float:
    """On the event loop's clock; now on servers that do not note it."""
    noted: dict[str, float] = scope.get("extensions", {}).get(ARRIVAL, {})
    return noted.get("at", asyncio.get_running_loop().time())
