"""What dependencies would tell others of a user and of the models: nothing.

Of all that Demur imports, onnxruntime, huggingface_hub and MLflow have a telemetry that is on unless a variable says
otherwise. FastAPI's measures for the user's own providers only, and `create_app` switches it off; Ray's is switched off
where the benchmarks start Ray.
"""

import json
import os
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
# What each is imported by, the variable that it reads, and its value by then.
IMPORTED = [
    ("onnxruntime", "import demur.service.inference.predictor", "ORT_DISABLE_TELEMETRY", "1"),
    ("onnxruntime", "import demur.cli", "ORT_DISABLE_TELEMETRY", "1"),
    ("onnxruntime", "import benchmarks.fit.onnx_methods", "ORT_DISABLE_TELEMETRY", "1"),
    ("huggingface_hub", "from demur.service.remote.hub import Hub; Hub('a/b')", "HF_HUB_DISABLE_TELEMETRY", "1"),
    ("mlflow", "import demur.mlflow", "MLFLOW_DISABLE_TELEMETRY", "true"),
]
SWITCHES = {switch for _, _, switch, _ in IMPORTED}
# matplotlib, which draws the report, remembers where this machine's fonts are.
FONT_CACHE = ".cache/matplotlib/"
RECIPE = ROOT / "tests/image/recipe.py"
# The program of a user of MLflow. It writes down which hosts are looked up or called, and stops each call. MLflow's
# telemetry calls in a thread of its own.
LOGGING = """
import json, sys, threading
called = []
def hook(event, arguments):
    if event in ("socket.getaddrinfo", "socket.connect"):
        called.append(str(arguments[0] if event == "socket.getaddrinfo" else arguments[1]))
        raise OSError("the tests use no network")
sys.addaudithook(hook)
{imports}
mlflow.set_tracking_uri({store!r})
with mlflow.start_run():
    info = demur.mlflow.log_model({bundle!r}, name="digits", registered_model_name="digits")
demur.mlflow.load_model(info.model_uri)
client = mlflow.telemetry.get_telemetry_client()
for thread in threading.enumerate():
    if thread.name == "GetTelemetryConfig":
        thread.join()
print(json.dumps({{"client": client is not None, "called": called}}))
"""


def empty_home(home: Path, **extra: str) -> dict[str, str]:
    """The environment of a user who has just come, and who set nothing."""
    variables = environment(HOME=str(home))
    for name in (*SWITCHES, "XDG_CACHE_HOME", "MPLCONFIGDIR"):
        variables.pop(name, None)
    return variables | extra


def serve(home: Path, prefix: Iterable[str] = (), pass_fds: tuple[int, ...] = ()) -> None:
    """Start, answer one request and end."""
    command = [*prefix, sys.executable, "-m", "demur.service", str(GOLDEN / "bundle"), "--port", "0"]
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
        "demur",
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


@pytest.mark.parametrize("set_by_user", [None, "0"])
@pytest.mark.parametrize(("package", "imports", "switch", "off"), IMPORTED)
def test_it_is_off_before_the_import_unless_the_user_sets_it(
    package: str, imports: str, switch: str, off: str, set_by_user: str | None, tmp_path: Path
) -> None:
    """A package is found before the real one, says what that would see, and ends the program."""
    (tmp_path / package).mkdir()
    (tmp_path / package / "__init__.py").write_text(f"import os\nprint(os.environ.get({switch!r}))\nraise SystemExit")
    chosen = {} if set_by_user is None else {switch: set_by_user}
    variables = empty_home(tmp_path, PYTHONPATH=str(tmp_path), **chosen)
    code = f"import sys; sys.path.append({str(ROOT)!r}); {imports}"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], cwd=tmp_path, env=variables, text=True, capture_output=True, timeout=TIMEOUT
    )
    assert done.stdout == f"{set_by_user or off}\n", done.stderr


def log_bundle(home: Path, imports: str, **variables: str) -> tuple[bool, list[str]]:
    """Whether MLflow's telemetry has a client afterwards, and which hosts were called."""
    store = (home.parent / "store").as_uri()
    program = LOGGING.format(imports=imports, store=store, bundle=str(GOLDEN / "bundle"))
    # Without what MLflow takes for a test or for CI, where its telemetry is off anyway.
    alone = {"HOME": str(home), "PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "MLFLOW_ALLOW_FILE_STORE": "true"}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=alone | variables, cwd=home, text=True, capture_output=True, timeout=TIMEOUT)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    return found["client"], found["called"]


def test_mlflow_has_no_telemetry_client_and_calls_nobody(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    assert log_bundle(home, "import demur.mlflow, mlflow") == (False, [])
    assert files_in(home) == []


def test_the_client_of_an_mlflow_that_was_imported_before_is_gone(tmp_path: Path) -> None:
    imports = "import mlflow; assert mlflow.telemetry.get_telemetry_client(); import demur.mlflow"
    assert log_bundle(tmp_path, imports) == (False, [])


def test_a_user_who_wants_the_telemetry_of_mlflow_has_it(tmp_path: Path) -> None:
    """And the program notices it."""
    _, called = log_bundle(tmp_path, "import mlflow, demur.mlflow", MLFLOW_DISABLE_TELEMETRY="false")
    assert any("mlflow" in host for host in called)
