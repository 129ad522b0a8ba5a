"""The service refuses a uvicorn that lacks what it overrides, in one line, before it serves anything."""

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from demur.service.connection.protocol import LimitedProtocol
from demur.service.process.server import Server
from demur.service.process.uvicorn_support import OVERRIDDEN, REQUIREMENT
from tests.support.server import ROOT, environment


@pytest.mark.parametrize(("ours", "theirs"), [(LimitedProtocol, HttpToolsProtocol), (Server, uvicorn.Server)])
def test_every_method_that_is_overridden_is_checked(ours: type, theirs: type) -> None:
    between = ours.mro()[: ours.mro().index(theirs)]
    defined = {name for owner in between for name in vars(owner) if not name.startswith("__")}
    assert defined & set(dir(theirs)) == set(OVERRIDDEN[theirs])


def test_the_requirement_is_the_one_that_is_declared() -> None:
    assert REQUIREMENT in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_uvicorn_without_an_overridden_method_is_refused(workers: str, tmp_path: Path) -> None:
    """Like uvicorn 0.30 to 0.44: without `_start_asgi_task`, the service would start, and its limits would not hold."""
    shutil.copytree(Path(uvicorn.__file__).parent, tmp_path / "uvicorn", ignore=shutil.ignore_patterns("__pycache__"))
    module = tmp_path / "uvicorn/protocols/http/httptools_impl.py"
    module.write_text(module.read_text().replace("_start_asgi_task", "_start_task"))
    done = subprocess.run(
        [sys.executable, "-m", "demur.service", str(ROOT / "tests/golden/v1/bundle"), "--port", "0"],
        cwd=ROOT,
        env=environment(PYTHONPATH=str(tmp_path), DEMUR_WORKERS=workers),
        text=True,
        capture_output=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"error: uvicorn: found version {uvicorn.__version__}, which lacks HttpToolsProtocol._start_asgi_task; "
        f"expected {REQUIREMENT}: pip install '{REQUIREMENT}'\n"
    )
