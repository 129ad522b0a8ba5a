# One virtual environment at the root; `make demo` and `make test` make it themselves.
PYTHON ?= python3
PORT ?= 8000
DATASET ?= digits
OUT ?= bundles/$(DATASET)
BIN := .venv/bin
# One more than processors: many tests wait, for servers and for times to pass.
WORKERS := $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
# The tests compare with laplace-torch. It declares torchvision, which it runs without and which breaks next to a CPU
# build of torch: so it is installed without its dependencies, and those it uses by name.
BASELINE := laplace-torch backpack-for-pytorch curvlinops-for-pytorch asdfghjkl einops einconv opt-einsum \
            linear-operator unfoldnd torchmetrics

# Packages of the images and of development, with the hashes of their files. uv reads its own settings, not pip's:
# UV_INDEX and others.
LOCK := $(BIN)/uv pip compile --quiet --upgrade --generate-hashes --no-annotate --custom-compile-command 'make lock' \
        --python-version 3.11 --constraint constraints.txt
LOCKS := deploy/requirements

# Every worker and every process that a test starts would otherwise compile each module anew.
unexport PYTHONDONTWRITEBYTECODE

# PYTEST_OPTIONS: from the environment, such as --junitxml=FILE.
PYTEST := -m pytest -n $(WORKERS) --dist worksteal $(PYTEST_OPTIONS)

.PHONY: demo test test-slow test-all coverage check hooks audit bench paper format clean smoke smoke-offline dist lock \
        image-test test-lowest javascript docs site rooms help

help:
	@echo "make demo    train, fit, serve and query a classifier (PORT=$(PORT) DATASET=digits, mnist or fashion-mnist)"
	@echo "make check   lint, types, import arrows, and that the product does not grow"
	@echo "make test    what proves the product on small networks, without other programs (nine minutes on two cores)"
	@echo "make test-slow   the others: large networks, other programs, clocks and long jobs"
	@echo "make test-all    both"
	@echo "make coverage    every test, and which branches they take"
	@echo "make hooks   run ruff, mypy and import-linter before each commit (pre-commit)"
	@echo "make audit   known vulnerabilities of the service's packages"
	@echo "make bench   what a reader decides by, without hours or data (results in benchmarks/results)"
	@echo "make paper   the paper's experiments at the size for two cores (hours), and docs/paper.md"
	@echo "make image-test   build both images as root with buildah and run them with podman (Debian)"
	@echo "make lock    the packages of the images and of development, with their hashes (deploy/requirements)"
	@echo "make javascript   onnxruntime-node, with which the tests run exported models (needs npm)"
	@echo "make test-lowest   the service's tests at the lowest versions that pyproject.toml allows"
	@echo "make docs    what is generated: settings, figures, dashboards, rooms (make rooms: these alone)"
	@echo "make site    the documentation as a site, in site/"
	@echo "make smoke   a fresh environment with the wheel, or with DIST, serves the golden bundle"
	@echo "make smoke-offline   a fresh environment with the wheel and [offline] fits a small recipe"
	@echo "make dist    the source archive and the wheel of a release, in dist/"

.venv/offline.stamp: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(PIP) -e '.[offline]'
	@touch $@

# pip reads dependency groups from 25.1 on.
.venv/dev.stamp: .venv/offline.stamp
	$(BIN)/python -m pip install --quiet --disable-pip-version-check 'pip>=25.1'
	$(PIP) -e '.[offline,client,score,text,grpc,remote,traces,mlflow]' --group dev
	$(PIP) --no-deps $(BASELINE)
	$(PIP) lightning-utilities mpmath
	@touch $@

demo: .venv/offline.stamp
	$(BIN)/python examples/demo.py --dataset $(DATASET) --port $(PORT) --out $(OUT)

test: .venv/dev.stamp
	$(BIN)/python $(PYTEST) -m "not slow"

test-slow: .venv/dev.stamp
	$(BIN)/python $(PYTEST) -m slow

test-all: .venv/dev.stamp
	$(BIN)/python $(PYTEST)

# Branches of demur, service and offline, also in the processes that tests start. Before Python 3.14 it takes about
# twice as long as the tests alone: hosted CI runs it there.
coverage: .venv/dev.stamp
	$(BIN)/coverage erase
	$(BIN)/coverage run $(PYTEST)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

check: .venv/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/hadolint Dockerfile
	$(BIN)/check-jsonschema --builtin-schema vendor.compose-spec docker-compose.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/kubernetes-validate --quiet --strict $(addprefix deploy/kubernetes/,demur.yaml scaling.yaml dashboards.yaml)
	$(BIN)/pre-commit validate-config
	$(BIN)/python .ci/lines.py

hooks: .venv/dev.stamp
	$(BIN)/pre-commit install

# Known vulnerabilities of the packages in the service image. It asks the package index, and needs one that answers.
audit: .venv/dev.stamp
	$(BIN)/pip-audit --disable-pip --require-hashes -r $(LOCKS)/service.txt -r $(LOCKS)/texts.txt

bench: .venv/dev.stamp
	$(BIN)/python -m benchmarks all

# Each goes on where it was interrupted; a full run without --fast needs a GPU.
PAPER := toy uci gaps mnist cifar sizes
paper: .venv/dev.stamp
	set -e; for name in $(PAPER); do $(BIN)/python -m paper $$name --fast; done
	$(BIN)/python -m paper page

format: .venv/dev.stamp
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# The pages as a site, with a reference made from the code; every warning is an error.
site: .venv/dev.stamp
	$(BIN)/python -m docs.site site

docs: rooms
	$(BIN)/python -m docs.settings
	$(BIN)/python -m docs.fit_options
	$(BIN)/python -m docs.figures
	$(BIN)/python -m paper page
	$(BIN)/python -m docs.dashboards

rooms: .venv/dev.stamp
	$(BIN)/python -m docs.rooms --write

# texts.txt is installed without what tokenizers needs only to download them.
# torch's CPU build is not on the package index: UV_TORCH_BACKEND=cpu finds it, or UV_FIND_LINKS=/folder/of/its/wheel.
lock: .venv/dev.stamp
	$(LOCK) pyproject.toml --extra grpc --extra remote --extra traces --universal --output-file $(LOCKS)/service.txt
	grep '^tokenizers==' constraints.txt | $(LOCK) - --no-deps --universal --output-file $(LOCKS)/texts.txt
	echo 'torch==2.13.0+cpu' | $(LOCK) pyproject.toml - --extra offline --python-platform x86_64-manylinux_2_28 \
	    --output-file $(LOCKS)/offline.txt
	$(LOCK) $(LOCKS)/build.in --universal --output-file $(LOCKS)/build.txt
	echo 'torch==2.13.0+cpu' | $(LOCK) pyproject.toml - --extra offline --extra client --extra score --extra text --extra grpc --extra remote --extra traces --extra mlflow --group dev \
	    --python-platform x86_64-manylinux_2_28 --output-file $(LOCKS)/development.txt

# Without the package's own script, which would download a build for CUDA.
javascript:
	npm ci --prefix tests/javascript --ignore-scripts --prefer-offline --no-audit --no-fund

image-test: .venv/dev.stamp
	PYTHON=$(BIN)/python sh tests/image/run.sh

test-lowest:
	PYTHON=$(PYTHON) sh tests/lowest.sh

smoke:
	PYTHON=$(PYTHON) DIST=$(DIST) sh tests/smoke_base_install.sh

smoke-offline:
	PYTHON=$(PYTHON) sh tests/smoke_offline.sh

# What a release publishes: the source archive, and the wheel made of it.
dist:
	rm -rf dist
	PYTHON=$(PYTHON) sh tests/build_dist.sh dist

clean:
	rm -rf .venv build dist *.egg-info bundles
