"""Closed loop: `wrk` keeps so many connections busy with one fixed request, and counts."""

import json
import resource
import shutil
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.core.harness import MeasurementError
from benchmarks.serving.digits import Request
from benchmarks.serving.process import ServerProcess
from benchmarks.serving.tree import cpu_seconds

ROWS_IN_FLIGHT, LEAST_CONNECTIONS = 256, 16
SCRIPT = """
local file = assert(io.open({body}, "rb"))
wrk.method, wrk.path, wrk.body = "POST", {path}, file:read("*a")
file:close()
{headers}
done = function(summary, latency, requests)
  local e = summary.errors
  io.write(string.format(
    '\\n{{"requests": %d, "microseconds": %d, "p50": %d, "p99": %d, "connect": %d, "read": %d, "write": %d, ' ..
    '"timeout": %d, "status": %d}}\\n',
    summary.requests, summary.duration, latency:percentile(50), latency:percentile(99),
    e.connect, e.read, e.write, e.timeout, e.status))
end
"""


@dataclass(frozen=True)
class Saturation:
    """`server_cores`, `client_cores`: processors that each kept busy, on average; latencies in seconds."""

    requests_per_second: float
    examples_per_second: float
    connections: int
    p50: float
    p99: float
    errors: dict[str, int]
    server_cores: float
    client_cores: float

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def connections_for(request: Request) -> int:
    """So many that full batches wait while one is computed."""
    return max(LEAST_CONNECTIONS, ROWS_IN_FLIGHT // request.rows)


def saturate(
    server: ServerProcess, request: Request, seconds: float, scratch: Path, connections: int | None = None
) -> Saturation:
    """What the server answers when asked without a pause; `connections` None: enough for full batches."""
    script = write_script(request, scratch)
    connections = connections or connections_for(request)
    command = [find_wrk(), "-t1", f"-c{connections}", f"-d{seconds:g}s", "--timeout", "30s", "-s", str(script)]
    server_before, client_before = cpu_seconds(server.pid), children_seconds()
    found = subprocess.run([*command, f"http://127.0.0.1:{server.port}"], capture_output=True, text=True, check=False)
    if found.returncode:
        raise MeasurementError(f"wrk: found exit status {found.returncode}: {found.stderr.strip()[:300]}")
    summary = json.loads(found.stdout.strip().splitlines()[-1])
    elapsed = summary["microseconds"] / 1e6
    errors = {kind: summary[kind] for kind in ("connect", "read", "write", "timeout", "status")}
    rate = (summary["requests"] - errors["status"]) / elapsed
    return Saturation(
        requests_per_second=rate,
        examples_per_second=rate * request.rows,
        connections=connections,
        p50=summary["p50"] / 1e6,
        p99=summary["p99"] / 1e6,
        errors=errors,
        server_cores=(cpu_seconds(server.pid) - server_before) / elapsed,
        client_cores=(children_seconds() - client_before) / elapsed,
    )


def find_wrk() -> str:
    found = shutil.which("wrk")
    if found is None:
        raise MeasurementError("found no 'wrk' on PATH, which makes the load; install it (apt-get install wrk)")
    return found


def write_script(request: Request, scratch: Path) -> Path:
    body, script = scratch / "wrk-body", scratch / "wrk.lua"
    body.write_bytes(request.body)
    headers = "\n".join(f"wrk.headers[{_lua(name)}] = {_lua(value)}" for name, value in request.headers)
    script.write_text(SCRIPT.format(body=_lua(str(body)), path=_lua(request.path), headers=headers))
    return script


def children_seconds() -> float:
    """Processor time of the children that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _lua(text: str) -> str:
    """A Lua string: JSON's escapes are Lua's, for plain text."""
    return json.dumps(text)
