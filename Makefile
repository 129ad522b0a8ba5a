# One virtual environment at the root; `make demo` and `make test` make it themselves.
PYTHON ?= python3
PORT ?= 8000
OUT ?= bundles/digits
BIN := .venv/bin
# laplace-torch is a peer that the tests compare with. It declares torchvision, which it runs without and which
# breaks next to a CPU build of torch: so it is installed without its dependencies, and those it uses by name.
PEER := laplace-torch backpack-for-pytorch curvlinops-for-pytorch asdfghjkl einops einconv opt-einsum \
        linear-operator unfoldnd torchmetrics

# Packages of the images, with the hashes of their files. uv reads its own settings, not pip's: UV_INDEX and others.
LOCK := $(BIN)/uv pip compile --quiet --upgrade --generate-hashes --no-annotate --custom-compile-command 'make lock' \
        --python-version 3.11 --constraint constraints.txt
LOCKS := deploy/requirements

.PHONY: demo test check bench bench-selection format clean smoke lock image-test test-lowest docs rooms help

help:
	@echo "make demo    train, fit, serve and query a digit classifier (PORT=$(PORT))"
	@echo "make test    every test            make check   lint, types, import arrows"
	@echo "make bench   speed and memory against laplace-torch, the floor, growth (results in benchmarks/results)"
	@echo "make bench-selection   which weights: toys, UCI and MNIST (hours; data from PROBITY_DATA_DIR)"
	@echo "make image-test   build both images as root with buildah and run them with podman (Debian)"
	@echo "make lock    the packages of the images, with their hashes (deploy/requirements)"
	@echo "make test-lowest   the service's tests at the lowest versions that pyproject.toml allows"
	@echo "make docs    the generated parts of the pages: settings, figures, rooms (make rooms: these alone)"
	@echo "make smoke   a fresh environment with the base install serves the golden bundle"

.venv/offline.stamp: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[offline]'
	@touch $@

.venv/dev.stamp: .venv/offline.stamp
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --no-deps $(PEER)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt lightning-utilities mpmath
	@touch $@

demo: .venv/offline.stamp
	$(BIN)/probity demo --port $(PORT) --out $(OUT)

test: .venv/dev.stamp
	$(BIN)/python -m pytest -n auto --dist worksteal

check: .venv/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/hadolint Dockerfile
	$(BIN)/check-jsonschema --builtin-schema vendor.compose-spec docker-compose.yml
	$(BIN)/kubernetes-validate --quiet --strict deploy/kubernetes/*.yaml

bench: .venv/dev.stamp
	$(BIN)/python -m benchmarks all

bench-selection: .venv/dev.stamp
	$(BIN)/python -m benchmarks selection_uci
	$(BIN)/python -m benchmarks mnist_shift

format: .venv/dev.stamp
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: rooms
	$(BIN)/python -m docs.settings
	$(BIN)/python -m docs.figures

rooms: .venv/dev.stamp
	$(BIN)/python -m docs.rooms --write

# torch's CPU build is not on the package index: UV_TORCH_BACKEND=cpu finds it, or UV_FIND_LINKS=/folder/of/its/wheel.
lock: .venv/dev.stamp
	$(LOCK) pyproject.toml --universal --output-file $(LOCKS)/service.txt
	echo 'torch==2.13.0+cpu' | $(LOCK) pyproject.toml - --extra offline --python-platform x86_64-manylinux_2_28 \
	    --output-file $(LOCKS)/offline.txt
	$(LOCK) $(LOCKS)/build.in --universal --output-file $(LOCKS)/build.txt

image-test: .venv/dev.stamp
	PYTHON=$(BIN)/python sh tests/image/run.sh

test-lowest:
	PYTHON=$(PYTHON) sh tests/lowest.sh

smoke:
	PYTHON=$(PYTHON) sh tests/smoke_base_install.sh

clean:
	rm -rf .venv build dist *.egg-info bundles
