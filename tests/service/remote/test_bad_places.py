"""service/remote against places that hang, lie or never end, and against several processes at once."""

import base64
import json
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from demur.service.bundle import MANIFEST, MODEL, BundleError, read_bundle
from demur.service.format.files import README
from demur.service.remote.cache import fetched
from demur.service.remote.errors import UnreachableError, check_endpoint
from demur.service.remote.pull import pull
from demur.service.remote.push import push
from tests.support import registries
from tests.support.buckets import buckets
from tests.support.bundles import FEATURE_SPEC, Synthetic, write_linear
from tests.support.fake_hub import fake_hub
from tests.support.http_servers import Answering, answering
from tests.support.places import NO_REGISTRY
from tests.support.places import running as place_of
from tests.support.server import ROOT, environment

needs_registry = pytest.mark.skipif(registries.PROGRAM is None, reason=NO_REGISTRY)


@contextmanager
def silent() -> Iterator[int]:
    """A port that accepts and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


@pytest.mark.parametrize("kind", ["s3", "hf", "oci"])
def test_a_place_that_says_nothing_is_given_up(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    modules = {"s3": "object_store", "hf": "hub", "oci": "registry"}
    monkeypatch.setattr(f"demur.service.remote.{modules[kind]}.READ_SECONDS", 0.2)
    monkeypatch.setattr("demur.service.remote.object_store.RETRIES", 0)
    with silent() as port:
        url = f"http://127.0.0.1:{port}"
        for name in ("AWS_ENDPOINT_URL", "HF_ENDPOINT"):
            monkeypatch.setenv(name, url)
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.setenv(name, "x")
        uri = {"s3": "s3://models/a", "hf": "hf://acme/a", "oci": f"oci://127.0.0.1:{port}/a:1"}[kind]
        with pytest.raises(UnreachableError, match="did not answer"):
            pull(uri, tmp_path / "here")


@pytest.mark.parametrize(("name", "uri"), [("AWS_ENDPOINT_URL", "s3://models/a"), ("HF_ENDPOINT", "hf://acme/a")])
@pytest.mark.parametrize(
    "value",
    [
        "minio:9000",
        "http://",
        "ftp://minio",
        "http://127.0.0.1:99999",
        "http://127.0.0.1:0",
        "http://127.0.0.1:abc",
        "http://[::1",
        "http://a b",
        "http://%zz/",
    ],
)
def test_an_endpoint_that_is_no_url_is_named(
    name: str, uri: str, value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(BundleError, match=re.escape(f"found {name}='{value}', expected a URL")):
        pull(uri, tmp_path / "here")


@pytest.mark.parametrize(
    "value", ["https://hub.example", "http://[::1]:80", "http://u-1.x_y:9000/path?a=1", "http://name:word@host:1"]
)
def test_an_endpoint_that_is_one_is_taken(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", value)
    check_endpoint("AWS_ENDPOINT_URL", "s3://models/a")


def test_an_empty_endpoint_is_none(classification: Synthetic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with place_of("s3", tmp_path) as store:
        for name, value in store.environment.items():
            monkeypatch.setenv(name, value)
        push(classification.path, store.uri)
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "")
        pull(store.uri, tmp_path / "here")
    assert read_bundle(tmp_path / "here").digest == read_bundle(classification.path).digest


def test_ctrl_c_ends_a_fetch_from_a_bucket(tmp_path: Path) -> None:
    with silent() as port:
        variables = environment(
            AWS_ENDPOINT_URL=f"http://127.0.0.1:{port}", AWS_ACCESS_KEY_ID="x", AWS_SECRET_ACCESS_KEY="x"
        )
        code = (
            "import signal\n"
            "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # in the background a shell ignores it
            "import demur.service.remote.object_store as o, threading\n"
            "start = threading.Thread.start\n"
            "threading.Thread.start = lambda self: (start(self), print('fetching', flush=True))\n"
            "from demur.service.remote.pull import pull\n"
            "import sys, pathlib\n"
            "pull('s3://models/a', pathlib.Path(sys.argv[1]))\n"
        )
        command = [sys.executable, "-c", code, str(tmp_path / "here")]
        with subprocess.Popen(command, env=variables, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as job:
            assert job.stdout is not None
            assert job.stdout.readline() == b"fetching\n"
            job.send_signal(signal.SIGINT)
            _, errors = job.communicate(timeout=60)
    assert b"KeyboardInterrupt" in errors


class Endless(Answering):
    """Never stops talking."""

    def do_GET(self) -> None:
        if self.path == "/v2/":
            self.answer(200)
            return
        self.send_response(200)
        self.end_headers()
        try:
            while True:
                self.wfile.write(b" " * 2**20)
        except OSError:
            self.close_connection = True


def test_an_endless_manifest_of_a_registry_is_not_kept(tmp_path: Path) -> None:
    with answering(Endless) as url, pytest.raises(BundleError, match="expected at most 4194304"):
        pull(f"oci://{url.removeprefix('http://')}/a:1", tmp_path / "here")


@pytest.mark.parametrize(
    "challenge", ['Basic realm="x"', 'Bearer realm="Registry"', 'Bearer realm="ftp://x/"', "Odd x"]
)
def test_a_registry_that_asks_who_it_is_without_a_login_is_told_so(
    challenge: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Asks(Answering):
        def do_GET(self) -> None:
            self.answer(401, headers={"WWW-Authenticate": challenge})

    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    with answering(Asks) as url, pytest.raises(BundleError, match="docker login") as caught:
        pull(f"oci://{url.removeprefix('http://')}/a:1", tmp_path / "here")
    assert not isinstance(caught.value, UnreachableError)


@needs_registry
def test_a_registry_with_passwords_takes_the_login_of_docker(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
    with registries.registry(tmp_path, passwords=True) as host:
        uri = f"oci://{host}/team/digits:1"
        with pytest.raises(BundleError, match="asks for a user and a password"):
            push(folder, uri)
        (tmp_path / "docker").mkdir()
        login = base64.b64encode(f"{registries.USER}:{registries.PASSWORD}".encode()).decode()
        (tmp_path / "docker" / "config.json").write_text(json.dumps({"auths": {host: {"auth": login}}}))
        push(folder, uri)
        assert pull(uri, tmp_path / "here").outputs == 3
        wrong = base64.b64encode(f"{registries.USER}:wrong".encode()).decode()
        (tmp_path / "docker" / "config.json").write_text(json.dumps({"auths": {host: {"auth": wrong}}}))
        with pytest.raises(BundleError, match="refused") as caught:
            pull(uri, tmp_path / "here")
        assert not isinstance(caught.value, UnreachableError)
        (tmp_path / "docker" / "config.json").write_text("{")
        with pytest.raises(BundleError, match=r"config\.json\) cannot be read"):
            pull(uri, tmp_path / "here")


@pytest.mark.parametrize("host", ["registry", "localhost", "registry:5000", "my.team"])
def test_the_host_that_is_named_is_asked_and_no_other(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import requests

    asked = []

    def refuse(_: Any, url: str, **__: Any) -> None:
        asked.append(url)
        raise requests.ConnectionError("refused")

    monkeypatch.setattr(requests.Session, "request", lambda self, method, url, **options: refuse(self, url))
    with pytest.raises(UnreachableError):
        pull(f"oci://{host}/team/digits:1", Path("here"))
    scheme = "http" if host == "localhost" else "https"
    assert asked == [f"{scheme}://{host}/v2/"]


def test_a_file_of_the_hub_that_is_longer_than_it_says_is_cut_off(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with fake_hub() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        monkeypatch.setenv("HF_TOKEN", "x")
        push(folder, "hf://acme/digits")
        found = hub.at("acme/digits", "main")
        assert found is not None
        hub.longer = {MODEL: 64 * 2**20}
        with pytest.raises(BundleError, match=f"expected at most {len((folder / MODEL).read_bytes())}"):
            pull("hf://acme/digits", tmp_path / "here")


def test_a_page_that_people_wrote_on_stays_on_the_hub(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with fake_hub() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        monkeypatch.setenv("HF_TOKEN", "x")
        hub.commit("acme/digits", {README: b"---\nlibrary_name: demur\n---\n# Mine"})
        push(folder, "hf://acme/digits")
        assert (hub.at("acme/digits", "main") or ("", {}))[1][README].endswith(b"# Mine")
        push(folder, "hf://acme/digits", replace=True)
        assert (hub.at("acme/digits", "main") or ("", {}))[1][README] == (folder / README).read_bytes()


def test_a_bucket_that_was_replaced_by_half_says_what_to_do(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with buckets() as store:
        for name, value in store.environment("s3").items():
            monkeypatch.setenv(name, value)
        push(folder, "s3://models/digits")
        store.objects[f"/models/digits/{MODEL}"] = b"x" * len((folder / MODEL).read_bytes())
        with pytest.raises(BundleError, match="remedy: push the bundle again"):
            pull("s3://models/digits", tmp_path / "here")


def test_what_differs_each_time_and_passwords_are_not_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("demur.service.remote.object_store.RETRIES", 0)
    with buckets() as store:
        store.status = 500
        for name, value in store.environment("s3").items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("AWS_ENDPOINT_URL", store.url.replace("http://", "http://user:hunter2@"))
        said = set()
        for _ in range(2):
            with pytest.raises(UnreachableError) as caught:
                pull("s3://models/digits", tmp_path / "here")
            said.add(str(caught.value))
    assert len(said) == 1
    assert "hunter2" not in said.pop()


@pytest.mark.parametrize("prefix", ["a/../b", "..", "./a", "a//b", "a b", "a,s3://b/c"])
def test_odd_prefixes_are_refused(prefix: str, tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="found another form of URI"):
        pull(f"s3://models/{prefix}", tmp_path / "here")


def test_many_at_once_share_a_cache(classification: Synthetic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads, whose locks on folders exclude each other as those of processes do."""
    with buckets() as store:
        for name, value in store.environment("s3").items():
            monkeypatch.setenv(name, value)
        push(classification.path, "s3://models/digits")
        for number in range(20):
            start = threading.Barrier(4)

            def fetch(_: int, number: int = number, start: threading.Barrier = start) -> Path:
                start.wait()
                return fetched("s3://models/digits", tmp_path / f"cache-{number}")

            with ThreadPoolExecutor(4) as threads:
                (folder,) = set(threads.map(fetch, range(4)))
            assert read_bundle(folder).digest == read_bundle(classification.path).digest
            assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def test_a_place_without_room_is_told(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(BundleError, match="could not be written"):
        pull(str(folder), tmp_path / "file" / "here")


def test_a_uri_is_no_source_to_push(folder: Path) -> None:
    with pytest.raises(BundleError, match="found a URI, expected the folder of a bundle"):
        push("s3://models/digits", str(folder))


def test_another_bundle_in_its_place_is_not_taken_for_it(folder: Path, tmp_path: Path) -> None:
    push(folder, str(tmp_path / "there"))
    pull(str(tmp_path / "there"), tmp_path / "here")
    other = write_linear(tmp_path / "other", outputs=2, spec=FEATURE_SPEC, seed=4).path
    (tmp_path / "here" / MANIFEST).write_bytes((other / MANIFEST).read_bytes())
    pull(str(tmp_path / "there"), tmp_path / "here")
    assert read_bundle(tmp_path / "here").manifest.outputs == 3
