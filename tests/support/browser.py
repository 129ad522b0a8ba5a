"""A real browser without a screen: what a page becomes, and which addresses it asks."""

import json
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium (Debian's package chromium)")
QUIET = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",  # nothing reaches another machine
)


@dataclass(frozen=True)
class Page:
    """The document after its scripts have run, what they said in the console, and the hosts that it asked."""

    html: str
    console: list[str]
    hosts: set[str]


def render(url: str, folder: Path) -> Page:
    """The page as it is after ten seconds of its own time; `folder`, empty, is the browser's."""
    assert CHROMIUM is not None
    log = folder / "net.json"
    command = [
        CHROMIUM,
        *QUIET,
        f"--user-data-dir={folder / 'profile'}",
        f"--log-net-log={log}",
        "--enable-logging=stderr",
        "--virtual-time-budget=10000",
        "--window-size=1200,1600",
        f"--screenshot={folder / 'page.png'}",
        "--dump-dom",
        url,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return Page(done.stdout, console, _hosts(json.loads(log.read_text()), url))


def _hosts(log: dict[str, Any], url: str) -> set[str]:
    """Of the requests that were begun for the page; the browser makes others for itself."""
    site = f"http://{urlsplit(url).hostname}"
    requests = [event["params"] for event in log["events"] if "url" in event.get("params", {})]
    return {urlsplit(one["url"]).netloc for one in requests if f"{one.get('network_isolation_key')}".startswith(site)}
