#!/bin/sh
# Build the images and run them: `make image-test`. Needs root, buildah, podman, runc and mmdebstrap, and says so.
set -eu
here=$(dirname "$0")
for tool in buildah podman runc mmdebstrap; do
    command -v $tool >/dev/null || { echo "image-test: skipped, found no $tool (apt-get install $tool)"; exit 0; }
done
unshare --mount --net true 2>/dev/null || { echo "image-test: skipped, may not make namespaces here"; exit 0; }
[ "$(id -u)" = 0 ] || { echo "image-test: skipped, expected root, found $(id -un)"; exit 0; }

work=$(mktemp -d)
# A storage of our own; files in it belong to many users, and layers may still be mounted.
trap '"$work/podman" --log-level fatal system reset --force >/dev/null 2>&1 || true; rm -rf "$work"' EXIT
for tool in buildah podman; do
    printf '#!/bin/sh\nexec %s --root %s --runroot %s %s "$@"\n' \
        $tool "$work/root" "$work/run" "$([ $tool = podman ] && echo --runtime=runc --cgroup-manager=cgroupfs)" >"$work/$tool"
    chmod +x "$work/$tool"
done
export BUILDAH_ISOLATION=chroot
sh "$here/build.sh" "$work"
DEMUR_TEST_PODMAN=$work/podman "${PYTHON:-.venv/bin/python}" -m pytest "$here" -n 0 ${PYTEST_OPTIONS:-} "$@"
