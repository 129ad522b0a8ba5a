"""Memory and processor time of the service, and how full its queues and its budget of bytes are."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry

from probity.service.monitoring.metrics import Metrics
from probity.service.monitoring.process_use import ProcessUse
from probity.service.settings import Settings
from tests.support.bundles import Synthetic
from tests.support.server import Server, running


def found(registry: CollectorRegistry, name: str) -> float:
    value = registry.get_sample_value(f"probity_{name}")
    assert value is not None
    return value


def test_what_a_process_uses() -> None:
    use = ProcessUse(Metrics(registry := CollectorRegistry()), queue_rows=7, pending_bytes=100)
    use.measure(30)
    assert found(registry, "queue_limit_rows") == 7
    assert found(registry, "pending_bytes") == 30
    assert found(registry, "pending_limit_bytes") == 100
    assert found(registry, "process_memory_bytes") > 2**20
    before = found(registry, "process_cpu_seconds_total")
    assert before > 0
    sum(range(10**6))
    use.measure(0)
    assert found(registry, "pending_bytes") == 0
    assert found(registry, "process_cpu_seconds_total") > before


def sample(server: Server, name: str) -> float:
    lines = server.request("GET", "/metrics")[2].decode().splitlines()
    (line,) = (line for line in lines if line.startswith(f"probity_{name} "))
    return float(line.split()[-1])


def until(condition: Callable[[], bool]) -> None:
    """The test's own timeout is the deadline."""
    while not condition():
        pass


def test_the_limits_of_several_processes_add_up(classification: Synthetic) -> None:
    with running(classification.path, PROBITY_WORKERS="2") as server:
        until(lambda: sample(server, "queue_limit_rows") == 2 * Settings().max_queue_rows)
        until(lambda: sample(server, "process_memory_bytes") > 2**20)
        assert sample(server, "pending_limit_bytes") == 2 * Settings().max_pending_bytes
