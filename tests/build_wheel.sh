#!/bin/sh
# Build the source archive, and the wheel from it, into the folder $1. It copies the sources: nothing is written here.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "$1/sources"
cp -R "$root/pyproject.toml" "$root/README.md" "$root/LICENSE" "$root/demur" "$root/service" "$root/offline" \
    "$1/sources"
"${PYTHON:-python3}" -m venv "$1/builder"
"$1/builder/bin/python" -m pip install --quiet --disable-pip-version-check -c "$root/constraints.txt" build setuptools
"$1/builder/bin/python" -m build --no-isolation --outdir "$1/dist" "$1/sources" >"$1/build.log" 2>&1 ||
    { cat "$1/build.log"; exit 1; }
