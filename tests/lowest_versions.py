"""Print the lowest version of everything that pyproject.toml allows, as constraints: `name==version` lines."""

import re
import sys
import tomllib
from pathlib import Path

PROJECT = tomllib.loads(Path(sys.argv[1]).read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]

USED = "offline", "client", "text", "grpc", "remote", "traces"

for line in (*PROJECT["dependencies"], *(line for extra in USED for line in EXTRAS[extra])):
    match = re.match(r"([\w-]+)(?:\[[\w,]+\])?>=([\w.]+)", line)
    assert match, f"pyproject.toml: found {line!r}, expected a lowest version (>=)"
    print(f"{match[1]}=={match[2]}")
