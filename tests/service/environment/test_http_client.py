"""service/environment/http_client.py: a variable from which no client can be made is named, without its password."""

import re
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from demur.service.client import AsyncClient, Client
from demur.service.environment.http_client import made
from tests.support.server import ROOT, environment

PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
BAD_PROXIES = {
    "socks5://ann:hunter2@proxy:1": "found 'socks5://proxy:1', which needs the package socksio: pip install socksio",
    "socks5h://proxy": "found 'socks5h://proxy', which needs the package socksio",
    "ftp://ann:hunter2@proxy": "found 'ftp://proxy', expected a proxy such as http://HOST:PORT",
    "http://ann:hunter2@proxy:port": "found 'http://proxy:port', expected a proxy",
    "http://ann:hun/ter2@proxy:1": "found 'http://proxy:1', expected a proxy",
    "ann:hunter2@proxy:port": "found 'proxy:port', expected a proxy",
    "http://[::1": r"found 'http://\[::1', expected a proxy",
    "http://a\tb": r"found 'http://a\\tb', expected a proxy",
    "garbage:port": "found 'garbage:port', expected a proxy",
}
BAD_FILES = {"none": "No such file or directory", "folder": "Is a directory", "text": "no certificate or crl found"}


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*PROXIES, "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR", "SSLKEYLOGFILE"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


def told(kind: type[Client] | type[AsyncClient]) -> str:
    """What is said where a client is made, in one line and without the password."""
    with pytest.raises(ValueError, match=r"^[^\n]*; correct the variable, or unset it$") as caught:
        kind("http://127.0.0.1:9")
    assert not re.search("ann:|hun|ter2", str(caught.value))
    return str(caught.value)


@pytest.mark.parametrize("kind", [Client, AsyncClient])
@pytest.mark.parametrize("name", [*PROXIES, *map(str.lower, PROXIES)])
@pytest.mark.parametrize("value", BAD_PROXIES)
def test_a_proxy_that_is_none_is_named(
    kind: type[Client], name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if value.startswith("socks"):
        monkeypatch.setitem(sys.modules, "socksio", None)
    monkeypatch.setenv(next(each for each in PROXIES if each != name.upper()), "http://fine:1")
    monkeypatch.setenv(name, value)
    assert re.match(f"{name}: {BAD_PROXIES[value]}", told(kind))


def test_the_name_in_lower_case_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://fine:1")
    monkeypatch.setenv("http_proxy", "ftp://bad")
    assert told(Client).startswith("http_proxy: found 'ftp://bad'")


@pytest.mark.parametrize("name", ["NO_PROXY", "no_proxy"])
@pytest.mark.parametrize("value", ["http://a:b", "fine,a:b,::1"])
def test_hosts_without_a_proxy_that_are_none_are_named(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://fine:1")
    monkeypatch.setenv(name, value)
    assert told(Client).startswith(f"{name}: found '{value}', expected names of hosts, with commas between them")


@pytest.mark.parametrize("kind", [Client, AsyncClient])
@pytest.mark.parametrize("file", BAD_FILES)
def test_a_file_of_certificates_that_is_none_is_named(
    kind: type[Client], file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "text").write_text("no certificate")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / file))
    found = told(kind)
    assert found.startswith(f"SSL_CERT_FILE: found '{tmp_path / file}' (")
    assert BAD_FILES[file] in found


def test_a_file_for_keys_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSLKEYLOGFILE", str(tmp_path / "none" / "keys"))
    assert told(Client).startswith(f"SSLKEYLOGFILE: found '{tmp_path / 'none' / 'keys'}' (No such file or directory)")


def test_what_the_environment_does_not_cause_is_raised_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise KeyError("of its own")

    with pytest.raises(KeyError, match="of its own"):
        made(httpx, fail)
    monkeypatch.setenv("HTTP_PROXY", "http://ann:hunter2@fine:1")
    with pytest.raises(KeyError, match="of its own"):
        made(httpx, fail)


def test_a_transport_of_ones_own_needs_no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "ftp://bad")
    with Client("http://127.0.0.1:9", transport=httpx.MockTransport(lambda _: httpx.Response(503))) as client:
        assert not client.ready()


@pytest.mark.parametrize(
    ("uri", "name", "value", "found"),
    [
        (
            "hf://acme/a",
            "ALL_PROXY",
            "socks5://ann:hunter2@proxy:1",
            "ALL_PROXY: found 'socks5://proxy:1', which needs",
        ),
        ("hf://acme/a", "https_proxy", "http://ann:hunter2@proxy:port", "https_proxy: found 'http://proxy:port'"),
        ("hf://acme/a", "SSL_CERT_FILE", "/none", "SSL_CERT_FILE: found '/none' (No such file"),
        ("oci://registry.invalid/a:1", "ALL_PROXY", "http://ann:hunter2@proxy:port", "HTTP_PROXY, HTTPS_PROXY and ALL"),
        ("oci://registry.invalid/a:1", "REQUESTS_CA_BUNDLE", "/none", "found no certificates at /none"),
    ],
)
def test_a_command_says_it_in_one_line(uri: str, name: str, value: str, found: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "demur", "pull", uri, "--out", str(tmp_path / "here")]
    variables = environment(**{name: value, "COLUMNS": "500", "PYTHONWARNINGS": "ignore"})
    ended = subprocess.run(command, cwd=ROOT, env=variables, text=True, capture_output=True, check=False)
    assert ended.returncode == 2
    assert found in ended.stderr
    assert len(ended.stderr.strip().splitlines()) == 1
    assert "hunter2" not in ended.stderr
