"""What onnxruntime would tell others of a user's models: nothing, in the service and in the offline job."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from tests.support.network import Traced, can_trace, files_in
from tests.support.server import ROOT, RUNNING, Server, environment

pytestmark = pytest.mark.slow

TIMEOUT = 300
GOLDEN = ROOT / "tests/golden/v1"
SWITCH = "ORT_DISABLE_TELEMETRY"
# matplotlib, which draws the report, remembers where this machine's fonts are.
FONT_CACHE = ".cache/matplotlib/"
RECIPE = ROOT / "tests/image/recipe.py"
# A package that is found before the real one and says what that would see when it is imported.
WITNESS = {
    "onnxruntime/__init__.py": f"import os; print(os.environ.get({SWITCH!r}))",
    "onnxruntime/capi/__init__.py": "",
    "onnxruntime/capi/onnxruntime_pybind11_state.py": "InvalidArgument = ValueError",
}


def empty_home(home: Path, **extra: str) -> dict[str, str]:
    """The environment of a user who has just come, and who set nothing."""
    variables = environment(HOME=str(home))
    for name in (SWITCH, "XDG_CACHE_HOME", "MPLCONFIGDIR"):
        variables.pop(name, None)
    return variables | extra


def serve(home: Path, prefix: Iterable[str] = (), pass_fds: tuple[int, ...] = ()) -> None:
    """Start, answer one request and end."""
    command = [*prefix, sys.executable, "-m", "probity.service", str(GOLDEN / "bundle"), "--port", "0"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    process = subprocess.Popen(command, cwd=ROOT, env=empty_home(home), text=True, pass_fds=pass_fds, **pipes)  # type: ignore[call-overload]
    server = Server(process)
    try:
        server.port = int(server.wait_for(RUNNING)[1])
        inputs = json.loads((GOLDEN / "answers.json").read_text())["inputs"]
        body = json.dumps({"inputs": inputs}).encode()
        status, _, answer = server.request("POST", "/predict", body, {"Content-Type": "application/json"})
        assert status == 200, answer
        assert server.terminate() == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def fit(home: Path, prefix: Iterable[str] = (), pass_fds: tuple[int, ...] = ()) -> None:
    """Fit, export, verify and report."""
    recipe = home.parent / "recipe.py"
    shutil.copy(RECIPE, recipe)
    command = [
        *prefix,
        sys.executable,
        "-m",
        "probity",
        "fit",
        str(recipe),
        "--out",
        str(home.parent / "bundle"),
    ]
    done = subprocess.run(
        command, cwd=ROOT, env=empty_home(home), text=True, capture_output=True, pass_fds=pass_fds, timeout=TIMEOUT
    )
    assert done.returncode == 0, done.stderr
    assert "verified" in done.stdout


@pytest.mark.parametrize("entry_point", [serve, fit])
def test_no_file_in_an_empty_home_and_no_word_to_another_host(entry_point: Callable[..., None], tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    if can_trace():
        with Traced() as traced:
            entry_point(home, traced.prefix, traced.pass_fds)
        assert traced.strangers() == []
    else:
        entry_point(home)
    assert [file for file in files_in(home) if not file.startswith(FONT_CACHE)] == []
    if not can_trace():
        pytest.skip("only the files were looked at: strace is not installed, or may not trace here")


@pytest.mark.parametrize(("set_by_user", "seen"), [(None, "1"), ("0", "0")])
@pytest.mark.parametrize("module", ["probity.service.predictor", "probity.cli", "benchmarks.fit.onnx_methods"])
def test_it_is_off_before_the_import_unless_the_user_sets_it(
    module: str, set_by_user: str | None, seen: str, tmp_path: Path
) -> None:
    for name, source in WITNESS.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
    chosen = {} if set_by_user is None else {SWITCH: set_by_user}
    variables = empty_home(tmp_path, PYTHONPATH=str(tmp_path), **chosen)
    code = f"import sys; sys.path.append({str(ROOT)!r}); import {module}"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], cwd=tmp_path, env=variables, text=True, capture_output=True, timeout=TIMEOUT
    )
    assert done.stdout == f"{seen}\n", done.stderr
