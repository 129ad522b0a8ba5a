# Two images:
#   docker build -t probity .                            the service: no torch, no offline code
#   docker build -t probity-offline --target offline .   the job that fits bundles

FROM python:3.11-slim AS build
ENV PIP_NO_CACHE_DIR=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python -m venv /venv
ENV PATH=/venv/bin:$PATH
WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY service/ service/


FROM build AS offline-build
COPY offline/ offline/
RUN pip install -c constraints.txt '.[offline]'


FROM build AS service-build
# offline/ is not in this stage, so setuptools packages the service alone; the command that would need it goes too.
RUN pip install -c constraints.txt . && rm /venv/bin/probity


FROM python:3.11-slim AS offline
COPY --from=offline-build /venv /venv
# Run with `--user "$(id -u)"` to write bundles into a mounted folder of yours. Such a user has no name and no home
# here, and torch asks for both.
ENV PATH=/venv/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    USER=probity \
    HOME=/tmp
RUN install -d -o 10001 -g 10001 /work
WORKDIR /work
USER 10001:10001
ENTRYPOINT ["probity"]


# The last stage is what a build without --target makes.
FROM python:3.11-slim AS service
COPY --from=service-build /venv /venv
# The root file system may be read-only: nothing is written at run time, not even bytecode (pip compiled it).
# In a container, listening on every address is what makes the port reachable.
ENV PATH=/venv/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    PROBITY_HOST=0.0.0.0 \
    PROBITY_PORT=8000 \
    PROBITY_BUNDLE=/bundle
# A number, so that an orchestrator can tell without /etc/passwd that this is not root.
USER 10001:10001
EXPOSE 8000
# http.client and not urllib, which would send this through a proxy that the environment names.
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import http.client as h, os, sys; c = h.HTTPConnection('127.0.0.1', int(os.environ['PROBITY_PORT']), timeout=4); c.request('GET', '/health/ready'); sys.exit(c.getresponse().status != 200)"]
ENTRYPOINT ["python", "-m", "service"]
