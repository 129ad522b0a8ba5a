"""What /openapi.json promises, asked of a running server by schemathesis."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.bundles import Synthetic
from tests.support.server import environment, running

pytestmark = pytest.mark.slow

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
)
EXAMPLES = 3
SECONDS = 300


@pytest.mark.parametrize("which", ["images", "regression"])
def test_answers_are_what_the_schema_says(which: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    synthetic: Synthetic = request.getfixturevalue(which)
    with running(synthetic.path) as server:
        ended = subprocess.run(
            [
                Path(sys.executable).with_name("schemathesis"),
                "run",
                f"http://127.0.0.1:{server.port}/openapi.json",
                f"--checks={','.join(CHECKS)}",
                f"--max-examples={EXAMPLES}",
                "--phases=coverage,fuzzing",
                "--generation-deterministic",
                "--no-color",
            ],
            cwd=tmp_path,
            env=environment(),
            text=True,
            capture_output=True,
            timeout=SECONDS,
            check=False,
        )
        assert ended.returncode == 0, ended.stdout[-5000:] + ended.stderr[-2000:]
        assert not [line for line in server.lines if "Traceback" in line or " 500 " in line]
