"""The access log: what a line says, in both forms."""

import json
import logging
import time
from urllib.parse import quote

import pytest

from demur.service.http import access_log
from demur.service.http.access_log import ACCESS, MOST_SHOWN, log_exchange
from demur.service.http.exchange import Exchange
from demur.service.process.logs import JsonLines, WithContext, log_config
from demur.service.settings import Settings


class Model:
    """What a line says of one."""

    name, version = "digits", "9"


def exchange(path: str = "/pre dict", status: int = 200) -> Exchange:
    return Exchange("POST", path, "1.1", ("10.0.0.1", 80), [], 0.0, status=status, size=2048)


def logged(caplog: pytest.LogCaptureFixture, found: Exchange) -> logging.LogRecord:
    with caplog.at_level(logging.INFO, ACCESS):
        log_exchange(found, 0.0123456789)
    (record,) = caplog.records
    record.request_id = "mine"
    WithContext().filter(record)
    return record


def in_text(record: logging.LogRecord) -> str:
    return logging.Formatter(log_config(Settings())["formatters"]["access"]["format"]).format(record)


def test_a_line_says_who_asked_for_what_and_how_it_was_answered(caplog: pytest.LogCaptureFixture) -> None:
    asked = exchange()
    asked.steps.model, asked.key = Model(), "alice"  # type: ignore[assignment]
    record = logged(caplog, asked)
    said = 'INFO:     10.0.0.1:80 - "POST /pre%20dict HTTP/1.1" 200 OK 12.3ms 2048B key=alice model=digits version=9'
    assert in_text(record).split(" ", 1)[1] == f"{said} request=mine"
    found = json.loads(JsonLines().format(record))
    fields = {"client": "10.0.0.1:80", "method": "POST", "path": "/pre%20dict", "status": 200, "seconds": 0.012346}
    assert fields | {"bytes": 2048, "complete": True, "key": "alice", "model": "digits", "version": "9"} == {
        name: value for name, value in found.items() if name not in {"time", "level", "message", "logger", "request"}
    }


@pytest.mark.parametrize(("status", "said"), [(404, "404 Not Found"), (499, "499"), (504, "504 Gateway Timeout")])
def test_what_is_not_known_is_left_out(caplog: pytest.LogCaptureFixture, status: int, said: str) -> None:
    asked = exchange(status=status)
    asked.client = None
    record = logged(caplog, asked)
    assert in_text(record).split(" ", 1)[1] == (
        f'INFO:     unknown - "POST /pre%20dict HTTP/1.1" {said} 12.3ms 2048B request=mine'
    )
    assert not {"key", "model", "version"} & set(json.loads(JsonLines().format(record)))


def test_a_path_is_quoted_and_cut(caplog: pytest.LogCaptureFixture) -> None:
    path = "/\n\x1b[31m\u202e" + "a" * 2**15
    line = in_text(logged(caplog, exchange(path)))
    assert line.isprintable()
    assert len(line) < MOST_SHOWN + 200


@pytest.mark.parametrize("created", [0.0, 1.5, 999.9996, 1e9 + 0.001, 1764296325.123])
def test_the_time_is_utc_with_milliseconds(created: float) -> None:
    context, line = WithContext(), logging.LogRecord("demur", logging.INFO, __file__, 1, "", None, None)
    line.created = created
    for _ in range(2):  # the second time is remembered
        context.filter(line)
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(created))
        assert line.moment == f"{seconds}.{int(created * 1000) % 1000:03d}Z"  # type: ignore[attr-defined]


def test_no_more_of_a_path_is_spelled_out_than_is_shown(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name in a message of gRPC may have megabytes."""
    spelled = list[int]()

    def spell(path: str) -> str:
        spelled.append(len(path))
        return quote(path)

    monkeypatch.setattr(access_log, "quote", spell)
    logged(caplog, exchange("/" + 100_000 * "\u00e9"))
    assert spelled == [MOST_SHOWN]
