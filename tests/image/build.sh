#!/bin/sh
# Build both images of the Dockerfile with buildah, as root, into the storage of the folder $1. The base image is made
# from Debian's archive and the packages are downloaded first, so that the build itself asks nobody.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$1
python=${PYTHON:-$root/.venv/bin/python}
base=$(sed -n 's/^ARG BASE=//p' "$root/Dockerfile")
mkdir -p "$work/wheels"

passed() { echo "$1: $(($(date +%s) - started)) s"; started=$(date +%s); }
started=$(date +%s)

sh "$root/tests/image/base.sh" "$work/base.tar"
"$work/podman" import --quiet "$work/base.tar" "$base" >/dev/null
rm "$work/base.tar"
passed "base image"

for lock in build service texts offline; do
    "$python" -m pip download --quiet --quiet --disable-pip-version-check --require-hashes --only-binary :all: \
        $([ $lock = texts ] && echo --no-deps) \
        --python-version 3.11 ${TORCH_INDEX:+--extra-index-url "$TORCH_INDEX"} \
        --dest "$work/wheels" -r "$root/deploy/requirements/$lock.txt"
done
passed "packages"

# /mnt is in every Debian image and empty: nothing of the mounted folder stays in what is built.
printf '[global]\nno-index = true\nfind-links = /mnt\n' >"$work/pip.conf"
for target in service offline; do
    "$work/buildah" build --quiet --pull-never --layers --format docker --network none --target "$target" \
        --build-arg REVISION="$(git -C "$root" rev-parse HEAD 2>/dev/null || true)" \
        --secret id=pip.conf,src="$work/pip.conf" --volume "$work/wheels:/mnt:ro" \
        --tag "localhost/demur-$target" "$root"
    passed "image $target"
done
