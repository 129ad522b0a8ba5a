"""What a program that only asks has to load."""

import subprocess
import sys

from tests.support.server import ROOT, environment

HEAVY = ("numpy", "onnxruntime", "fastapi", "starlette", "uvicorn", "PIL", "prometheus_client", "torch")


def test_the_client_loads_nothing_of_the_service_behind_the_api() -> None:
    code = f"import demur.service.client, sys; print([name for name in {HEAVY!r} if name in sys.modules])"
    command = [sys.executable, "-W", "error", "-c", code]
    ended = subprocess.run(command, cwd=ROOT, env=environment(), text=True, capture_output=True, check=True)
    assert ended.stdout.strip() == "[]"
