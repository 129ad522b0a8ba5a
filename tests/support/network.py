"""A command under strace, with an empty home: which addresses it turned to, and what it left in the home."""

import os
import re
import shutil
import subprocess
import threading
from pathlib import Path

CALLS = "connect,sendto,sendmsg,sendmmsg"
ADDRESS = re.compile(r'sin6?_port=htons\((?P<port>\d+)\).*?(?:inet_addr\(|inet_pton\(AF_INET6, )"(?P<host>[^"]+)"')
NAME_SERVER_PORT = "53"
TIMEOUT = 60


def can_trace() -> bool:
    """Whether strace is there and the kernel lets it trace."""
    strace = shutil.which("strace")
    return strace is not None and subprocess.run([strace, "true"], capture_output=True, check=False).returncode == 0


class Traced:
    """Within the block, start one process with `prefix` before its command, and with `pass_fds`. strace is no parent
    of it (-D): signals reach the command itself."""

    def __init__(self) -> None:
        reading, self._writing = os.pipe()
        self._trace: list[str] = []
        self._reader = threading.Thread(target=self._read, args=(reading,), daemon=True)
        self._reader.start()
        self.pass_fds = (self._writing,)
        trace = [
            "-qq",
            "-f",
            "--seccomp-bpf",
            "-e",
            f"trace={CALLS}",
            "-e",
            "signal=none",
            "-o",
            f"/proc/self/fd/{self._writing}",
        ]
        self.prefix = ["strace", "-D", *trace]

    def __enter__(self) -> "Traced":
        return self

    def __exit__(self, *exception: object) -> None:
        """The trace ends with the command and with strace, which still write to the pipe."""
        os.close(self._writing)
        self._reader.join(TIMEOUT)

    def _read(self, reading: int) -> None:
        with os.fdopen(reading, errors="replace") as pipe:
            self._trace.extend(pipe)

    def strangers(self) -> list[str]:
        """After the block: the system calls towards another host, or any name server."""
        assert not self._reader.is_alive(), "strace did not end with its command"
        return [line for line in self._trace if _leaves_the_host(line)]


def _leaves_the_host(call: str) -> bool:
    address = ADDRESS.search(call)
    if address is None:
        return False
    return address["port"] == NAME_SERVER_PORT or not (address["host"] == "::1" or address["host"].startswith("127."))


def files_in(home: Path) -> list[str]:
    return sorted(str(path.relative_to(home)) for path in home.rglob("*") if not path.is_dir())
