# One virtual environment at the root; `make demo` and `make test` make it themselves.
PYTHON ?= python3
PORT ?= 8000
BIN := .venv/bin
# laplace-torch is a peer that the tests compare with. It declares torchvision, which it runs without and which
# breaks next to a CPU build of torch: so it is installed without its dependencies, and those it uses by name.
PEER := laplace-torch backpack-for-pytorch curvlinops-for-pytorch asdfghjkl einops einconv opt-einsum \
        linear-operator unfoldnd torchmetrics

.PHONY: demo test check bench bench-selection format clean smoke help

help:
	@echo "make demo    train, fit, serve and query a digit classifier (PORT=$(PORT))"
	@echo "make test    every test            make check   lint, types, import arrows"
	@echo "make bench   speed and memory against laplace-torch, the floor, growth (results in benchmarks/results)"
	@echo "make bench-selection   which weights: toys, UCI and MNIST (hours; data from PROBITY_DATA_DIR)"
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
	$(BIN)/probity demo --port $(PORT)

test: .venv/dev.stamp
	$(BIN)/python -m pytest -n auto --dist worksteal

check: .venv/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: .venv/dev.stamp
	$(BIN)/python -m benchmarks all

bench-selection: .venv/dev.stamp
	$(BIN)/python -m benchmarks.selection_uci
	$(BIN)/python -m benchmarks.mnist_shift

format: .venv/dev.stamp
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

smoke:
	PYTHON=$(PYTHON) sh tests/smoke_base_install.sh

clean:
	rm -rf .venv build dist *.egg-info bundles
