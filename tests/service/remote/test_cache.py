"""service/remote/cache.py: bundles that are named by a URI, kept from one start to the next."""

import errno
import logging
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from demur.service.bundle import BundleError
from demur.service.inference.policy import Policy
from demur.service.inference.predictor import Predictor
from demur.service.remote.cache import cache_folder, fetched, kept_at, pretrained
from demur.service.remote.places import place_of
from demur.service.remote.push import push
from tests.support.bundles import FEATURE_SPEC, Synthetic, write_linear
from tests.support.places import HUB_NAME, World, running


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setenv("DEMUR_CACHE_DIR", str(tmp_path / "cache"))
    with running("hf", tmp_path) as world:
        for name, value in world.environment.items():
            monkeypatch.setenv(name, value)
        yield world


def test_what_was_fetched_stays_while_the_place_does_not_answer(
    hub: World, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    push(folder, hub.uri)
    first = fetched(hub.uri)
    hub.refuse(500)
    with caplog.at_level(logging.WARNING, "demur"):
        assert fetched(hub.uri) == first
    assert f"taking the copy of before: {first}" in caplog.text
    hub.refuse(403)
    with pytest.raises(BundleError, match="refused"):  # on purpose, perhaps
        fetched(hub.uri)


def test_a_copy_of_before_must_pass_too(hub: World, folder: Path) -> None:
    """It may have been fetched by who demanded no signature, or by a key that was withdrawn."""
    push(folder, hub.uri)
    fetched(hub.uri)
    hub.refuse(500)

    def verify(path: Path, *_: object) -> None:
        raise BundleError(path / "signature.json", "found no signature")

    with pytest.raises(BundleError, match="found no signature"):
        fetched(hub.uri, verify=verify)


def test_without_a_copy_there_is_an_error(hub: World) -> None:
    hub.refuse(500)
    with pytest.raises(BundleError, match="answered 500"):
        fetched(hub.uri)


def test_the_cache_is_where_it_is_said_to_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("DEMUR_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    assert cache_folder() == tmp_path / ".cache" / "demur"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    assert cache_folder() == tmp_path / "caches" / "demur"
    monkeypatch.setenv("DEMUR_CACHE_DIR", str(tmp_path / "own"))
    assert cache_folder() == tmp_path / "own"


@pytest.mark.parametrize(
    ("uri", "name"),
    [
        ("hf://acme/digits@refs%2Fpr%2F1", "digits-refs-2Fpr-2F1"),
        ("s3://b/..", "bundle"),
        ("oci://h/d:1", "d-1"),
        (f"s3://b/{'x' * 300}", "x" * 100),
    ],
)
def test_each_uri_has_a_folder_of_its_own(uri: str, name: str) -> None:
    folder = kept_at(uri, Path("/cache"))
    assert folder.name == name
    assert folder.parent.parent == Path("/cache")
    assert folder.parent != kept_at(f"{uri}x", Path("/cache")).parent


def test_a_cache_that_cannot_be_written_is_named(hub: World, folder: Path, tmp_path: Path) -> None:
    push(folder, hub.uri)
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(BundleError, match="name another folder as DEMUR_CACHE_DIR"):
        fetched(hub.uri, tmp_path / "file")


def test_what_was_fetched_stays_while_the_cache_cannot_be_written(
    hub: World, folder: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a volume that is full, or mounted to be read alone."""
    push(folder, hub.uri)
    first = fetched(hub.uri)

    def full(*_: object, **__: object) -> str:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tempfile, "mkdtemp", full)
    with caplog.at_level(logging.WARNING, "demur"):
        assert fetched(hub.uri) == first
    assert f"taking the copy of before: {first}" in caplog.text


def test_files_are_not_fetched_by_what_needs_a_home_of_its_own(hub: World) -> None:
    with place_of(hub.uri):
        assert os.environ["HF_HUB_DISABLE_XET"] == "1"


def test_a_predictor_comes_from_the_hub_and_goes_there(hub: World, classification: Synthetic, tmp_path: Path) -> None:
    exact = Predictor.load(classification.path).push_to_hub(HUB_NAME)
    other = write_linear(tmp_path / "other", outputs=2, spec=FEATURE_SPEC).path
    Predictor.load(other).push_to_hub(HUB_NAME)
    inputs = np.ones((2, 4), np.float32)
    commit = exact.rpartition("@")[2]
    for found in (
        Predictor.from_pretrained(HUB_NAME, revision=commit, threads=1),
        Predictor.from_pretrained(exact, cache_dir=tmp_path / "elsewhere"),
        Predictor.from_pretrained(classification.path),
    ):
        assert found.digest == Predictor.load(classification.path).digest
        assert found.predict(inputs).mean.shape == (2, 3)
    assert Predictor.from_pretrained(HUB_NAME, policy=Policy(false_reject_rate=0.2)).predict(inputs).mean.shape == (
        2,
        2,
    )


def test_a_revision_belongs_to_the_hub(tmp_path: Path) -> None:
    for name in (tmp_path, "s3://models/digits"):
        with pytest.raises(ValueError, match=r"revision: found 'v1' beside .*, expected OWNER/NAME on the Hub"):
            pretrained(name, "v1")


def test_a_folder_that_is_not_there_is_no_hub(tmp_path: Path) -> None:
    for name in (tmp_path / "none", "./none", "../none"):
        with pytest.raises(BundleError, match="no such folder"):
            Predictor.from_pretrained(name)


def test_a_name_of_the_hub_that_is_not_there_may_be_a_folder_that_is_not_there(hub: World) -> None:
    with pytest.raises(BundleError, match=r"found no such repository.*; there is no folder bundles/mine either"):
        Predictor.from_pretrained("bundles/mine")
