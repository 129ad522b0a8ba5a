#!/bin/sh
# Build the source archive, and the wheel from it, into the folder $1. It copies the sources: nothing else is written here.
# LINKS: what the README's relative links begin with where they are read elsewhere, such as on a package index.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/sources"
cp -R "$root/pyproject.toml" "$root/README.md" "$root/LICENSE" "$root/demur" "$root/service" "$root/offline" \
    "$work/sources"
[ -z "${LINKS:-}" ] || "${PYTHON:-python3}" "$root/.ci/links.py" "$LINKS" "$work/sources/README.md"
"${PYTHON:-python3}" -m venv "$work/builder"
"$work/builder/bin/python" -m pip install --quiet --disable-pip-version-check -c "$root/constraints.txt" build setuptools
"$work/builder/bin/python" -m build --no-isolation --outdir "$1" "$work/sources" >"$work/build.log" 2>&1 ||
    { cat "$work/build.log"; exit 1; }
