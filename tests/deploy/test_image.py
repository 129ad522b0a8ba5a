"""The Dockerfile: what is in the images, and how they run."""

import fnmatch
import http.server
import json
import os
import re
import subprocess
import sys
import threading
import tomllib

import pytest

from demur.service.app import create_app
from demur.service.settings import Settings
from tests.support.deployment import (
    ROOT,
    STAGES,
    commands,
    copied,
    environment,
    values,
    without_comments,
)


def test_the_service_image_holds_no_offline_code() -> None:
    assert copied("service") == {"deploy/requirements", "pyproject.toml", "README.md", "LICENSE", "demur", "service"}
    assert not any("offline" in command or "torch" in command for command in commands("service"))
    assert not any(keyword == "ADD" for stage in STAGES.values() for keyword, _ in stage.instructions)


def test_the_service_image_has_no_command_that_needs_offline_code() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert scripts
    assert not [target for target in scripts.values() if target.startswith("offline.")]


def test_the_offline_image_runs_a_command_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (entrypoint,) = values("offline", "ENTRYPOINT")
    assert json.loads(entrypoint)[0] in project["scripts"]
    assert "offline" in copied("offline")
    locks = {lock for command in commands("offline") for lock in re.findall(r"-r \S+/(\w+)\.txt", command)}
    assert locks - {"build"} == {"offline"} <= project["optional-dependencies"].keys()


@pytest.mark.parametrize("target", ["service", "offline"])
def test_no_package_is_installed_without_its_hash(target: str) -> None:
    installs = [
        part for command in commands(target) for part in command.split("&&") if " install " in part and "pip" in part
    ]
    assert installs
    for install in installs:
        assert "--require-hashes" in install or ("--no-deps" in install and "--no-index" in install), install


@pytest.mark.parametrize("target", ["service", "offline"])
def test_what_an_image_copies_exists_and_is_not_ignored(target: str) -> None:
    rules = without_comments((ROOT / ".dockerignore").read_text()).split()
    for source in copied(target):
        assert (ROOT / source).exists(), source
        decisive = [rule for rule in rules if fnmatch.fnmatch(source, rule.removeprefix("!"))][-1]
        assert decisive.startswith("!"), source


@pytest.mark.parametrize("target", ["service", "offline"])
def test_images_do_not_run_as_root(target: str) -> None:
    assert values(target, "USER") == ["10001:10001"]


def test_the_service_starts_the_package_it_ships() -> None:
    (entrypoint,) = values("service", "ENTRYPOINT")
    python, flag, module = json.loads(entrypoint)
    assert (python, flag) == ("python", "-m")
    assert ROOT.joinpath(*module.split("."), "__main__.py").is_file()
    assert list(STAGES)[-1] == "service"


@pytest.mark.parametrize(("status", "healthy"), [(200, True), (503, False), (None, False)])
def test_the_health_check_tells_ready_from_not_ready(status: int | None, healthy: bool) -> None:
    (line,) = values("service", "HEALTHCHECK")
    _, flag, code = json.loads(line.partition("CMD ")[2])
    asked: list[str] = []

    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(status or 500)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Answer) as server:
        port = server.server_port
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        if status is None:
            server.server_close()
        else:
            thread.start()
        # A proxy in the environment must not be asked: nothing listens there.
        environment = {**os.environ, "DEMUR_PORT": str(port), "http_proxy": "http://127.0.0.1:9"}
        try:
            done = subprocess.run([sys.executable, flag, code], env=environment, capture_output=True)
        finally:
            if thread.is_alive():
                server.shutdown()
                thread.join()
    assert (done.returncode == 0) is healthy
    assert asked == ([] if status is None else ["/health/ready"])
    assert "/health/ready" in set(create_app([], Settings()).openapi()["paths"])


@pytest.mark.parametrize("target", ["service", "offline"])
def test_the_telemetry_of_onnxruntime_is_off(target: str) -> None:
    assert environment(target)["ORT_DISABLE_TELEMETRY"] == "1"
