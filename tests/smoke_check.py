"""Serve the golden bundle with this interpreter's `demur` command and compare its answers over HTTP.

Standard library only, so that the environment under test holds nothing but the base install.
"""

import importlib.metadata
import importlib.util
import json
import math
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

START_SECONDS = 60
FORBIDDEN = ("torch", "onnx", "onnxscript", "sklearn", "httpx")


def main(golden: Path) -> None:
    for name in FORBIDDEN:
        assert importlib.util.find_spec(name) is None, f"{name} is installed in the base environment"
    _check_name()
    _check_package()
    command = [str(Path(sys.executable).parent / "demur"), "serve", str(golden / "bundle"), "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            url = _address(process)
            answers = json.loads((golden / "answers.json").read_text())
            _check(_post(f"{url}/predict?detail=full", {"inputs": answers["inputs"]}), answers)
            card = json.loads(urllib.request.urlopen(f"{url}/model", timeout=10).read())
            assert card["digest"] == answers["digest"]
        finally:
            process.terminate()
            assert process.wait(START_SECONDS) == 0
    print("base install: golden bundle served, answers agree, no torch")


def _check_name() -> None:
    """What is installed is ours by name."""
    assert importlib.metadata.metadata("demur")["Name"] == "demur"


def _check_package() -> None:
    """What the base install has can be imported from `demur`; what it has not says which extra brings it."""
    package = importlib.import_module("demur")
    assert package.__version__ == importlib.metadata.version("demur")
    assert package.Predictor.__name__ == "Predictor"
    for name, extra in (("fit_bundle", "offline"), ("Client", "client")):
        message = ""
        try:
            getattr(package, name)
        except ImportError as error:
            message = str(error)
        assert f"'.[{extra}]'" in message, f"demur.{name} without its extra: {message or 'no error'}"


def _address(process: "subprocess.Popen[str]") -> str:
    """The URL in uvicorn's start message: port 0 lets the system choose a free one."""
    assert process.stderr is not None
    started = time.monotonic()
    for line in process.stderr:
        if "running on" in line:
            print(f"base install: ready after {time.monotonic() - started:.1f} s")
            return line.split("running on ")[1].split()[0]
    raise AssertionError("the service stopped before it was ready")


def _post(url: str, body: Any) -> Any:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    return json.loads(urllib.request.urlopen(request, timeout=30).read())


def _check(answer: Any, expected: Any) -> None:
    for i, prediction in enumerate(answer["predictions"]):
        found = list(prediction["probabilities"].values())
        assert all(math.isclose(a, b, rel_tol=1e-4) for a, b in zip(found, expected["probabilities"][i], strict=True))
        assert all(
            math.isclose(a, b, rel_tol=1e-4)
            for a, b in zip(prediction["logit_variance"].values(), expected["variance"][i], strict=True)
        )
        assert prediction["rejected"] is expected["rejected"][i]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
