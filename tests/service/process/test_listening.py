"""The end of a listening socket: established connections are served, and new ones are refused, not reset."""

import contextlib
import socket
import sys

import pytest

from probity.service.process.listening import accept_waiting, refuse_new_connections

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux's socket filters")


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_no_client_connects_between_the_last_accept_and_the_close(host: str) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family) as listener, contextlib.ExitStack() as stack:
        address = listener.getsockname()[:2]
        early = [stack.enter_context(socket.create_connection(address, 10)) for _ in range(3)]
        refuse_new_connections(listener.fileno())
        refuse_new_connections(listener.fileno())  # as several workers do
        late = stack.enter_context(socket.socket(family))
        late.settimeout(0.3)
        with pytest.raises(TimeoutError):
            late.connect(address)
        accepted = [stack.enter_context(one) for one in accept_waiting(listener.fileno())]
        assert [one.getpeername() for one in accepted] == [one.getsockname() for one in early]
        for one, other in zip(early, accepted, strict=True):
            one.sendall(b"asked")
            assert other.recv(5) == b"asked"
        assert listener.fileno() > 0  # it is still open
