"""`python -m tests.support.flood PORT`: chunks of one byte over many connections, for a few seconds."""

import socket
import sys
import time

CHUNKED = b"POST /predict HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
TINY = b"1\r\n \r\n"
SECONDS, CONNECTIONS, BYTES_A_SECOND = 2.0, 20, 7 * 2**20


def flood(port: int) -> None:
    """Send chunks of one byte; open a new connection for each that is closed."""
    data = TINY * 2000
    at = dict[socket.socket, int]()
    started, sent = time.monotonic(), 0
    while (now := time.monotonic()) < started + SECONDS:
        while len(at) < CONNECTIONS:
            new = socket.create_connection(("127.0.0.1", port), 60)
            new.sendall(CHUNKED)
            new.setblocking(False)
            at[new] = 0
        for connection in [*at]:
            if sent > BYTES_A_SECOND * (now - started):
                break
            try:
                count = connection.send(data[at[connection] :])
            except BlockingIOError:
                continue
            except OSError:
                del at[connection]
                connection.close()
                continue
            sent += count
            at[connection] = (at[connection] + count) % len(data)
    for connection in at:
        connection.close()


if __name__ == "__main__":
    flood(int(sys.argv[1]))
