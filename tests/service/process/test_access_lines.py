"""The lines of the access log are uvicorn's, whoever writes them."""

import logging
import time

import pytest
from uvicorn.logging import AccessFormatter

from demur.service.process.logs import AccessLines, WithContext, log_config
from demur.service.settings import Settings

MESSAGE = '%s - "%s %s HTTP/%s" %d'  # uvicorn's


def record(*args: object, created: float = 1e9) -> logging.LogRecord:
    found = logging.LogRecord("uvicorn.access", logging.INFO, __file__, 1, MESSAGE, args, None)
    found.created = created
    return found


@pytest.mark.parametrize("status", [200, 404, 499, 504])
@pytest.mark.parametrize("identity", [None, "mine"])
def test_a_line_is_uvicorns_with_time_and_request(status: int, identity: str | None) -> None:
    fmt = '%(moment)s %(levelprefix)s %(client_addr)s - "%(request_line)s" %(status_code)s%(request)s'
    line = record("10.0.0.1:80", "POST", "/predict", "1.1", status)
    line.request_id = identity
    WithContext().filter(line)
    found = AccessLines().format(line)
    assert found == AccessFormatter(fmt, use_colors=False).format(line)
    assert found.startswith('2001-09-09T01:46:40.000Z INFO:     10.0.0.1:80 - "POST /predict HTTP/1.1" ')


@pytest.mark.parametrize("created", [0.0, 1.5, 999.9996, 1e9 + 0.001, 1764296325.123])
def test_the_time_is_utc_with_milliseconds(created: float) -> None:
    context, line = WithContext(), record("a", "GET", "/", "1.1", 200, created=created)
    for _ in range(2):  # the second time is remembered
        context.filter(line)
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(created))
        assert line.moment == f"{seconds}.{int(created * 1000) % 1000:03d}Z"  # type: ignore[attr-defined]


def test_anything_else_in_the_access_log_is_written_as_it_is() -> None:
    line = logging.LogRecord("uvicorn.access", logging.INFO, __file__, 1, "a %s", ("message",), None)
    assert AccessLines().format(line) == "a message"


@pytest.mark.parametrize("terminal", [False, True])
def test_only_a_terminal_gets_uvicorns_colours(monkeypatch: pytest.MonkeyPatch, terminal: bool) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: terminal)
    formatter = log_config(Settings())["formatters"]["access"]["()"]
    assert formatter == ("uvicorn.logging.AccessFormatter" if terminal else AccessLines)
