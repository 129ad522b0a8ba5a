"""service/remote against JSON that is nested without end, too large, or not what it should be: refused in one line."""

import copy
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from demur.service.bundle import MANIFEST, BundleError
from demur.service.remote.errors import UnreachableError
from demur.service.remote.pull import pull
from demur.service.remote.push import push
from demur.service.remote.registry import TITLE
from tests.support.http_servers import Answering, answering

DEEP = 200_000
UNSOUND = {
    "lists": b"[" * DEEP + b"]" * DEEP,
    "objects": b'{"a":' * DEEP + b"1" + b"}" * DEEP,
    "open": b"[" * DEEP,
    "inside": b'{"layers": ' + b"[" * DEEP + b"]" * DEEP + b', "errors": ' + b"[" * DEEP + b"]" * DEEP + b"}",
    "large": b'{"token": "' + b"x" * 5 * 2**20 + b'"}',
    "list": b"[]",
    "number": b"5",
    "long": b"1" * 5000,
    "infinite": b'{"sha": 1e999, "siblings": [{"rfilename": "manifest.json", "size": 1e999}], "token": 1e999}',
    "null": b"null",
    "text": b'"x"',
    "twice": b'{"layers": [], "layers": [], "token": "x", "token": "y"}',
    "nothing": b"",
    "bytes": b"\xff\xfe\x00",
    "lines": b'{"token": "a\\nb", "error": "a\\nb", "errors": [{"message": "a\\nb"}], "sha": "a\\nb"}',
}
LAYER = {"digest": f"sha256:{0:064}", "size": 3, "mediaType": "x", "annotations": {TITLE: MANIFEST}}
ARTIFACT = {"schemaVersion": 2, "config": {"digest": "x", "size": 2}, "layers": [LAYER]}
INFO = {"id": "acme/a", "sha": "0" * 40, "tags": [], "siblings": [{"rfilename": MANIFEST, "size": 3, "blobId": "x"}]}


@contextmanager
def saying(answers: Callable[[str, str], tuple[int, bytes, dict[str, str]]]) -> Iterator[str]:
    """A server that answers a method and a path so; its URL."""

    class Says(Answering):
        def do_GET(self) -> None:
            self.body()
            status, content, headers = answers(self.command, self.path)
            self.answer(status, content, headers)

        do_HEAD = do_POST = do_PUT = do_GET

    with answering(Says) as url:
        yield url


def refusal(act: Callable[[], object]) -> str:
    """What the place is refused with, in one line; nothing else is raised."""
    with pytest.raises(BundleError) as caught:
        act()
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 2000
    return str(caught.value)


@pytest.mark.parametrize("where", ["challenge", "token", "manifest", "error", "refusal", "blob", "upload"])
@pytest.mark.parametrize("kind", UNSOUND)
def test_a_registrys_answer(
    kind: str, where: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    content = UNSOUND[kind]

    def answers(method: str, path: str) -> tuple[int, bytes, dict[str, str]]:
        if path == "/v2/":
            challenge = {"WWW-Authenticate": f'Bearer realm="{url}/token"'} if where == "token" else {}
            return (401 if challenge else 200), content if where == "challenge" else b"", challenge
        if path.startswith("/token"):
            return 200, content, {}
        if where == "token":
            return 401, b"", {"WWW-Authenticate": f'Bearer realm="{url}/token"'}
        if method in {"POST", "PUT"}:
            return 202, content, {}
        if "/manifests/" in path and where in {"manifest", "blob"}:
            return 200, content if where == "manifest" else json.dumps(ARTIFACT).encode(), {}
        if where == "blob":
            return 200, content, {}
        return {"error": 500, "refusal": 403}.get(where, 404), content, {"Content-Type": "application/json"}

    with saying(answers) as url:
        uri = f"oci://{url.removeprefix('http://')}/a:1"
        refusal(lambda: push(folder, uri) if where == "upload" else pull(uri, tmp_path / "here"))


@pytest.mark.parametrize("where", ["info", "error", "refusal", "file", "create"])
@pytest.mark.parametrize("kind", UNSOUND)
def test_the_hubs_answer(kind: str, where: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = UNSOUND[kind]

    def answers(method: str, path: str) -> tuple[int, bytes, dict[str, str]]:
        if method in {"POST", "PUT"}:
            return 200, content, {"Content-Type": "application/json"}
        if where == "file":
            if path.startswith("/api/"):
                return 200, json.dumps(INFO).encode(), {"Content-Type": "application/json"}
            return 200, content, {"ETag": '"x"', "X-Repo-Commit": "0" * 40}
        status = {"error": 500, "refusal": 403}.get(where, 200)
        return status, content, {"Content-Type": "application/json"}

    monkeypatch.setenv("HF_TOKEN", "x")
    with saying(answers) as url:
        monkeypatch.setenv("HF_ENDPOINT", url)
        refusal(lambda: push(folder, "hf://acme/a") if where == "create" else pull("hf://acme/a", tmp_path / "here"))


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)


def places(value: Any) -> list[tuple[Any, ...]]:
    """The path to each part of it, itself included."""
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [(), *((key, *path) for key, part in parts for path in places(part))]


def replaced(value: Any, path: tuple[Any, ...], by: Any) -> Any:
    """A copy of it with another part at the path."""
    if not path:
        return by
    value = copy.copy(value)
    value[path[0]] = replaced(value[path[0]], path[1:], by)
    return value


@pytest.mark.parametrize("kind", ["oci", "hf"])
def test_an_answer_with_anything_in_any_place(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sound: Any = {"oci": ARTIFACT, "hf": INFO}[kind]
    content = b""

    def answers(method: str, path: str) -> tuple[int, bytes, dict[str, str]]:
        if path == "/v2/":
            return 200, b"", {}
        if "/manifests/" in path or path.startswith("/api/"):
            return 200, content, {"Content-Type": "application/json"}
        return 404, b"", {}

    with saying(answers) as url:
        monkeypatch.setenv("HF_ENDPOINT", url)
        uri = {"oci": f"oci://{url.removeprefix('http://')}/a:1", "hf": "hf://acme/a"}[kind]

        @settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
        @given(st.sampled_from(places(sound)), anything)
        def check(path: tuple[Any, ...], by: Any) -> None:
            nonlocal content
            content = json.dumps(replaced(sound, path, by)).encode()
            refusal(lambda: pull(uri, tmp_path / "here"))

        check()


def test_what_is_nested_too_deep_is_no_matter_of_time(tmp_path: Path) -> None:
    with (
        saying(lambda _, path: (200, b"" if path == "/v2/" else UNSOUND["lists"], {})) as url,
        pytest.raises(BundleError, match="found something else, expected an artifact") as caught,
    ):
        pull(f"oci://{url.removeprefix('http://')}/a:1", tmp_path / "here")
    assert not isinstance(caught.value, UnreachableError)


@pytest.mark.parametrize("text", ["[]", "5", '{"auths": {"HOST": 5}}', "[" * DEEP, "\udcff", "{"])
def test_logins_of_docker_in_another_form_are_named(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    with saying(lambda *_: (404, b"", {})) as url:
        host = url.removeprefix("http://")
        (tmp_path / "config.json").write_bytes(text.replace("HOST", host).encode(errors="surrogateescape"))
        with pytest.raises(BundleError, match=r"logins of docker \(config\.json\) cannot be read"):
            pull(f"oci://{host}/a:1", tmp_path / "here")


def test_a_signed_address_of_a_layer_is_not_told(tmp_path: Path) -> None:
    """Whoever reads the log could fetch a private one with it."""

    def answers(method: str, path: str) -> tuple[int, bytes, dict[str, str]]:
        if path == "/v2/":
            return 200, b"", {}
        if "/manifests/" in path:
            return 200, json.dumps(ARTIFACT).encode(), {"Content-Type": "application/vnd.oci.image.manifest.v1+json"}
        return 307, b"", {"Location": "http://127.0.0.1:9/layer?sig=secret"}

    with saying(answers) as url:
        said = refusal(lambda: pull(f"oci://{url.removeprefix('http://')}/a:1", tmp_path / "here"))
    assert "did not answer" in said
    assert "/layer" in said
    assert "secret" not in said
