"""The site: Sphinx has nothing to warn of, it loads nothing from elsewhere, and the reference has what the code has."""

import re
from pathlib import Path

import pytest

import demur
from docs.site.docstrings import as_restructured_text
from tests.support.server import ROOT

build = pytest.importorskip("docs.site.__main__", reason="sphinx is not installed (make test installs it)").build

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # Sphinx's own; its warnings end in a status

TAG = re.compile("<[^>]+>")
LOADED = re.compile(
    r'<(?:script|img|iframe)[^>]*src="([^"]+)"' r'|<link[^>]*rel="stylesheet"[^>]*href="([^"]+)"',
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site")
    assert build(out) == 0
    return out


def test_every_page_is_there(site: Path) -> None:
    for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("service/*.md")]:
        assert (site / page.relative_to(ROOT)).with_suffix(".html").is_file(), page


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        loaded = LOADED.findall(page.read_text())
        assert not [one for pair in loaded for one in pair if "//" in one], page


def test_the_reference_has_what_the_code_has(site: Path) -> None:
    python, commands, http, metrics = (
        TAG.sub("", (site / f"reference/{name}.html").read_text())
        for name in ("python", "command_line", "http", "metrics")
    )
    for name in demur.__all__:
        assert name == "__version__" or name in python, name
    assert "mlflow.log_model" in python
    assert "demur fit" in commands
    assert "--false-reject-rate" in commands
    assert "/models/{name}/versions/{version}/predict" in http
    assert "demur_predictions" in metrics


def test_docstrings_become_what_they_say() -> None:
    lines = ["Sum of |x| * y, as `f(x)` gives it:", "", "    a*b", "", "* first", "* second"]
    as_restructured_text(None, "", "", None, None, lines)
    assert "\n".join(lines) == "Sum of \\|x\\| \\* y, as ``f(x)`` gives it:\n\n::\n\n    a*b\n\n* first\n* second"
