"""A pytest plugin: the run fails if tests changed anything below the root but sources and caches.

What a test writes belongs into its temporary folder: a run must not replace the bundles, figures or results of the
person who starts it.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

# Tools keep these; a person may edit sources while the tests run.
CACHES = {
    ".git",
    ".venv",
    "__pycache__",
    ".pytest_cache",
    ".mypy_cache",
    ".ruff_cache",
    ".import_linter_cache",
    ".hypothesis",
    ".schemathesis",
    ".coverage",
}
SOURCES = {".py", ".md", ".toml", ".css", ".html"}
State = dict[str, tuple[int, int]]
BEFORE = pytest.StashKey[State]()


def state_of(root: Path) -> State:
    """Size and time of change of every file below the root that is watched."""
    return {str(path.relative_to(root)): (found.st_size, found.st_mtime_ns) for path, found in _files(root)}


def _files(root: Path) -> Iterator[tuple[Path, os.stat_result]]:
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name not in CACHES and not name.endswith(".egg-info")]
        for path in (Path(folder) / name for name in names):
            if path.suffix not in SOURCES and not path.is_symlink():
                yield path, path.stat()


def pytest_sessionstart(session: pytest.Session) -> None:
    if not hasattr(session.config, "workerinput"):  # one process looks, whether there are workers or not
        session.config.stash[BEFORE] = state_of(session.config.rootpath)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    before = session.config.stash.get(BEFORE, None)
    if before is None:
        return
    after = state_of(session.config.rootpath)
    changed = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    if changed:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        shown = ", ".join(changed[:10])
        print(f"\nThe tests changed {len(changed)} files outside their temporary folders: {shown}")
