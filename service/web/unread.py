"""Whether a connection holds something that the event loop has not read yet."""

import asyncio
import select


def has_unread(transport: asyncio.BaseTransport) -> bool:
    """Whether the client's next bytes, or the end of what it sends, wait in the kernel."""
    connection = transport.get_extra_info("socket")
    if connection is None or connection.fileno() < 0:
        return False
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return bool(poll.poll(0))
