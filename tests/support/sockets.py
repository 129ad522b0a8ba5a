"""What came over a plain socket."""

import socket


def answers(connection: socket.socket) -> list[tuple[int, dict[str, str], bytes]]:
    """Status, headers and body of every answer until the service closes the connection."""
    found = []
    with connection.makefile("rb") as stream:
        while line := stream.readline():
            headers = dict[str, str]()
            while (field := stream.readline()) not in (b"\r\n", b""):
                name, _, value = field.decode().partition(":")
                headers[name.lower()] = value.strip()
            found.append((int(line.split()[1]), headers, stream.read(int(headers["content-length"]))))
    return found
