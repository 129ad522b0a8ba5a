"""Fit, serve and ask from within a project that has packages of its own called service, offline, tests and docs.

Run by `tests/smoke_offline.sh` with the interpreter under test, in an empty folder; the argument is a recipe.
"""

import importlib
import subprocess
import sys
from pathlib import Path

NEIGHBOURS = ("service", "offline", "tests", "docs")
START_SECONDS = 60


def main(recipe: Path) -> None:
    for name in NEIGHBOURS:
        Path(name).mkdir()
        Path(name, "__init__.py").write_text("WHOSE = 'the project'\n")
    imports = "".join(f"import {name}\nassert {name}.WHOSE == 'the project', {name}\n" for name in NEIGHBOURS)
    text = recipe.read_text()
    docstring, rest = text.split("\n\n", 1)
    Path("recipe.py").write_text(f"{docstring}\n\n{imports}{rest}")
    command = Path(sys.executable).parent / "demur"
    subprocess.run([command, "fit", "recipe.py", "--out", "bundle"], check=True)
    for start in ([command, "serve"], [sys.executable, "-m", "demur.service"]):
        _ask([*map(str, start), "bundle", "--port", "0"])
    sys.path.insert(0, "")
    assert all(importlib.import_module(name).WHOSE == "the project" for name in NEIGHBOURS)
    answer = importlib.import_module("demur").Predictor.load("bundle").predict([[0.0] * 4])
    assert answer.probabilities.shape == (1, 2)
    print(f"neighbours: a bundle fitted, served and asked beside packages called {', '.join(NEIGHBOURS)}")


def _ask(command: list[str]) -> None:
    client = importlib.import_module("demur").Client
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            line = next(line for line in process.stderr if "running on" in line)
            with client(line.split("running on ")[1].split()[0]) as service:
                assert len(service.predict([[0.0] * 4]).predictions) == 1
        finally:
            process.terminate()
            assert process.wait(START_SECONDS) == 0


if __name__ == "__main__":
    main(Path(sys.argv[1]))
