"""Downloads of data sets, from a server on this machine."""

import hashlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from benchmarks.core.folders import CACHE
from benchmarks.datasets.download import DataError, RemoteFile, cache, fetch
from benchmarks.datasets.folder import data_folder, given, local

CONTENT = bytes(range(256)) * 40


@dataclass
class Site:
    """What a server has at each path, how many bytes it promises beyond them, and what it was asked for."""

    address: str
    pages: dict[str, bytes] = field(default_factory=dict)
    missing: int = 0
    asked: list[str] = field(default_factory=list)

    def file(self, content: bytes = CONTENT, *paths: str) -> RemoteFile:
        """A file that this site, at these paths, should have."""
        urls = tuple(self.address + path for path in paths or ("/digits.gz",))
        sha256 = hashlib.sha256(content).hexdigest()
        return RemoteFile("digits", "digits.gz", urls, sha256, len(content))


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found.asked.append(self.path)
            content = found.pages.get(self.path)
            if content is None:
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("Content-Length", str(len(content) + found.missing))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        found = Site(f"http://127.0.0.1:{server.server_address[1]}", {"/digits.gz": CONTENT})
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield found
        server.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and no folder of data."""
    monkeypatch.delenv("DEMUR_DATA_DIR", raising=False)
    monkeypatch.setenv("DEMUR_DATA_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def left_in(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_the_default_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DEMUR_DATA_CACHE")
    assert cache() == CACHE / "datasets"


def test_a_download(site: Site, kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = fetch(site.file())
    assert path == kept / "digits" / "digits.gz"
    assert path.read_bytes() == CONTENT
    assert left_in(kept) == [path]
    assert capsys.readouterr().out == (
        f"downloading digits/digits.gz (0.0 MB) from {site.address}/digits.gz to {kept / 'digits'}\n"
    )


def test_a_second_time_nothing_is_asked(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    first = fetch(site.file())
    capsys.readouterr()
    assert fetch(site.file()) == first
    assert site.asked == ["/digits.gz"]
    assert capsys.readouterr().out == ""


def test_a_kept_file_of_another_size_is_replaced(site: Site, kept: Path) -> None:
    (kept / "digits").mkdir(parents=True)
    (kept / "digits" / "digits.gz").write_bytes(b"half")
    assert fetch(site.file()).read_bytes() == CONTENT


def test_a_wrong_checksum_leaves_nothing(site: Site, kept: Path) -> None:
    wrong = bytes(len(CONTENT))
    site.pages["/digits.gz"] = wrong
    with pytest.raises(DataError) as failure:
        fetch(site.file())
    found, expected = (hashlib.sha256(content).hexdigest() for content in (wrong, CONTENT))
    assert f"found sha256 {found}, expected {expected}" in str(failure.value)
    assert "DEMUR_DATA_DIR" in str(failure.value)
    assert left_in(kept) == []


@pytest.mark.parametrize(
    ("content", "found"),
    [(CONTENT + b"more", "found more than 10,240 bytes, expected 10,240"), (CONTENT[:9000], "found 9,000 bytes")],
)
def test_another_size_leaves_nothing(site: Site, kept: Path, content: bytes, found: str) -> None:
    site.pages["/digits.gz"] = content
    with pytest.raises(DataError, match=found):
        fetch(site.file())
    assert left_in(kept) == []


def test_an_interrupted_download_leaves_nothing(site: Site, kept: Path) -> None:
    site.pages["/digits.gz"], site.missing = CONTENT[:5000], 5240
    with pytest.raises(DataError, match=r"digits.gz: peer closed connection"):
        fetch(site.file())
    assert left_in(kept) == []


def test_a_mirror_where_the_original_has_gone(site: Site) -> None:
    site.pages = {"/mirror/digits.gz": CONTENT}
    assert fetch(site.file(CONTENT, "/digits.gz", "/mirror/digits.gz")).read_bytes() == CONTENT
    assert site.asked == ["/digits.gz", "/mirror/digits.gz"]


def test_every_address_fails(site: Site, kept: Path) -> None:
    site.pages = {}
    with pytest.raises(DataError, match=r"(?s)/digits.gz: .*404.*/other.gz: .*404.*DEMUR_DATA_DIR"):
        fetch(site.file(CONTENT, "/digits.gz", "/other.gz"))
    assert left_in(kept) == []


def test_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        port = server.server_address[1]
    file = RemoteFile("digits", "digits.gz", (f"http://127.0.0.1:{port}/digits.gz",), "", 1)
    with pytest.raises(DataError, match=r"not downloaded.*with a connection to these addresses"):
        fetch(file)


def test_the_given_folder_goes_first(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data" / "digits").mkdir(parents=True)
    (tmp_path / "data" / "digits" / "digits.gz").write_bytes(b"mine")
    monkeypatch.setenv("DEMUR_DATA_DIR", str(tmp_path / "data"))
    assert local(site.file()).read_bytes() == b"mine"
    assert site.asked == []


def test_what_the_given_folder_lacks_is_downloaded(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEMUR_DATA_DIR", str(tmp_path))
    assert given("digits/digits.gz") is None
    assert local(site.file()).read_bytes() == CONTENT


def test_a_given_folder_that_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEMUR_DATA_DIR", str(tmp_path / "mistyped"))
    with pytest.raises(DataError, match=r"found '.*mistyped', which is no folder.*the data are downloaded"):
        data_folder()


def test_without_a_given_folder() -> None:
    assert data_folder() is None
    assert given("digits/digits.gz") is None
