"""Print the lowest version of everything that pyproject.toml allows, as constraints: `name==version` lines."""

import re
import sys
import tomllib
from pathlib import Path

PROJECT = tomllib.loads(Path(sys.argv[1]).read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]

for line in (*PROJECT["dependencies"], *EXTRAS["offline"], *EXTRAS["client"], *EXTRAS["text"], *EXTRAS["grpc"]):
    match = re.match(r"([\w-]+)(?:\[[\w,]+\])?>=([\w.]+)", line)
    assert match, f"pyproject.toml: found {line!r}, expected a lowest version (>=)"
    print(f"{match[1]}=={match[2]}")
