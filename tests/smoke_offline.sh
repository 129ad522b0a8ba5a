#!/bin/sh
# The wheel with its extra [offline] in a fresh environment outside the checkout: it has one top-level name, and fits a
# small recipe and serves it, also within a project whose packages are called like folders of ours.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
sh "$root/tests/build_dist.sh" "$work/dist"
"${PYTHON:-python3}" -m venv "$work/venv"
"$work/venv/bin/python" -m pip install --quiet --disable-pip-version-check -c "$root/constraints.txt" \
    "$(echo "$work"/dist/*.whl)[offline]"
names=$("$work/venv/bin/python" -c "
import zipfile, sys
print({name.partition('/')[0] for name in zipfile.ZipFile(sys.argv[1]).namelist() if '.dist-info/' not in name})
" "$work"/dist/*.whl)
[ "$names" = "{'demur'}" ] || { echo "found top-level names $names in the wheel, expected demur alone"; exit 1; }
cd "$work"
"$work/venv/bin/demur" fit "$root/tests/image/recipe.py" --out "$work/tiny"
"$work/venv/bin/python" -c "
import sys, numpy, demur
answer = demur.Predictor.load(sys.argv[1]).predict(numpy.zeros((3, 4), numpy.float32))
assert answer.probabilities.shape == (3, 2), answer.probabilities
" "$work/tiny"
"$work/venv/bin/demur" export "$work/tiny" --standalone "$work/tiny.onnx"
mkdir "$work/project"
cd "$work/project"
"$work/venv/bin/python" -P "$root/tests/smoke_neighbours.py" "$root/tests/image/recipe.py"
echo "offline install: a recipe fitted, $(du -sm "$work/venv" | cut -f1) MB"
