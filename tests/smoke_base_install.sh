#!/bin/sh
# A newcomer's base install, from the wheel, in a fresh environment outside the checkout: it holds no torch and serves
# the golden bundle. DIST: a wheel or source archive to install instead of a new wheel.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
[ -n "${DIST:-}" ] || { sh "$root/tests/build_dist.sh" "$work/dist"; DIST=$(echo "$work"/dist/*.whl); }
"${PYTHON:-python3}" -m venv "$work/venv"
"$work/venv/bin/python" -m pip install --quiet --disable-pip-version-check -c "$root/constraints.txt" "$(realpath "$DIST")"
cd "$work"
"$work/venv/bin/python" "$root/tests/smoke_check.py" "$root/tests/golden/v1"
echo "base install: $(basename "$DIST"), $(du -sm "$work/venv" | cut -f1) MB"
