"""The simulated day: its shape, its clients, its samples, and when an alert counts as fired."""

import asyncio
import io
import shutil
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from benchmarks.serving.day.alerts import alerts, duration, firing
from benchmarks.serving.day.bundles import NOISE, Population
from benchmarks.serving.day.draw import draw
from benchmarks.serving.day.panels import SHOWN, filled, legend, panels, rounded
from benchmarks.serving.day.plan import DRIFT, EVENTS, MALFORMED, MINUTES, PEAK, clock, requests_by_minute
from benchmarks.serving.day.prometheus import prometheus_of
from benchmarks.serving.day.recording import START, Recording
from benchmarks.serving.day.run import memory
from benchmarks.serving.day.traffic import CONNECTIONS, Batch, Clients, Requests
from benchmarks.serving.digits import binary
from benchmarks.serving.outcomes import CONNECT
from benchmarks.serving.process import free_port

Ports = list[int]


@pytest.mark.parametrize("total", [1_000_000, 10_001, 7])
def test_a_day_has_as_many_requests_as_asked_for(total: int) -> None:
    counts = requests_by_minute(total)
    assert (len(counts), sum(counts)) == (MINUTES, total)
    assert min(counts) >= 0


def test_most_is_asked_at_the_peak_and_least_in_the_night() -> None:
    counts = np.array(requests_by_minute(1_000_000))
    assert abs(int(counts.argmax()) - PEAK) < 60
    assert counts.max() / counts.min() == pytest.approx(1.7 / 0.3, rel=0.02)


def test_events_are_in_order_and_within_the_day() -> None:
    assert [event.minute for event in EVENTS] == sorted(event.minute for event in EVENTS)
    assert all(event.minute < (event.end or MINUTES) <= MINUTES for event in EVENTS)
    assert (clock(0), clock(DRIFT.start), clock(MINUTES)) == ("00:00", "12:00", "24:00")


@pytest.mark.parametrize(
    ("minutes", "hold", "expected"),
    [
        ([], 0, []),
        ([5], 0, [(5, 6)]),
        ([5, 6], 2, []),
        ([5, 6, 7], 2, [(7, 8)]),
        ([5, 6, 8, 9, 10], 2, [(10, 11)]),
        ([1, 2, 3, 7, 8, 9, 10], 2, [(3, 4), (9, 11)]),
        (range(MINUTES - 5, MINUTES + 1), 5, [(MINUTES, None)]),
    ],
)
def test_an_alert_fires_once_its_condition_has_held(
    minutes: list[int], hold: int, expected: list[tuple[int, int | None]]
) -> None:
    assert firing(minutes, hold) == expected


def test_durations() -> None:
    assert [duration(text) for text in ("30s", "5m", "1h", "1h30m", "1d")] == [30, 300, 3600, 5400, 86400]


def test_a_scrape_becomes_samples_at_the_simulated_time() -> None:
    stream = io.StringIO()
    recording = Recording(stream)
    recording.take(2, "a:1", '# HELP x y\nplain 1.0\nlabelled{route="/models/{name}",le="+Inf"} 2.5\n')
    recording.take(2, "b:1", None)
    recording.end()
    moment = START + 120
    assert stream.getvalue().splitlines() == [
        f'up{{job="demur",instance="a:1"}} 1 {moment}',
        f'plain{{job="demur",instance="a:1"}} 1.0 {moment}',
        f'labelled{{job="demur",instance="a:1",route="/models/{{name}}",le="+Inf"}} 2.5 {moment}',
        f'up{{job="demur",instance="b:1"}} 0 {moment}',
        "# EOF",
    ]
    assert recording.samples == 4


def test_queries_are_filled_and_legends_named_as_grafana_does() -> None:
    found = filled('rate(a{job=~"$job", model="$model"}[$__rate_interval]) + b[$window]')
    assert found == 'rate(a{job=~"demur", model="digits"}[6m]) + b[30m]'
    assert legend("v{{version}} {{label}}", {"version": "2"}) == "v2 "
    assert (rounded(1.23456), rounded(float("nan")), rounded(None)) == (1.235, None, None)


def test_memory_of_a_replica_that_was_down() -> None:
    found = memory([1, 5, None, 3, *[2] * 117])
    assert (found["start"], found["end"], found["peak"]) == (1, 2, 5)
    assert len(found["hourly"]) == 3
    assert found["points"][:2] == [1, 5]
    assert memory([1, *[None] * 5])["points"] == [1, None]


def test_no_two_images_are_the_same_and_turned_ones_are_turned() -> None:
    population = Population(0)
    usual, labels = population.draw(2000)
    assert usual.shape == (2000, 1, 8, 8)
    assert usual.dtype == np.float32
    assert len(labels) == 2000
    assert len(np.unique(usual.reshape(2000, -1), axis=0)) == 2000
    nearest = [np.abs(population.images - image).mean(axis=(1, 2, 3)).min() for image in usual[:50]]
    turned = [np.abs(population.images - image).mean(axis=(1, 2, 3)).min() for image in population.draw(50, True)[0]]
    assert max(nearest) < NOISE
    assert np.mean(turned) > 1.5 * np.mean(nearest)


def test_requests_of_a_minute_and_the_labels_that_follow() -> None:
    requests = Requests(0)
    batch = requests.predictions(0, 400)
    whole = binary(1).wire()
    assert {len(wire) for wire in batch.wires} == {len(whole)}
    assert 5 < len(batch.labels) < 50
    requests.learn(0, batch, dict.fromkeys(batch.labels, b'{"parameters":{"receipt":"abc.d"}}'))
    due = [minute for minute in range(MINUTES) for _ in requests.labels(minute).wires]
    assert len(due) == len(batch.labels)
    assert min(due) >= 120
    assert max(due) <= 240
    requests.learn(MINUTES - 1, batch, dict.fromkeys(batch.labels, b'{"receipt":"abc.d"}'))
    assert requests.unlabelled == len(batch.labels)
    some = requests.predictions(MALFORMED.start, 400).wires
    assert 40 < sum(not wire.startswith(whole[:200]) or len(wire) != len(whole) for wire in some) < 120


@pytest.fixture
def ports() -> Iterator[Ports]:
    """Two servers that answer with what they were sent, but 404 to what begins with x; every third closes then."""

    class Echo(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(404 if body.startswith(b"x") else 200)
            self.send_header("Content-Length", str(len(body)))
            if body.endswith(b"3"):
                self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            pass

    servers = [ThreadingHTTPServer(("127.0.0.1", 0), Echo) for _ in range(2)]
    threads = [threading.Thread(target=one.serve_forever, kwargs={"poll_interval": 0.01}) for one in servers]
    for thread in threads:
        thread.start()
    yield [one.server_port for one in servers]
    for one, thread in zip(servers, threads, strict=True):
        one.shutdown()
        one.server_close()
        thread.join()


def _wire(body: str) -> bytes:
    return f"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()


def test_clients_send_all_and_keep_the_answers_to_be_labelled(ports: Ports) -> None:
    count = 10 * CONNECTIONS
    batch = Batch([_wire(f"{'x' if number == 6 else 'a'}{number}") for number in range(count)], {4: "", 6: "", 33: ""})

    async def twice() -> None:
        clients = Clients()
        for _ in range(2):  # over the same connections
            outcomes, bodies = await clients.send(batch, ports)
            assert [number for number, outcome in enumerate(outcomes) if outcome != 200] == [6]
            assert bodies == {4: b"a4", 33: b"a33"}
        assert await clients.send(Batch(), ports) == ([], {})
        await clients.close()

    asyncio.run(twice())


def test_a_replica_that_is_not_there_is_an_outcome(ports: Ports) -> None:
    batch = Batch([_wire(f"a{number}") for number in range(40)])

    async def once() -> list[int]:
        clients = Clients()
        outcomes, _ = await clients.send(batch, [ports[0], free_port()])
        await clients.close()
        return outcomes

    assert asyncio.run(once()) == [200, CONNECT] * 20


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not on PATH (Debian package: prometheus)")
def test_a_real_prometheus_says_when_alerts_fired(tmp_path: Path) -> None:
    """Drift alarms from 12:00 to 12:09, and an instance that is away from 20:01 to 20:05."""
    samples = tmp_path / "samples.txt"
    with samples.open("w") as stream:
        recording = Recording(stream)
        for minute in range(MINUTES + 1):
            alarms = min(10, max(0, minute - 719))
            counted = f'demur_drift_alarms_total{{model="digits",version="2"}} {alarms}'
            scrape = f"{counted}\ndemur_http_requests_in_flight 0\n"
            recording.take(minute, "a:1", scrape)
            recording.take(minute, "b:1", None if 1201 <= minute <= 1205 else scrape)
        recording.end()
    with prometheus_of(samples, tmp_path) as prometheus:
        found, shown = alerts(prometheus), panels(prometheus)
    assert [(one["alert"], one["labels"], one["fired_at"], one["cleared"]) for one in found] == [
        ("DemurDrift", {"version": "2"}, "12:01", 789),
        ("DemurTargetDown", {"instance": "b:1"}, "20:03", 1206),
    ]
    assert list(shown) == [title for titles in SHOWN.values() for title in titles]
    assert set(shown["Evidence of drift"]) == {"v2 alarms"}
    replica = memory([2**27] * (MINUTES + 1))
    record = {
        "quick": False,
        "every_minutes": 5,
        "events": [{"minute": event.minute, "end": event.end, "name": event.name} for event in EVENTS],
        "alerts": found,
        "panels": shown,
        "memory": {"a:1": replica, "b:1": replica},
    }
    draw(record, tmp_path / "day.png")
    assert (tmp_path / "day.png").stat().st_size > 10_000
