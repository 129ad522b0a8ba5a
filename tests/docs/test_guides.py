"""The tutorial and the how-tos are followed from top to bottom, and print what the pages say."""

import contextlib
import io
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.pages import BIN, GUIDES, blocks, environment, run_line
from tests.support.sockets import free_port

pytestmark = pytest.mark.slow
TUTORIAL, HOWTO = GUIDES
NUMBER = re.compile(r"\d+(?:\.\d+)?")


@pytest.mark.filterwarnings("ignore::FutureWarning:lightning", "ignore::FutureWarning:typing_extensions")  # its own
def test_each_python_block_of_the_how_tos_stands_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "mlflow").as_uri())  # in place of a server
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    follow(HOWTO, lambda: {"__name__": "block"})


def test_the_tutorial_is_one_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    session: dict[str, Any] = {"__name__": "session"}
    follow(TUTORIAL, lambda: session)


def follow(page: Path, names: Any) -> None:
    """Run commands and Python in their order, in the current folder; what Python prints is the next block of text."""
    port, printed, served = free_port(), "", False
    with contextlib.ExitStack() as stack:
        for language, content in blocks(page):
            content = content.replace("8000", str(port))
            if language == "console":
                for line in content.splitlines():
                    if line.startswith("demur serve"):
                        stack.enter_context(serving(line))
                        served = True
                    else:
                        run_line(line, Path.cwd())
            elif language == "python":
                with contextlib.redirect_stdout(io.StringIO()) as output:
                    exec(compile(content, str(page), "exec"), names())
                printed = output.getvalue()
            else:
                assert language == "text"
                assert NUMBER.sub("0", printed).split() == NUMBER.sub("0", content).split()
                said, found = ([float(number) for number in NUMBER.findall(text)] for text in (content, printed))
                assert found == pytest.approx(said, rel=0.2, abs=0.05)  # training differs a little between machines
                printed = ""
    assert served == (page == TUTORIAL)


@contextlib.contextmanager
def serving(line: str) -> Iterator[None]:
    arguments = line.split()
    arguments[0] = str(BIN / "demur")
    with subprocess.Popen(arguments, env=environment(), stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            assert any("running on" in said for said in process.stderr)
            yield
            process.terminate()
            assert process.wait(30) == 0
        finally:
            process.kill()
