"""service/remote against places that send a byte now and then: one time is for the whole, however often bytes come."""

import logging
import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from demur.service.bundle import BundleError, read_bundle
from demur.service.remote import place as limits
from demur.service.remote.cache import fetched
from demur.service.remote.errors import UnreachableError
from demur.service.remote.place import in_time
from demur.service.remote.pull import pull
from demur.service.remote.push import push
from tests.support.bundles import FEATURE_SPEC, write_linear
from tests.support.dripping import Proxy, dripping
from tests.support.places import running

KINDS = ("s3", "hf", "oci")


@contextmanager
def slow(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, Proxy]]:
    """A place of this kind behind a proxy, which is quick at first; and its URI."""
    with running(kind, tmp_path) as world:
        url = next((value for value in world.environment.values() if value.startswith("http")), f"http{world.uri[3:]}")
        port = urlsplit(url).port
        assert port is not None
        with dripping(port, math.inf) as proxy:
            for name, value in world.environment.items():
                monkeypatch.setenv(name, value.replace(f":{port}", f":{proxy.port}"))
            yield world.uri.replace(f":{port}", f":{proxy.port}"), proxy


@pytest.mark.parametrize("kind", KINDS)
def test_a_place_that_drips_is_given_up_wherever_it_begins(
    kind: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    other = write_linear(tmp_path / "other", outputs=2, spec=FEATURE_SPEC, seed=4).path
    with slow(kind, tmp_path, monkeypatch) as (uri, proxy):
        push(folder, uri)
        before = fetched(uri, tmp_path / "cache")
        push(other, uri, replace=True)
        proxy.passed = 0
        pull(uri, tmp_path / "whole")
        whole = proxy.passed
        monkeypatch.setattr(limits, "SECONDS", 0.3)
        for share in (0.0, 0.4, 0.8):
            proxy.passed, proxy.quick = 0, share * whole
            with caplog.at_level(logging.WARNING, "demur"):
                assert fetched(uri, tmp_path / "cache") == before
            assert read_bundle(before).digest == read_bundle(folder).digest
            assert "taking the copy of before" in caplog.text
            caplog.clear()
        with pytest.raises(UnreachableError, match=r"did not answer whole within \d+ s .*check the network"):
            pull(uri, tmp_path / "here")
        assert not (tmp_path / "here").exists()
        if kind != "s3":  # whose threads wait in another language, until their own time is over
            ended()
    ended()


@pytest.mark.parametrize("kind", KINDS)
def test_a_push_to_a_place_that_drips_is_given_up(
    kind: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with slow(kind, tmp_path, monkeypatch) as (uri, proxy):
        push(folder, uri)
        proxy.passed = 0
        push(folder, uri, replace=True)
        whole = proxy.passed
        monkeypatch.setattr(limits, "SECONDS", 0.3)
        for share in (0.0, 0.3, 0.7):
            proxy.passed, proxy.quick = 0, share * whole
            with pytest.raises(UnreachableError, match=r"did not answer whole within \d+ s"):
                push(folder, uri, replace=True)
    ended()


def ended() -> None:
    """No thread still waits for a byte."""
    for thread in threading.enumerate():
        if thread.name == "demur-fetch":
            thread.join(30)
            assert not thread.is_alive()


def test_what_the_work_raises_is_raised() -> None:
    def refuse() -> None:
        raise BundleError("x", "is none")

    def late() -> None:
        raise TimeoutError("of its own")

    with pytest.raises(BundleError, match="is none"):
        in_time("x", 0, refuse)
    with pytest.raises(TimeoutError, match="of its own"):
        in_time("x", 0, late)
    assert in_time("x", 0, lambda: 3) == 3
