"""The pages cannot rot: their commands and code are run, and their JSON answers compared with real ones.

The guides are followed by tests/docs/test_guides.py. What nothing here runs stands in `ELSEWHERE`, with the reason.
"""

import itertools
import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from filelock import FileLock
from opentelemetry.sdk import environment_variables

from demur.service.settings import PREFIX, Settings
from tests.support.javascript import link_modules, needs_javascript, run_javascript
from tests.support.pages import (
    ALL_PAGES,
    BIN,
    GUIDES,
    README,
    blocks,
    blocks_in,
    commands,
    compare,
    environment,
    run,
    run_line,
)
from tests.support.server import ROOT
from tests.support.sockets import free_port

# Run once each, in the order of the pages. What they need is made by those before them.
IN_ORDER = ("demur fit", "demur evaluate", "demur inspect", "demur export", "demur keys", "demur sign")
RUN = ("make demo", "demur serve", "curl -s ", *IN_ORDER)
HERE = "console", "python", "javascript", "json", "sh"
GUIDED = "console", "python", "text"
DRAWING = (
    "trained network + data ──▶ fit (offline/) ──▶ bundle ──▶ service (service/) ──▶ probabilities, variances, "
    "reject flags"
)
# What no test can run on any machine, or another test runs: a command, a line of a block, or the language of blocks.
ELSEWHERE = {
    DRAWING: "a drawing of the two programs",
    "docker compose up --build": "needs a Docker engine; tests/deploy checks the files it reads",
    "docker build --tag demur:0.1.0 .": "make image-test builds this image",
    "docker build --tag demur-offline:0.1.0 --target offline .": "make image-test builds this image",
    "demur push bundles/digits hf://acme/digits": "tests/demur/test_transfer.py runs it",
    "demur serve hf://acme/digits": "tests/service/process/test_uris.py runs it",
    "demur fit net.onnx --data train.npz --held-out held_out.npz --out bundles/net": (
        "tests/offline/recipes/test_from_files.py runs it"
    ),
    "torchrun --nproc-per-node=2 -m demur fit RECIPE.py --out DIR": "tests/offline/recipes/test_imports.py runs it",
    "import ray": "tests/docs/test_bulk.py runs it",
    "import dask.dataframe": "tests/docs/test_bulk.py runs it",
    'spark.read.parquet("patients.parquet").mapInPandas(scored, columns).write.parquet("rows")': (
        "tests/docs/test_bulk.py runs it where there are pyspark and Java"
    ),
    "kind: Kustomization": "tests/deploy/test_cluster.py builds it",
    '{"receipt": "ZGlnaXRzADEA...", "labels": ["7", null, "3"]}': (
        "shows a receipt shortened; tests/service/test_feedback.py sends whole ones"
    ),
    '{"algorithm": "ed25519", "key_id": "0123456789abcdef", "signature": "..."}': (
        "shows a signature shortened; tests/service/security/test_signing.py writes and reads whole ones"
    ),
    "mermaid": "drawings, which tests/docs/test_rooms.py compares with the imports",
    "{toctree}": "contents of the site, which tests/docs/test_site.py builds",
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


def is_elsewhere(language: str, content: str) -> bool:
    return not ELSEWHERE.keys().isdisjoint([language, *content.splitlines()])


def unaccounted(language: str, content: str) -> list[str]:
    """What of a block neither is run here nor stands in `ELSEWHERE`."""
    if language != "console":
        return [] if language in HERE or is_elsewhere(language, content) else [content]
    targets = re.findall(r"^([a-z][\w-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    run = (*RUN, *(f"make {target}" for target in targets))
    return [line for line in content.splitlines() if line not in ELSEWHERE and not line.startswith(run)]


@pytest.mark.parametrize("page", ALL_PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_block_is_run_or_accounted_for(page: Path) -> None:
    for language, content in blocks(page):
        assert language in GUIDED if page in GUIDES else not unaccounted(language, content), content


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("```console\ndemur new thing\n```", "console"),
        ("* one:\n\n  ```sql\n  select 1\n  ```", "sql"),
        ("~~~\nanything\n~~~", ""),
        ("So:\n\n    demur new thing", ""),
        ("> ```text\n> words\n> ```", "text"),
    ],
)
def test_a_new_block_must_be_accounted_for(text: str, language: str, tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text(f"# Page\n\n{text}\n")
    ((found, content),) = blocks(tmp_path / "page.md")
    assert found == language
    assert unaccounted(found, content)


def test_what_is_elsewhere_is_on_a_page_and_its_test_is_there() -> None:
    found = [block for page in ALL_PAGES if page not in GUIDES for block in blocks(page)]
    lines = Counter(line for language, content in found for line in {language, *content.splitlines()})
    assert ELSEWHERE.keys() <= lines.keys()
    commands_and_languages = {*commands(), *(language for language, _ in found)}
    assert all(lines[key] == 1 for key in ELSEWHERE.keys() - commands_and_languages)  # a line tells its block
    for reason in ELSEWHERE.values():
        assert all((ROOT / path).exists() for path in re.findall(r"tests/[\w/.]*\w", reason)), reason


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
    for page in ALL_PAGES:
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
        if is_elsewhere("python", code):
            continue
        output = run([sys.executable, "-c", code.replace(":8000", f":{port}")], place)
        assert "except" not in code or output == "", output  # an error that a block catches would be printed


def test_variables_are_those_of_the_service_and_of_opentelemetry(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [line.partition("=") for block in blocks_in("sh") for line in block.splitlines()]
    for name, _, value in found:
        monkeypatch.setenv(name, value)
        assert name.startswith(PREFIX) or name in vars(environment_variables), name
    settings = Settings()
    assert {name.removeprefix(PREFIX).lower() for name, _, _ in found if name.startswith(PREFIX)} == {"traces"}
    assert settings.traces


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
