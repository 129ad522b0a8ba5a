"""/docs: everything that the page needs comes from the service."""

import re
from pathlib import Path

import pytest

from tests.support.browser import needs_chromium, render
from tests.support.bundles import Synthetic
from tests.support.client import Client
from tests.support.server import running

pytestmark = pytest.mark.slow


def test_the_page_names_no_other_host(client: Client) -> None:
    response = client.get("/docs")
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/html")
    assert "//" not in re.sub(r"// .*", "", response.text).replace("<!DOCTYPE", "")
    addresses = re.findall(r"""(?:src|href|url)(?:=|: )["']([^"']+)["']""", response.text)
    assert len(addresses) == 4
    for address in addresses:
        found = client.get(address.removeprefix("."))
        assert (found.status_code, found.headers["x-content-type-options"]) == (200, "nosniff")


def test_the_policy_allows_this_service_alone(client: Client) -> None:
    policy = dict(rule.split(" ", 1) for rule in client.get("/docs").headers["content-security-policy"].split("; "))
    assert policy["default-src"] == "'none'"
    assert policy["connect-src"] == "'self'"
    assert re.fullmatch(r"'self' 'sha256-[A-Za-z0-9+/]{43}='", policy["script-src"])
    assert "http" not in "".join(policy.values())


@pytest.mark.parametrize("path", ["/redoc", "/docs/", "/docs/oauth2-redirect", "/docs/redoc.standalone.js"])
def test_nothing_else_is_served_there(client: Client, path: str) -> None:
    assert client.get(path).status_code == 404


@needs_chromium
def test_a_browser_shows_the_operations(classification: Synthetic, tmp_path: Path) -> None:
    with running(classification.path) as server:
        page = render(f"http://127.0.0.1:{server.port}/docs", tmp_path)
    assert page.hosts == {f"127.0.0.1:{server.port}"}
    assert page.console == []
    for path in ("/predict", "/health/ready", "/v2/models/{name}/infer"):
        assert f'data-path="{path}"' in page.html
