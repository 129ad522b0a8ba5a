#!/bin/sh
# Write a root file system like that of python:3.11-slim to the archive $1: Debian 12 with Python 3.11, `python` and a
# pip in /usr/local. Where no registry can be reached, it stands in for the Dockerfile's base image.
set -eu
mmdebstrap --quiet --variant=minbase --mode=root \
    --include=ca-certificates,python3,python3-venv,python-is-python3 \
    --customize-hook='rm "$1"/usr/lib/python3.11/EXTERNALLY-MANAGED' \
    --customize-hook='chroot "$1" python -m venv /bootstrap' \
    --customize-hook='chroot "$1" /bootstrap/bin/pip --isolated --python /usr/bin/python3 install --quiet --no-index \
        --root-user-action=ignore --find-links /usr/share/python-wheels pip setuptools' \
    --customize-hook='rm -r "$1"/bootstrap "$1"/usr/share/python-wheels' \
    bookworm "$1"
