"""What can stand in the place of `versions.json` and is none."""

import os
import stat
from collections.abc import Callable
from functools import partial
from pathlib import Path

from demur.service.models.versions_file import MOST_BYTES

CONTENTS = {
    "empty": b"",
    "truncated": b'{"a": "9',
    "nul": b"\0" * 100,
    "a name twice": b'{"a": "9", "a": "10"}',
    "no text": b'{"a": "\xff"}',
    "deep": b"[" * 100_000,
    "huge": b" " * (MOST_BYTES + 1),
    "of another kind": b'{"a": 9}',
}


BROKEN: dict[str, Callable[[Path], object]] = {
    **{name: partial(Path.write_bytes, data=content) for name, content in CONTENTS.items()},
    "folder": lambda file: (file / "kept").mkdir(parents=True),
    "link that leads nowhere": lambda file: file.symlink_to("nowhere"),
    "link to itself": lambda file: file.symlink_to(file.name),
    "link to an I/O error": lambda file: file.symlink_to("/proc/self/mem"),
    "link to a device": lambda file: file.symlink_to("/dev/zero"),
    "pipe": os.mkfifo,
    "socket": lambda file: os.mknod(file, stat.S_IFSOCK | 0o600),
}
