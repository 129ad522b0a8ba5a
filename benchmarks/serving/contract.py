"""Test a running server against its /openapi.json with schemathesis: thousands of requests, good and bad.

The model's name and version are fixed: random ones would nearly always be a 404.
"""

import json
import re
import subprocess
import sys
import urllib.request
from pathlib import Path

from benchmarks.core.harness import MeasurementError
from benchmarks.core.settings import Settings, Values
from benchmarks.serving.digits import PREDICT, Request, features
from benchmarks.serving.fitted import bundle
from benchmarks.serving.process import probity

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
)
PHASES = ("coverage", "fuzzing")
REQUESTS = re.compile(r'^probity_http_requests_total\{.*status="(\d+)"\} (\S+)$', re.MULTILINE)
LOG_TAIL = 1500
EXAMPLES = ("digits", "diabetes")  # a classification of images, a regression on ten features


def run(settings: Settings) -> Values:
    """One server after the other, each with its defaults."""
    examples = settings.choose(300, 2)
    names = settings.track(EXAMPLES, "Servers", len(EXAMPLES))
    found = {name: asked(settings, name, examples) for name in names}
    return {
        "checks": CHECKS,
        "phases": PHASES,
        "examples_per_operation_and_phase": examples,
        "cases": sum(one["test_cases"]["generated"] for one in found.values()),
        "server_errors": sum(one["server_errors"] for one in found.values()),
        "passed": all(one["passed"] for one in found.values()),
        "servers": found,
    }


def asked(settings: Settings, name: str, examples: int) -> Values:
    """What became of all requests to one server; what it answered is counted by its own metrics."""
    scratch = settings.scratch
    ready = features() if name == "digits" else Request("zeros", PREDICT, json.dumps({"inputs": [0] * 10}).encode())
    with probity(bundle(name), log := scratch / "contract.log", ready, settings.threads) as server:
        report = tested(server.port, name, examples, scratch)
        statuses = answered(server.port)
        alive = server.process.poll() is None
    errors = sum(count for status, count in statuses.items() if status >= "500")
    tracebacks = log.read_text(errors="replace").count("Traceback")
    return {
        "passed": report["exit_code"] == 0 and alive and not errors and not tracebacks,
        "server_errors": errors,
        "tracebacks": tracebacks,
        "process_alive": alive,
        "answers": statuses,
        **{key: report[key] for key in ("schemathesis_version", "operations", "test_cases", "failures", "errors")},
    }


def tested(port: int, name: str, examples: int, scratch: Path) -> Values:
    """The report of one run."""
    config, report = scratch / "schemathesis.toml", scratch / "contract.json"
    config.write_text(f'[parameters]\n"path.name" = "{name}"\n"path.version" = "1"\n')
    command = [
        str(Path(sys.executable).with_name("schemathesis")),
        f"--config-file={config}",
        "run",
        f"http://127.0.0.1:{port}/openapi.json",
        f"--checks={','.join(CHECKS)}",
        f"--phases={','.join(PHASES)}",
        f"--max-examples={examples}",
        "--continue-on-failure",
        "--generation-deterministic",
        f"--report-json-path={report}",
    ]
    ended = subprocess.run(command, cwd=scratch, text=True, capture_output=True, check=False)
    if not report.exists():
        raise MeasurementError(f"schemathesis: found exit status {ended.returncode}: {ended.stderr[-LOG_TAIL:]}")
    found: Values = json.loads(report.read_text())
    return found


def answered(port: int) -> dict[str, int]:
    """Requests by the status of their answer."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as response:
        text = response.read().decode()
    counts: dict[str, int] = {}
    for status, count in REQUESTS.findall(text):
        counts[status] = counts.get(status, 0) + int(float(count))
    return dict(sorted(counts.items()))
