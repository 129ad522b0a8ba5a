#!/bin/sh
# A newcomer's base install, from the wheel, in a fresh environment outside the checkout: it holds no torch and serves
# the golden bundle.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
sh "$root/tests/build_wheel.sh" "$work"
"${PYTHON:-python3}" -m venv "$work/venv"
"$work/venv/bin/python" -m pip install --quiet --disable-pip-version-check -c "$root/constraints.txt" "$work"/dist/*.whl
cd "$work"
"$work/venv/bin/python" "$root/tests/smoke_check.py" "$root/tests/golden/v1"
echo "base install: $(du -sm "$work/venv" | cut -f1) MB"
