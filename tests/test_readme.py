"""The README cannot rot: its commands and code are run, and its JSON answers compared with real ones."""

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from service.settings import PREFIX, Settings

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
BIN = Path(sys.executable).parent
# What cannot be run by a test on any machine, and what checks it instead.
ELSEWHERE = {"docker compose up --build": "needs a Docker engine; tests/deploy checks the files it reads"}


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def commands() -> list[str]:
    return [line for block in blocks("console") for line in block.strip().splitlines()]


def environment() -> dict[str, str]:
    return {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def run(command: str, cwd: Path) -> str:
    done = subprocess.run(
        ["bash", "-c", command], cwd=cwd, env=environment(), capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder like a checkout, in which the README's fit, evaluate and inspect have been run."""
    folder = tmp_path_factory.mktemp("readme")
    (folder / "examples").symlink_to(ROOT / "examples")
    for command in commands():
        if command.startswith(("probity fit", "probity evaluate", "probity inspect")):
            assert run(command, folder)
    return folder


@pytest.fixture(scope="module")
def port(place: Path) -> Iterator[int]:
    """The README's `probity serve`, on a free port."""
    (command,) = (command for command in commands() if command.startswith("probity serve"))
    number = free_port()
    arguments = command.replace("8000", str(number)).split()
    arguments[0] = str(BIN / "probity")
    with subprocess.Popen(arguments, cwd=place, env=environment(), stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert any("running on" in line for line in process.stderr)
        yield number
        process.terminate()
        assert process.wait(30) == 0


def test_every_command_is_run_here_or_accounted_for() -> None:
    kinds = ("make demo", "probity fit", "probity evaluate", "probity inspect", "probity serve", "curl -s ")
    assert all(command.startswith(kinds) or command in ELSEWHERE for command in commands())
    assert commands()[0] == "make demo"
    assert README[: README.index("make demo")].count("\n") < 25


def test_make_demo(tmp_path: Path) -> None:
    """The first command, as a newcomer runs it: both verdicts are shown, and the curl line that repeats them."""
    output = run(f"make demo PORT={free_port()} OUT={tmp_path / 'digits'}", ROOT)
    assert (tmp_path / "digits" / "manifest.json").is_file()
    assert "An upright digit" in output
    assert output.index("accepted") < output.index("Something that is no digit") < output.index("REJECTED")
    assert output.count("curl -s http://127.0.0.1:") == 2
    for word in ("accuracy", "subnetwork", "prior precision", "threshold"):
        assert word in output


def test_curl_answers(port: int, place: Path) -> None:
    """Each curl line gives the JSON printed below it."""
    lines = [command for command in commands() if command.startswith("curl")]
    answers = [json.loads(block) for block in blocks("json")]
    assert len(lines) == len(answers) == 2
    for line, expected in zip(lines, answers, strict=True):
        found = json.loads(run(line.replace(":8000", f":{port}"), place))
        compare(found, expected, "answer")


def compare(found: Any, expected: Any, where: str) -> None:
    """The same keys, words and flags; numbers alike, as training differs in the last digits between machines."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys(), where
        for key, value in expected.items():
            if key not in ("timing", "digest"):
                compare(found[key], value, f"{where}.{key}")
    elif isinstance(expected, list):
        assert len(found) == len(expected), where
        for i, value in enumerate(expected):
            compare(found[i], value, f"{where}[{i}]")
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=0.1, abs=0.01), where
    elif isinstance(expected, str):
        number = r"\d+\.\d+"
        assert re.sub(number, "", found) == re.sub(number, "", expected), where
    else:
        assert found == expected, where


def test_python_blocks(place: Path) -> None:
    for code in blocks("python"):
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=place, env=environment(), capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr


def test_every_setting_is_documented() -> None:
    for name, field in Settings.model_fields.items():
        (row,) = re.findall(rf"^\| `{PREFIX}{name.upper()}` \|(.*)\|(.*)\|$", README, re.MULTILINE)
        default = "" if field.default is None else str(field.default)
        default = ",".join(field.default) if isinstance(field.default, tuple) else default
        assert (row[0].strip(), row[1].strip()) == (default, field.description)
    assert set(re.findall(rf"`{PREFIX}(\w+)`", README)) - {n.upper() for n in Settings.model_fields} == {
        "BUNDLE_DIR",
        "API_KEY",
    }


def test_linked_files_exist() -> None:
    for target in re.findall(r"\]\((?!https?://)([^)]+)\)", README):
        assert (ROOT / target).exists(), target
