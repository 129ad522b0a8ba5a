"""The pages cannot rot: their commands and code are run, and their JSON answers compared with real ones."""

import itertools
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from filelock import FileLock

from tests.support.javascript import link_modules, needs_javascript, run_javascript
from tests.support.pages import BIN, PAGES, README, blocks, blocks_in, commands, compare, environment, run, run_line
from tests.support.server import ROOT
from tests.support.sockets import free_port

# Run once each, in the order of the pages. What they need is made by those before them.
IN_ORDER = ("demur fit", "demur evaluate", "demur inspect", "demur export", "demur keys", "demur sign")
RUN = ("make demo", "demur serve", "curl -s ", *IN_ORDER)
# Commands that no test can run on any machine, or that another test runs.
ELSEWHERE = {
    "docker compose up --build": "needs a Docker engine; tests/deploy checks the files it reads",
    "docker build --tag demur:0.1.0 .": "make image-test builds this image",
    "docker build --tag demur-offline:0.1.0 --target offline .": "make image-test builds this image",
    "demur push bundles/digits hf://acme/digits": "tests/demur/test_transfer.py runs it",
    "demur serve hf://acme/digits": "tests/service/process/test_uris.py runs it",
    "demur fit net.onnx --data train.npz --held-out held_out.npz --out bundles/net": (
        "tests/offline/recipes/test_from_files.py runs it"
    ),
    "torchrun --nproc-per-node=2 -m demur fit RECIPE.py --out DIR": "tests/offline/recipes/test_imports.py runs it",
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder like a checkout, in which the pages' commands have been run that end by themselves.

    The first of pytest's workers that asks for it makes it, for all of them.
    """
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "pages"
    with FileLock(folder.with_suffix(".lock")):
        if not folder.exists():
            fill(folder)
    return folder


def fill(folder: Path) -> None:
    unfinished = folder.with_suffix(".unfinished")
    unfinished.mkdir()
    (unfinished / "examples").symlink_to(ROOT / "examples")
    for command in dict.fromkeys(commands()):
        if command.startswith(IN_ORDER) and command not in ELSEWHERE:
            assert run_line(command, unfinished)
    unfinished.rename(folder)


@pytest.fixture(scope="module")
def port(place: Path) -> Iterator[int]:
    """The README's `demur serve`, on a free port."""
    (command,) = (command for command in commands() if command.startswith("demur serve") and command not in ELSEWHERE)
    number = free_port()
    arguments = command.replace("8000", str(number)).split()
    arguments[0] = str(BIN / "demur")
    with subprocess.Popen(arguments, cwd=place, env=environment(), stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            assert any("running on" in line for line in process.stderr)
            yield number
            process.terminate()
            assert process.wait(30) == 0
        finally:
            process.kill()


def test_every_command_is_run_here_or_accounted_for() -> None:
    targets = re.findall(r"^([a-z][\w-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for command in commands():
        is_target = command.startswith("make ") and command.split()[1] in targets
        assert command.startswith(RUN) or command in ELSEWHERE or is_target, command


def test_the_readme_is_short_and_starts_with_the_demo() -> None:
    text = README.read_text()
    assert text.count("\n") <= 110
    assert text[: text.index("make demo")].count("\n") < 25
    assert commands()[0] == "make demo"


@pytest.mark.slow
def test_make_demo(tmp_path: Path) -> None:
    """The first command, as a newcomer runs it: both verdicts are shown, and the curl line that repeats them."""
    output = run_line(f"make demo PORT={free_port()} OUT={tmp_path / 'digits'}", ROOT)
    assert (tmp_path / "digits" / "manifest.json").is_file()
    assert "An ordinary digit" in output
    assert output.index("accepted") < output.index("Something that is no digit") < output.index("REJECTED")
    assert output.count("curl -s http://127.0.0.1:") == 2
    for word in ("accuracy", "subnetwork", "prior precision", "threshold"):
        assert word in output


def test_curl_answers(port: int, place: Path) -> None:
    """Each curl line gives the JSON of the next block."""
    asked = 0
    for page in PAGES:
        found = blocks(page)
        for (_, line), (language, answer) in itertools.pairwise(found):
            if line.startswith("curl"):
                assert language == "json", line
                received = json.loads(run_line(line.replace(":8000", f":{port}"), place))
                compare(received, json.loads(answer), "answer")
                asked += 1
    assert asked == len(blocks_in("json")) == sum(line.startswith("curl") for line in commands()) > 1


def test_python_blocks(port: int, place: Path) -> None:
    for code in blocks_in("python"):
        if "BatchScorer" in code:  # of engines: tests/docs/test_bulk.py runs these
            continue
        output = run([sys.executable, "-c", code.replace(":8000", f":{port}")], place)
        assert "except" not in code or output == "", output  # an error that a block catches would be printed


@pytest.mark.slow
@needs_javascript
def test_javascript_blocks(place: Path) -> None:
    found = blocks_in("javascript")
    assert found
    link_modules(place)
    for number, code in enumerate(found):
        script = place / f"block{number}.mjs"
        script.write_text(code)
        assert "Float64Array(10)" in run_javascript(script, cwd=place)
