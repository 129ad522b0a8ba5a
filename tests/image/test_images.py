"""The images, built from the Dockerfile and run as they are in production: `make image-test`.

Both run as 10001 on a read-only root, without any capability. What the images are built of lies in tests/image.
"""

import json
import os
import re
import shutil
import socket
import subprocess
import tomllib
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from demur.service.bundle import read_bundle
from demur.service.remote.push import push
from tests.support.bundles import TEXT_SPEC, tokenizer_json, write_linear
from tests.support.places import running
from tests.support.server import ROOT

PODMAN = os.environ.get("DEMUR_TEST_PODMAN", "")
pytestmark = pytest.mark.skipif(not PODMAN, reason="make image-test builds the images, and sets DEMUR_TEST_PODMAN")

GOLDEN = ROOT / "tests/golden/v1"
SERVICE, OFFLINE = "localhost/demur-service", "localhost/demur-offline"
TIMEOUT = 180
# What podman would raise beyond what the machine around may allow.
LIMITS = ["--ulimit=nofile=1024:1024", "--ulimit=nproc=4096:4096"]
HARDENED = ["--network=host", "--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges", *LIMITS]
COMPILERS = ("cc", "gcc", "g++", "c++", "clang", "ld", "as", "make", "cargo", "rustc")
INSTALLERS = ("pip", "pip3", "uv", "apt-get-install", "easy_install", "cyclonedx-py")
LOOK = """
import importlib.metadata as m, importlib.util as u, json, os, shutil, sys
found = {
    "user": [os.getuid(), os.getgid()],
    "modules": [n for n in %r if u.find_spec(n)],
    "programs": [n for n in %r if shutil.which(n)],
    "distributions": sorted(d.name.lower().replace("_", "-") for d in m.distributions()),
    "left": [n for f in ("/mnt", "/opt", "/run/secrets") if os.path.isdir(f) for n in os.listdir(f)]
        + [n for n in ("/etc/pip.conf", "/src", "/tools", "/wheels") if os.path.exists(n)],
    "sbom": json.load(open("/app/sbom.cdx.json")),
}
print(json.dumps(found))
"""


def podman(*arguments: str, check: bool = True) -> "subprocess.CompletedProcess[str]":
    done = subprocess.run([PODMAN, *arguments], capture_output=True, text=True, timeout=TIMEOUT, check=False)
    assert not check or done.returncode == 0, done.stderr
    return done


def inspect(image: str) -> dict[str, Any]:
    (found,) = json.loads(podman("image", "inspect", image).stdout)
    return dict(found)


OURS = ("demur", "demur.service", "demur.offline", "service", "offline")


def look_into(image: str, modules: tuple[str, ...], programs: tuple[str, ...]) -> dict[str, Any]:
    code = LOOK % (modules, programs)
    done = podman("run", "--rm", "--no-healthcheck", *HARDENED, "--entrypoint=python", image, "-c", code)
    return dict(json.loads(done.stdout))


@pytest.fixture(scope="module")
def service() -> Iterator[tuple[str, str]]:
    """Name and URL of a running container that serves the golden bundle, owned by another user, read-only."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    name = f"demur-{port}"
    podman(
        *("run", "--detach", f"--name={name}", "--health-interval=disable", *HARDENED, "--tmpfs=/tmp"),
        *(f"--env=DEMUR_PORT={port}", "--env=DEMUR_HOST=127.0.0.1"),
        *(f"--volume={GOLDEN}/bundle:/bundle:ro", SERVICE),
    )
    log = subprocess.Popen(
        [PODMAN, "logs", "--follow", name], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert log.stdout is not None
    try:
        lines = []
        for line in log.stdout:
            lines.append(line)
            if "running on" in line:
                break
        else:
            pytest.fail("the service ended: " + "".join(lines))
        yield name, f"http://127.0.0.1:{port}"
    finally:
        log.kill()
        log.wait()
        log.stdout.close()
        podman("rm", "--force", name)


def test_it_predicts_what_the_golden_bundle_says(service: tuple[str, str]) -> None:
    answers = json.loads((GOLDEN / "answers.json").read_text())
    body = json.dumps({"inputs": answers["inputs"]}).encode()
    request = urllib.request.Request(f"{service[1]}/predict?detail=full", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as response:
        predictions = json.loads(response.read())["predictions"]
    assert len(predictions) == len(answers["probabilities"])
    for found, probabilities, variance in zip(predictions, answers["probabilities"], answers["variance"], strict=True):
        assert list(found["probabilities"].values()) == pytest.approx(probabilities, rel=1e-4)
        assert list(found["logit_variance"].values()) == pytest.approx(variance, rel=1e-4)


def test_its_health_check_passes(service: tuple[str, str]) -> None:
    assert inspect(SERVICE)["Healthcheck"]["Test"][0] == "CMD"
    assert podman("healthcheck", "run", service[0], check=False).returncode == 0


def test_it_drains_and_ends_with_status_0_on_sigterm(service: tuple[str, str]) -> None:
    """The last test of the running container: a connection that is open when the signal comes is still answered."""
    name, url = service
    with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), timeout=60) as connection:
        connection.sendall(b"GET /health/live HTTP/1.1\r\nHost: x\r\n")
        podman("kill", "--signal=TERM", name)
        connection.sendall(b"\r\n")
        assert connection.recv(64).startswith(b"HTTP/1.1 ")
    assert podman("wait", name).stdout.strip() == "0"


def test_its_health_check_fails_where_nothing_is_served(tmp_path: Path) -> None:
    command = inspect(SERVICE)["Healthcheck"]["Test"][1:]
    entry = f"--entrypoint={command[0]}"
    done = podman(
        "run", "--rm", "--no-healthcheck", *HARDENED, "--env=DEMUR_PORT=9", entry, SERVICE, *command[1:], check=False
    )
    assert done.returncode == 1


def test_the_service_holds_no_torch_no_offline_code_no_compiler_and_no_installer() -> None:
    modules = ("torch", "onnx", "sklearn", "tests", "pip", "setuptools", "ensurepip", *OURS)
    found = look_into(SERVICE, modules, (*COMPILERS, *INSTALLERS, "demur"))
    assert found["user"] == [10001, 10001]
    assert found["modules"] == ["demur", "demur.service"]
    assert found["programs"] == ["demur"]
    assert found["left"] == []
    files = [(ROOT / f"deploy/requirements/{name}.txt").read_text() for name in ("service", "texts")]
    locked = re.findall(r"^([\w.-]+)==", "\n".join(files), re.MULTILINE)
    assert set(found["distributions"]) <= {"demur", *locked}


def test_the_service_reads_texts(tmp_path: Path) -> None:
    path = write_linear(tmp_path / "bundle", outputs=3, spec=TEXT_SPEC, tokenizer=tokenizer_json()).path
    for parent in (tmp_path, tmp_path.parent, tmp_path.parent.parent):
        parent.chmod(0o755)
    code = "from demur import Predictor; print(Predictor.load('/bundle').predict(['the film']).labels)"
    options = ["--rm", "--no-healthcheck", *HARDENED, f"--volume={path}:/bundle:ro", "--entrypoint=python"]
    assert podman("run", *options, SERVICE, "-c", code).stdout.startswith("['")


@pytest.mark.parametrize("kind", ["s3", "hf", "oci"])
def test_the_service_fetches_bundles(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = "import sys; from demur import Predictor as P; print(P.from_pretrained(sys.argv[1]).digest)"
    with running(kind, tmp_path) as place:
        for name, value in place.environment.items():
            monkeypatch.setenv(name, value)
        push(GOLDEN / "bundle", place.uri)
        variables = [f"--env={name}={value}" for name, value in place.environment.items()]
        options = ["--rm", "--no-healthcheck", *HARDENED, "--tmpfs=/tmp", *variables, "--entrypoint=python"]
        found = podman("run", *options, SERVICE, "-c", code, place.uri).stdout
    assert found.strip() == read_bundle(GOLDEN / "bundle").digest


@pytest.mark.parametrize("image", [SERVICE, OFFLINE])
def test_the_bill_of_materials_names_every_package_that_is_there(image: str) -> None:
    found = look_into(image, ("demur.service",), ())
    bill = found["sbom"]
    assert bill["bomFormat"] == "CycloneDX"
    assert bill["metadata"]["component"]["name"] == "demur"
    named = {component["name"].lower().replace("_", "-") for component in bill["components"]}
    assert named | {"demur"} == set(found["distributions"]) | {"demur"}


@pytest.mark.parametrize("image", [SERVICE, OFFLINE])
def test_packages_and_code_are_layers_of_their_own(image: str) -> None:
    steps = podman("history", "--no-trunc", "--format={{.CreatedBy}}|{{.Size}}", image).stdout.splitlines()
    copies = [line.rpartition("|")[2] for line in steps if "COPY" in line]
    code, packages = copies
    assert code.endswith("MB") or code.endswith("kB")
    assert float(code.split()[0]) < 10 or code.endswith("kB")
    assert packages.split()[1] in ("MB", "GB")


@pytest.mark.parametrize(("image", "title"), [(SERVICE, "demur"), (OFFLINE, "demur-offline")])
def test_the_labels_say_what_it_is(image: str, title: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    labels = {name.removeprefix("org.opencontainers.image."): text for name, text in inspect(image)["Labels"].items()}
    assert (labels["title"], labels["version"], labels["licenses"]) == (title, project["version"], project["license"])
    assert labels["description"]
    assert inspect(image)["User"] == "10001:10001"


def test_the_offline_job_fits_a_bundle(tmp_path: Path) -> None:
    """As 10001, on a read-only root: only the working folder, and /tmp, can be written to."""
    work = tmp_path / "work"
    work.mkdir()
    shutil.copy(ROOT / "tests/image/recipe.py", work / "recipe.py")
    for path in (work, work / "recipe.py"):
        os.chown(path, 10001, 10001)
    for parent in (tmp_path, tmp_path.parent, tmp_path.parent.parent):
        parent.chmod(0o755)
    options = ["--rm", *HARDENED, "--tmpfs=/tmp", f"--volume={work}:/work"]
    helped = podman("run", *options, OFFLINE, "fit", "--help")
    assert "Usage: demur fit" in helped.stdout
    done = podman("run", *options, OFFLINE, "fit", "recipe.py", "--out", "bundle")
    assert "verified" in done.stdout
    assert (work / "bundle/manifest.json").is_file()
    assert (work / "bundle/manifest.json").stat().st_uid == 10001


def test_the_offline_image_holds_no_compiler_and_no_installer() -> None:
    found = look_into(OFFLINE, ("pip", "ensurepip", "torch", *OURS), (*COMPILERS, *INSTALLERS, "demur"))
    assert found["user"] == [10001, 10001]
    assert found["modules"] == ["torch", "demur", "demur.service", "demur.offline"]
    assert found["programs"] == ["demur"]
    assert found["left"] == []
