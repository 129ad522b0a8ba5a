#!/bin/sh
# The service at the lowest versions that pyproject.toml allows, in an environment of its own: golden bundles, HTTP,
# start and stop. With arguments, those tests instead.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"${PYTHON:-python3}" -m venv "$work/venv"
"$work/venv/bin/python" "$root/tests/lowest_versions.py" "$root/pyproject.toml" >"$work/lowest.txt"
cp -R "$root/pyproject.toml" "$root/README.md" "$root/LICENSE" "$root/demur" "$root/service" "$root/offline" "$work"
"$work/venv/bin/python" -m pip install --quiet --disable-pip-version-check -c "$work/lowest.txt" "$work[client,text,grpc,remote,traces]" onnx
grep -E '^(hypothesis|packaging|pytest|pytest-timeout|pytest-xdist|PyYAML)==' "$root/constraints.txt" >"$work/tools.txt"
"$work/venv/bin/python" -m pip install --quiet --disable-pip-version-check -c "$work/lowest.txt" -r "$work/tools.txt"
cd "$root"
[ $# -gt 0 ] || set -- tests/test_golden.py tests/service/test_app.py tests/service/connection tests/service/http \
    tests/service/process tests/service/inference/test_predictor_bundles.py tests/service/format/test_bundle.py \
    tests/service/test_texts.py tests/service/test_traces.py tests/service/rpc/test_protocol.py tests/service/remote
"$work/venv/bin/python" -m pytest -n 3 -m "not slow" -p no:cacheprovider ${PYTEST_OPTIONS:-} "$@"
