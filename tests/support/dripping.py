"""A proxy that passes so many bytes at once, and every further one by itself, with a pause before it."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

PAUSE_SECONDS = 0.02


@dataclass
class Proxy:
    """`port` leads to the server; `quick`: how many bytes are passed at once yet, in either direction and over all
    connections; `passed`: how many were."""

    port: int
    quick: float
    passed: int = 0
    closed: threading.Event = field(default_factory=threading.Event)

    def pump(self, source: socket.socket, sink: socket.socket) -> None:
        """Pass what comes until either end is closed."""
        with contextlib.suppress(OSError):
            # No more than is quick yet: with 4096 bytes beyond it in each direction, a small bundle would be whole.
            while not self.closed.is_set() and (data := source.recv(int(max(1, min(4096, self.quick - self.passed))))):
                if self.passed >= self.quick:
                    self.closed.wait(PAUSE_SECONDS)
                sink.sendall(data)
                self.passed += len(data)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def dripping(server: int, quick: float) -> Iterator[Proxy]:
    """A proxy before this port of this machine."""
    opened, threads = list[socket.socket](), list[threading.Thread]()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        proxy = Proxy(listener.getsockname()[1], quick)

        def pump(source: socket.socket, sink: socket.socket) -> None:
            threads.append(threading.Thread(target=proxy.pump, args=(source, sink), daemon=True))
            threads[-1].start()

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    client = listener.accept()[0]
                    there = socket.create_connection(("127.0.0.1", server))
                    opened.extend((client, there))
                    pump(client, there)
                    pump(there, client)

        accepting = threading.Thread(target=accept, daemon=True)
        accepting.start()
        try:
            yield proxy
        finally:
            proxy.closed.set()
            listener.shutdown(socket.SHUT_RDWR)
            accepting.join()
            for end in opened:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
            for thread in threads:
                thread.join()
            for end in opened:
                end.close()
