# Two images, without pip and without a compiler:
#   docker build -t demur:0.1.0 .                            the service: no torch, no offline code
#   docker build -t demur-offline:0.1.0 --target offline .   the job that fits bundles: x86-64, torch's CPU build
#
# Every package is installed by the hash of its file: deploy/requirements, which `make lock` writes. Where packages come
# from another index than pypi.org, pass pip's configuration: --secret id=pip.conf,src=$HOME/.config/pip/pip.conf

# The images that are published name it by its digest: .github/workflows/release.yml.
ARG BASE=docker.io/library/python:3.11-slim
FROM ${BASE} AS tools
ENV PIP_NO_CACHE_DIR=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_ROOT_USER_ACTION=ignore \
    PIP_ONLY_BINARY=:all:
WORKDIR /src
COPY deploy/requirements/ deploy/requirements/
RUN --mount=type=secret,id=pip.conf,target=/etc/pip.conf \
    python -m venv --without-pip /tools \
    && pip --python /tools/bin/python install --require-hashes -r deploy/requirements/build.txt


# Packages and code are layers of their own: a new version of the code is a few hundred kilobytes to fetch.
FROM tools AS service-packages
RUN --mount=type=secret,id=pip.conf,target=/etc/pip.conf \
    python -m venv --without-pip /venv \
    && pip --python /venv/bin/python install --require-hashes -r deploy/requirements/service.txt \
    && pip --python /venv/bin/python install --require-hashes --no-deps -r deploy/requirements/texts.txt


FROM tools AS offline-packages
# torch's CPU build is a fraction of what pypi.org has, and on PyTorch's own index alone.
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
RUN --mount=type=secret,id=pip.conf,target=/etc/pip.conf \
    python -m venv --without-pip /venv \
    && pip --python /venv/bin/python install --require-hashes --extra-index-url "$TORCH_INDEX" \
        -r deploy/requirements/offline.txt


FROM service-packages AS service-build
COPY pyproject.toml README.md LICENSE ./
COPY demur/ demur/
COPY service/ service/
# offline/ is not in this stage, so setuptools packages the service and the command alone.
RUN pip --python /tools/bin/python wheel --no-deps --no-index --no-build-isolation --wheel-dir /wheels . \
    && pip --python /venv/bin/python install --no-deps --no-index --target /app /wheels/*.whl
RUN PYTHONPATH=/app /tools/bin/cyclonedx-py environment --pyproject pyproject.toml --mc-type application \
        --validate --output-file /app/sbom.cdx.json /venv/bin/python


FROM offline-packages AS offline-build
COPY pyproject.toml README.md LICENSE ./
COPY demur/ demur/
COPY service/ service/
COPY offline/ offline/
RUN pip --python /tools/bin/python wheel --no-deps --no-index --no-build-isolation --wheel-dir /wheels . \
    && pip --python /venv/bin/python install --no-deps --no-index --target /app /wheels/*.whl
RUN PYTHONPATH=/app /tools/bin/cyclonedx-py environment --pyproject pyproject.toml --mc-type application \
        --validate --output-file /app/sbom.cdx.json /venv/bin/python


FROM ${BASE} AS runtime
# Nothing is installed at run time, by nobody.
RUN pip uninstall --yes --root-user-action=ignore pip setuptools wheel \
    && rm -r "$(python -c 'import ensurepip; print(ensurepip.__path__[0])')"
# The code is in /app, its packages in /venv, a bill of materials of both in /app/sbom.cdx.json.
ENV PATH=/app/bin:/venv/bin:$PATH \
    PYTHONPATH=/app \
    PYTHONUNBUFFERED=1 \
    ORT_DISABLE_TELEMETRY=1
ARG REVISION=
ARG BASE
LABEL org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.revision="$REVISION" \
      org.opencontainers.image.licenses="MIT" \
      org.opencontainers.image.base.name="${BASE}"


FROM runtime AS offline
LABEL org.opencontainers.image.title="demur-offline" \
      org.opencontainers.image.description="Fits, calibrates and packages the bundles that Demur serves."
COPY --from=offline-packages /venv /venv
COPY --from=offline-build /app /app
# Run with `--user "$(id -u)"` to write bundles into a mounted folder of yours. Such a user has no name and no home
# here, and torch asks for both.
ENV USER=demur \
    HOME=/tmp
RUN install -d -o 10001 -g 10001 /work
WORKDIR /work
USER 10001:10001
ENTRYPOINT ["demur"]


# The last stage is what a build without --target makes.
FROM runtime AS service
LABEL org.opencontainers.image.title="demur" \
      org.opencontainers.image.description="A model server that says how sure it is, and demurs when it should."
COPY --from=service-packages /venv /venv
COPY --from=service-build /app /app
# The root file system may be read-only: nothing is written at run time, not even bytecode (pip compiled it).
# In a container, listening on every address is what makes the port reachable.
ENV PYTHONDONTWRITEBYTECODE=1 \
    DEMUR_HOST=0.0.0.0 \
    DEMUR_PORT=8000 \
    DEMUR_BUNDLE=/bundle \
    DEMUR_CACHE_DIR=/tmp/demur
# A number, so that an orchestrator can tell without /etc/passwd that this is not root.
USER 10001:10001
EXPOSE 8000
# http.client and not urllib, which would send this through a proxy that the environment names.
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import http.client as h, os, sys; c = h.HTTPConnection('localhost', int(os.environ['DEMUR_PORT']), timeout=4); c.request('GET', '/health/ready'); sys.exit(c.getresponse().status != 200)"]
ENTRYPOINT ["python", "-m", "demur.service"]
