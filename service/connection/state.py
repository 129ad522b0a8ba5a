"""What the service expects next from the client of a connection."""

from enum import Enum, auto


class ReadState(Enum):
    """The place in the stream of bytes that a client sends.

        NEW ──▶ HEAD ──▶ BODY ──▶ IDLE ──▶ HEAD ──▶ ...
        any ──▶ DISCARDING

    A client in NEW, HEAD or a body owes bytes and has a deadline; in IDLE it may keep its connection for a while.
    """

    NEW = auto()  # nothing has come yet
    HEAD = auto()  # the first bytes of a head have come
    BODY = auto()  # the head is complete, and its request is with the application
    IDLE = auto()  # the last request is complete, and no byte of the next has come
    DISCARDING = auto()  # after an error: everything that comes is thrown away, and the connection ends

    @property
    def in_body(self) -> bool:
        """Whether the head is complete, and the message is not."""
        return self is ReadState.BODY
