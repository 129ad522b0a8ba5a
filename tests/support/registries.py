"""The registry of container images that Debian has as docker-registry, on a free port."""

import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.support.server import Server

PROGRAM = shutil.which("docker-registry")
CONFIGURATION = """
version: 0.1
log: {{level: info, formatter: text, accesslog: {{disabled: true}}}}
storage:
  filesystem: {{rootdirectory: {folder}}}
http: {{addr: "127.0.0.1:0"}}
"""
USER, PASSWORD = "user", "secret"
PASSWORDS = f"{USER}:$2y$05$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a\n"  # bcrypt
AUTHENTICATION = "auth: {{htpasswd: {{realm: Registry, path: {file}}}}}\n"


@contextlib.contextmanager
def registry(folder: Path, passwords: bool = False) -> Iterator[str]:
    """HOST:PORT of an empty registry; passwords: it asks for one."""
    file = folder / "registry.yml"
    text = CONFIGURATION.format(folder=folder / "registry")
    if passwords:
        (folder / "htpasswd").write_text(PASSWORDS)
        text += AUTHENTICATION.format(file=folder / "htpasswd")
    file.write_text(text)
    assert PROGRAM is not None
    process = subprocess.Popen(
        [PROGRAM, "serve", str(file)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        listening = Server(process).wait_for(r"listening on 127\.0\.0\.1:(\d+)")
        yield f"127.0.0.1:{listening[1]}"
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()
