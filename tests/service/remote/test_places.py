"""service/remote: a bundle goes to each kind of place and comes back, and what is wrong there is refused."""

import hashlib
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from demur.service.bundle import MANIFEST, MODEL, REPORT, SIGNATURE, BundleError, read_bundle
from demur.service.format.files import README
from demur.service.remote.errors import UnreachableError
from demur.service.remote.pull import pull
from demur.service.remote.push import push
from demur.service.security.signing import sign_bundle
from tests.support.bundles import FEATURE_SPEC, Synthetic, rewrite, write_linear
from tests.support.places import KINDS, World, running
from tests.support.signing import KEY, TRUSTED
from tests.support.tamper import contents, copy_bundle, load_json, save_json

CLOUDS = ("s3", "gs", "az")
ASKED = tuple(kind for kind in KINDS if kind in {*CLOUDS, "hf"})  # those that tell what was asked of them


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    with running(request.param, tmp_path) as world:
        for name, value in world.environment.items():
            monkeypatch.setenv(name, value)
        yield world


def every(*kinds: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("place", kinds, indirect=True)


@every(*KINDS)
def test_a_bundle_comes_back_as_it_went(place: World, folder: Path, tmp_path: Path) -> None:
    sign_bundle(folder, KEY)
    exact = push(folder, place.uri)
    for number, uri in enumerate((place.uri, exact)):
        manifest = pull(uri, tmp_path / f"here-{number}", TRUSTED)
        assert manifest == read_bundle(folder).manifest
        assert contents(tmp_path / f"here-{number}") == contents(folder)
    assert README in contents(tmp_path / "here-0")


@every(*KINDS)
def test_another_bundle_takes_the_place_only_where_it_is_asked_to(place: World, folder: Path, tmp_path: Path) -> None:
    sign_bundle(folder, KEY)
    first = push(folder, place.uri)
    other = write_linear(tmp_path / "other", outputs=2, spec=FEATURE_SPEC, seed=9).path
    if place.kind != "hf":  # which keeps it in its history
        with pytest.raises(BundleError, match=r"holds a bundle .*--force"):
            push(other, place.uri)
        assert pull(place.uri, tmp_path / "here").outputs == 3
    push(other, place.uri, replace=True)
    assert pull(place.uri, tmp_path / "here").outputs == 2
    assert contents(tmp_path / "here") == contents(other)
    assert SIGNATURE not in place.files()
    if place.kind in {"hf", "oci"}:
        assert pull(first, tmp_path / "first").outputs == 3


@every(*ASKED)
def test_a_bundle_that_is_here_already_is_not_fetched_again(place: World, folder: Path, tmp_path: Path) -> None:
    push(folder, place.uri)
    out = tmp_path / "here"
    pull(place.uri, out)
    before = (out / MODEL).stat().st_ino
    before_bytes, start = (out / MODEL).stat().st_size, len(place.asked())
    pull(place.uri, out)
    assert not any(MODEL in line for line in place.asked()[start:])
    assert (out / MODEL).stat().st_ino == before
    for hashed in (False, True):
        (out / MODEL).write_bytes(b"broken")
        pull(place.uri, out, hashed=hashed)
        assert contents(out) == contents(folder)
    (out / MODEL).write_bytes(b"x" * before_bytes)  # of its size: the hashes tell
    pull(place.uri, out, hashed=False)
    assert contents(out) != contents(folder)
    pull(place.uri, out)
    assert contents(out) == contents(folder)


@every(*KINDS)
def test_a_place_without_a_bundle_is_said_to_be_one(place: World, tmp_path: Path) -> None:
    with pytest.raises(BundleError, match=r"found no (bundle|such repository|such artifact)") as caught:
        pull(place.uri, tmp_path / "here")
    assert str(caught.value).startswith(place.uri)
    assert not isinstance(caught.value, UnreachableError)
    assert not (tmp_path / "here").exists()


@every(*ASKED)
@pytest.mark.parametrize("status", [401, 403])
def test_refused_access_is_said_with_what_to_set(place: World, folder: Path, tmp_path: Path, status: int) -> None:
    place.refuse(status)
    variable = {"s3": "AWS_ACCESS_KEY_ID", "gs": "GOOGLE_APPLICATION", "az": "AZURE_STORAGE", "hf": "HF_TOKEN"}
    for action in (lambda: pull(place.uri, tmp_path / "here"), lambda: push(folder, place.uri)):
        with pytest.raises(BundleError, match=f"refused.*{variable[place.kind]}") as caught:
            action()
        assert not isinstance(caught.value, UnreachableError)
        assert "secret" not in str(caught.value)


@every("s3", "hf")
def test_a_place_that_fails_may_be_tried_again(place: World, tmp_path: Path) -> None:
    place.refuse(503)
    with pytest.raises(UnreachableError, match="answer"):
        pull(place.uri, tmp_path / "here")


@pytest.mark.parametrize("kind", ["s3", "hf", "oci"])
def test_a_place_that_is_gone_may_be_tried_again(
    kind: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("demur.service.remote.registry.BACKOFF_SECONDS", 0)
    with running(kind, tmp_path) as world:
        for name, value in world.environment.items():
            monkeypatch.setenv(name, value)
    with pytest.raises(UnreachableError, match="answer"):
        pull(world.uri, tmp_path / "here")


@every(*ASKED, "folder")
def test_an_unsigned_bundle_is_refused_before_its_network_is_fetched(
    place: World, folder: Path, tmp_path: Path
) -> None:
    push(folder, place.uri)
    with pytest.raises(BundleError, match=r"signature\.json: found no signature") as caught:
        pull(place.uri, tmp_path / "here", TRUSTED)
    assert str(caught.value).startswith(f"{place.uri}/{SIGNATURE}")
    assert not any(MODEL in line and "GET" in line for line in place.asked())
    assert not (tmp_path / "here").exists()


@every("s3", "hf", "folder")
def test_only_what_the_manifest_lists_is_fetched(place: World, folder: Path, tmp_path: Path) -> None:
    push(folder, place.uri)
    for name in (".gitattributes", "notes.txt", "report.html", "tokenizer.json"):
        place.put(name, b"something else")
    pull(place.uri, tmp_path / "here")
    assert contents(tmp_path / "here") == contents(folder)


@every("s3", "hf", "folder")
def test_damage_on_the_way_is_told_and_nothing_is_kept(place: World, folder: Path, tmp_path: Path) -> None:
    push(folder, place.uri)
    for data, problem in (
        (b"x" * len((folder / MODEL).read_bytes()), "found sha256"),
        (b"short", "found 5 bytes"),
        ((folder / MODEL).read_bytes() + b"more", "expected at most"),
    ):
        place.put(MODEL, data)
        with pytest.raises(BundleError, match=problem) as caught:
            pull(place.uri, tmp_path / "here")
        assert str(caught.value).startswith(f"{place.uri}/{MODEL}")
        assert not (tmp_path / "here").exists()


@every("s3", "hf", "folder")
@pytest.mark.parametrize("name", ["../escape", "/etc/escape", "a/b", "notes.txt"])
def test_a_manifest_cannot_make_a_file_elsewhere(place: World, folder: Path, tmp_path: Path, name: str) -> None:
    push(folder, place.uri)
    manifest = load_json(folder)
    manifest["files"][name] = {"sha256": hashlib.sha256(b"").hexdigest(), "bytes": 0}
    save_json(folder, manifest)  # sealed anew: only the name is wrong
    place.put(MANIFEST, (folder / MANIFEST).read_bytes())
    with pytest.raises(BundleError, match="files: found the name"):
        pull(place.uri, tmp_path / "inner" / "here")
    assert not [*tmp_path.rglob("escape")]


@every("s3", "folder")
def test_a_manifest_without_end_is_not_read(place: World, folder: Path, tmp_path: Path) -> None:
    push(folder, place.uri)
    place.put(MANIFEST, b" " * (64 * 2**20))
    with pytest.raises(BundleError, match="expected at most"):
        pull(place.uri, tmp_path / "here")


@every(*KINDS)
def test_a_broken_bundle_is_not_pushed(place: World, folder: Path) -> None:
    (folder / MODEL).write_bytes(b"broken")
    with pytest.raises(BundleError, match=MODEL):
        push(folder, place.uri)
    assert not place.files()


@every("s3", "hf", "folder")
def test_a_report_of_before_does_not_stay(place: World, folder: Path, tmp_path: Path) -> None:
    push(folder, place.uri)
    place.put(REPORT, b"<html>")
    push(folder, place.uri, replace=True)
    assert REPORT not in place.files()


@every("hf")
def test_a_bundle_may_be_a_folder_of_a_repository_or_on_a_branch(place: World, folder: Path, tmp_path: Path) -> None:
    exact = push(folder, f"{place.uri}/versions/2")
    assert exact.endswith("/versions/2")
    for uri in (exact, f"{place.uri}/versions/2", f"{place.uri}@main/versions/2"):
        assert pull(uri, tmp_path / "here").outputs == 3
    with pytest.raises(BundleError, match="found no such revision"):
        pull(f"{place.uri}@refs%2Fpr%2F1/versions/2", tmp_path / "here")


BAD = [
    ("hf://digits", "give hf://OWNER/NAME"),
    ("hf://acme/digits@v1@v2", "give hf://OWNER/NAME"),
    ("s3://bucket", "s3://BUCKET/PREFIX"),
    ("s3:///prefix", "s3://BUCKET/PREFIX"),
    ("s3://key:secret@bucket/prefix", "s3://BUCKET/PREFIX"),
    ("az://container/prefix?sig=secret", "az://BUCKET/PREFIX"),
    ("oci://registry/digits", "oci://HOST/REPOSITORY:TAG"),
    ("oci://registry/digits@sha256:12", "oci://HOST/REPOSITORY:TAG"),
    ("https://models.test/digits", "hf://OWNER/NAME"),
    ("ftp://x/y", "hf://OWNER/NAME"),
]


@pytest.mark.parametrize(("uri", "form"), BAD)
def test_a_uri_of_another_form_is_refused_with_the_forms(uri: str, form: str, folder: Path, tmp_path: Path) -> None:
    for action in (lambda: pull(uri, tmp_path / "here"), lambda: push(folder, uri)):
        with pytest.raises(BundleError, match="found another form of URI") as caught:
            action()
        assert form in caught.value.remedy


@pytest.mark.parametrize(
    ("uri", "package"), [("hf://a/b", "huggingface_hub"), ("s3://a/b", "obstore"), ("oci://a/b:1", "oras")]
)
def test_a_missing_package_is_named(uri: str, package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (package, f"{package}.container"):
        monkeypatch.setitem(__import__("sys").modules, module, None)
    with pytest.raises(BundleError, match=f"needs the package {package}.*pip install {package}"):
        pull(uri, tmp_path / "here")


@every("oci")
def test_what_a_registry_holds_besides_is_no_bundle(place: World, tmp_path: Path) -> None:
    from oras.client import OrasClient

    (tmp_path / "notes.txt").write_text("something else")
    target = place.uri.removeprefix("oci://")
    OrasClient(insecure=True).push(
        target, files=[str(tmp_path / "notes.txt")], disable_path_validation=True, quiet=True
    )
    with pytest.raises(BundleError, match="expected an artifact with a bundle's files"):
        pull(place.uri, tmp_path / "here")


@pytest.mark.slow
@every("oci")
@pytest.mark.skipif(shutil.which("skopeo") is None, reason="needs skopeo")
def test_other_programs_read_the_artifact(place: World, folder: Path) -> None:
    push(folder, place.uri)
    target = place.uri.replace("oci://", "docker://")
    shown = subprocess.run(
        ["skopeo", "inspect", "--raw", "--tls-verify=false", target], capture_output=True, text=True, check=True
    )
    titles = {layer["annotations"]["org.opencontainers.image.title"] for layer in json.loads(shown.stdout)["layers"]}
    assert titles == set(contents(folder))


def test_a_bundle_of_before_cards_has_none(classification: Synthetic, tmp_path: Path) -> None:
    older = rewrite(classification.path, tmp_path / "older")
    (older / README).unlink()
    push(older, str(tmp_path / "there"))
    pull(str(tmp_path / "there"), tmp_path / "here")
    assert contents(tmp_path / "here") == contents(older) == contents(copy_bundle(older, tmp_path / "copy"))
