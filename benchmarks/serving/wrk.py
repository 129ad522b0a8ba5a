"""Closed loop: `wrk` keeps so many connections busy with one fixed request, and counts."""

import json
import shutil
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.core.harness import MeasurementError
from benchmarks.serving.digits import Request
from benchmarks.serving.process import ServerProcess

ROWS_IN_FLIGHT, LEAST_CONNECTIONS = 256, 16
SCRIPT = """
local file = assert(io.open({body}, "rb"))
wrk.method, wrk.path, wrk.body = "POST", {path}, file:read("*a")
file:close()
{headers}
{patience}
done = function(summary, latency, requests)
  local e = summary.errors
  io.write(string.format(
    '\\n{{"requests": %d, "microseconds": %d, "connect": %d, "read": %d, "write": %d, "timeout": %d, "status": %d}}\\n',
    summary.requests, summary.duration, e.connect, e.read, e.write, e.timeout, e.status))
end
"""

# Of a thread: as many requests as were refused wait a second each.
PATIENCE = """
local refused = 0
response = function(status) if status == 429 or status == 503 then refused = refused + 1 end end
delay = function()
  if refused == 0 then return 0 end
  refused = refused - 1
  return 1000
end
"""


@dataclass(frozen=True)
class Saturation:
    """What was answered with 200, and errors by their kind."""

    seconds: float
    requests_per_second: float
    examples_per_second: float
    connections: int
    errors: dict[str, int]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def connections_for(request: Request) -> int:
    """So many that full batches wait while one is computed."""
    return max(LEAST_CONNECTIONS, ROWS_IN_FLIGHT // request.rows)


def saturate(
    server: ServerProcess,
    request: Request,
    seconds: float,
    scratch: Path,
    connections: int | None = None,
    *,
    patient: bool = False,
) -> Saturation:
    """What the server answers when asked without a pause; `connections` None: enough for full batches. patient: who is
    refused waits for a second."""
    script = write_script(request, scratch, PATIENCE if patient else "")
    connections = connections or connections_for(request)
    command = [find_wrk(), "-t1", f"-c{connections}", f"-d{seconds:g}s", "--timeout", "30s", "-s", str(script)]
    found = subprocess.run([*command, f"http://127.0.0.1:{server.port}"], capture_output=True, text=True, check=False)
    if found.returncode:
        raise MeasurementError(f"wrk: found exit status {found.returncode}: {found.stderr.strip()[:300]}")
    summary = json.loads(found.stdout.strip().splitlines()[-1])
    elapsed = summary["microseconds"] / 1e6
    errors = {kind: summary[kind] for kind in ("connect", "read", "write", "timeout", "status")}
    rate = (summary["requests"] - errors["status"]) / elapsed
    return Saturation(
        seconds=elapsed,
        requests_per_second=rate,
        examples_per_second=rate * request.rows,
        connections=connections,
        errors=errors,
    )


def find_wrk() -> str:
    found = shutil.which("wrk")
    if found is None:
        raise MeasurementError("found no 'wrk' on PATH, which makes the load; install it (apt-get install wrk)")
    return found


def write_script(request: Request, scratch: Path, patience: str = "") -> Path:
    body, script = scratch / "wrk-body", scratch / "wrk.lua"
    body.write_bytes(request.body)
    headers = "\n".join(f"wrk.headers[{_lua(name)}] = {_lua(value)}" for name, value in request.headers)
    script.write_text(SCRIPT.format(body=_lua(str(body)), path=_lua(request.path), headers=headers, patience=patience))
    return script


def _lua(text: str) -> str:
    """A Lua string: JSON's escapes are Lua's, for plain text."""
    return json.dumps(text)
