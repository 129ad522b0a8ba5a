"""Each kind of place that bundles are fetched from and put to, empty and running."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support import registries
from tests.support.buckets import buckets
from tests.support.fake_hub import fake_hub

KINDS = ("folder", "s3", "gs", "az", "hf", "oci")
NO_REGISTRY = "needs docker-registry, which Debian has"
HUB_NAME = "acme/digits"


@dataclass(frozen=True)
class World:
    """A place: `uri` is where the tests push; `environment` leads clients there. `asked` lists the requests of before,
    and `refuse(status)` makes it answer so from then on (0: as usual), where it can. `files` are those of the place.
    """

    kind: str
    uri: str
    environment: Mapping[str, str]
    asked: Callable[[], list[str]]
    refuse: Callable[[int], None]
    files: Callable[[], Mapping[str, bytes]]
    put: Callable[[str, bytes], None]


@contextlib.contextmanager
def running(kind: str, tmp_path: Path) -> Iterator[World]:
    """A place of this kind."""
    if kind == "folder":
        yield _folder(tmp_path / "elsewhere" / "digits")
    elif kind == "hf":
        yield from _hub()
    elif kind == "oci":
        yield from _registry(tmp_path)
    else:
        yield from _bucket(kind)


def _nothing(*_: object) -> None:
    raise NotImplementedError


def _folder(path: Path) -> World:
    def files() -> dict[str, bytes]:
        return {file.name: file.read_bytes() for file in path.iterdir()} if path.exists() else {}

    def put(name: str, data: bytes) -> None:
        (path / name).write_bytes(data)

    return World("folder", str(path), {}, list, _nothing, files, put)


def _bucket(scheme: str) -> Iterator[World]:
    with buckets() as store:
        root = "models/digits/1/"

        def path_of(name: str) -> str:
            return ("/devstoreaccount1/" if scheme == "az" else "/") + root + name

        def files() -> dict[str, bytes]:
            return {path.rpartition("/")[2]: data for path, data in store.objects.items()}

        yield World(
            scheme,
            f"{scheme}://{root.rstrip('/')}",
            store.environment(scheme),
            lambda: store.asked,
            lambda status: setattr(store, "status", status),
            files,
            lambda name, data: store.objects.__setitem__(path_of(name), data),
        )


def _hub() -> Iterator[World]:
    with fake_hub() as hub:

        def files() -> Mapping[str, bytes]:
            found = hub.at(HUB_NAME, "main")
            return {} if found is None else found[1]

        def put(name: str, data: bytes) -> None:
            hub.commit(HUB_NAME, {**files(), name: data})

        yield World(
            "hf",
            f"hf://{HUB_NAME}",
            {"HF_ENDPOINT": hub.url, "HF_TOKEN": "hf_secret"},
            lambda: [line for line, _ in hub.requests],
            lambda status: setattr(hub, "status", status),
            files,
            put,
        )


def _registry(tmp_path: Path) -> Iterator[World]:
    if registries.PROGRAM is None:
        pytest.skip(NO_REGISTRY)
    with registries.registry(tmp_path) as host:
        yield World("oci", f"oci://{host}/team/digits:1", {}, list, _nothing, dict, _nothing)
