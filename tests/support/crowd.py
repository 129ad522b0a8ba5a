"""Many connections, each with the next request as soon as one is answered.

python -m tests.support.crowd PORT PATH CONNECTIONS SECONDS
"""

import contextlib
import selectors
import socket
import sys
import time


def crowd(port: int, path: str, connections: int, seconds: float) -> None:
    """Request `path` over so many connections, for so long."""
    request = f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
    with contextlib.ExitStack() as stack, selectors.DefaultSelector() as selector:
        for _ in range(connections):
            made = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            selector.register(made, selectors.EVENT_READ)
            made.sendall(request)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for key, _ in selector.select(0.1):
                connection = key.fileobj
                assert isinstance(connection, socket.socket)
                if b"HTTP/1.1 " in connection.recv(2**20):
                    connection.sendall(request)


if __name__ == "__main__":
    crowd(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))
