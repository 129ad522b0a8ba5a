"""The guard over the working tree: quiet about caches and temporary folders, loud about anything else."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
HARMLESS = "def test(tmp_path):\n    (tmp_path / 'bundle').write_text('x')\n"
HARMFUL = {
    "replaced": "def test():\n    open('bundles/digits/manifest.json', 'w').write('{ }')\n",
    "new": "def test():\n    open('bundles/other.json', 'w').write('{}')\n",
    "removed": "import os\ndef test():\n    os.remove('bundles/digits/manifest.json')\n",
}


def run(folder: Path, text: str, *options: str) -> "subprocess.CompletedProcess[str]":
    bundle = folder / "bundles" / "digits"
    bundle.mkdir(parents=True)
    (bundle / "manifest.json").write_text("{}")
    (folder / "test_it.py").write_text(text)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "tests.support.tree_guard",
        "--rootdir",
        str(folder),
        "test_it.py",
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [*command, *options], cwd=folder, env=environment, capture_output=True, text=True, timeout=120
    )


@pytest.mark.parametrize("kind", HARMFUL)
def test_a_change_below_the_root_fails_the_run(tmp_path: Path, kind: str) -> None:
    done = run(tmp_path, HARMFUL[kind])
    assert done.returncode == 1, done.stdout
    assert "1 passed" in done.stdout
    assert "The tests changed 1 files outside their temporary folders: bundles/" in done.stdout


def test_also_a_worker_processes_change(tmp_path: Path) -> None:
    done = run(tmp_path, HARMFUL["new"], "-n", "1")
    assert done.returncode == 1, done.stdout
    assert "bundles/other.json" in done.stdout


def test_temporary_folders_and_caches_do_not_count(tmp_path: Path) -> None:
    done = run(tmp_path, HARMLESS)
    assert done.returncode == 0, done.stdout


def test_this_run_has_a_home_of_its_own() -> None:
    """Whatever a library keeps in the home folder is kept in one that goes when the run ends."""
    assert Path.home().name.startswith("home-of-the-tests-")
    assert not list(Path.home().glob(".ssh"))
