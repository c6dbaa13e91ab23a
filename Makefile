# Everything lives in .venv in this folder. `make` alone lists the targets; `make -f more.mk` lists the rest.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUNS := runs
# Where the jobs of `make demo` run: local, ray.
LAUNCHER ?=

.PHONY: help setup system demo test test-more test-all check lint types imports format release clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(firstword $(MAKEFILE_LIST)) | sed -E 's/:.*## /\t/' | expand -t 12
	@[ $(firstword $(MAKEFILE_LIST)) != Makefile ] || echo 'make -f more.mk lists more targets'

# Wheels by their hashes and nothing else: no unlisted dependency, no building of packages.
HASHED := --require-hashes --no-deps --only-binary :all:
$(VENV)/.installed: pyproject.toml constraints.txt requirements.txt release/set_up.py
	@PYTHON=$(PYTHON) release/system_packages.sh setup || true
	$(PYTHON) release/set_up.py $(VENV)

setup: $(VENV)/.installed  ## make .venv and install everything (2 GB; seconds with uv, minutes with pip)

# Debian or Ubuntu programs that tests need: installed if this user may, otherwise listed with the tests that skip.
system: setup
	@release/system_packages.sh test $(VENV)/.system-packages-tried || true

demo: setup  ## run the demo session on real weights (a CPU with 2 cores: about 6 minutes) and verify its trail
	@if [ "$(LAUNCHER)" = ray ]; then $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[ray]'; fi
	@if [ -e $(RUNS)/demo ]; then $(BIN)/peergate resume demo --runs $(RUNS); \
	else $(BIN)/peergate start demo --runs $(RUNS) $(if $(LAUNCHER),--launcher $(LAUNCHER)); fi
	@$(BIN)/peergate audit verify $(RUNS)/demo

# Tests start many processes: without kept bytecode each of them compiles all modules again.
test test-more test-all: export PYTHONDONTWRITEBYTECODE =
# One thread a job: waiting threads spin, and the threads of two workers on two cores took each other's time.
test test-more test-all: export OMP_NUM_THREADS = 1
test: setup system  ## run the tests of every change, one session on real weights among them (minutes)
	$(BIN)/python -m pytest -m "not nightly and not slow and not more" -n auto --no-loadscope-reorder

test-more: setup system  ## run CI's other tests: kills, plug-ins, pods, sandboxes, browsers, other verifiers (minutes)
	$(BIN)/python -m pytest -m "more and not nightly and not slow" -n auto --no-loadscope-reorder

# Creates the environment of inspect_ai once (210 MB) where possible, so that the commands in its pages are tested too.
test-all: setup system  ## run all tests except `nightly`: also more storages, kills and sessions on real weights
	env $$(python=$$($(BIN)/python -m sessions.jobs.benchmarks.environment) && echo PEERGATE_INSPECT_PYTHON=$$python) \
	  $(BIN)/python -m pytest -m "not nightly" -n auto --no-loadscope-reorder

# A separate environment, because its requirements conflict with ours.
.venv-release: requirements-release.txt
	$(PYTHON) -m venv $@
	$@/bin/pip install --quiet --disable-pip-version-check $(HASHED) -r $<
	touch $@

# Not validated here: sbom.py completes the document and checks it against the schema.
COMPONENTS := cyclonedx-py requirements --pyproject pyproject.toml --spec-version 1.6 --output-reproducible --no-validate
release: setup .venv-release  ## build sdist, wheel and software bill of materials into dist/
	rm -rf dist
	$(BIN)/hatchling build
	cp constraints.txt release/overrides.txt dist
	(cat requirements.txt; grep '^torch==' constraints.txt) | .venv-release/bin/$(COMPONENTS) -o dist/peergate.cdx.json -
	.venv-release/bin/python release/sbom.py dist/peergate.cdx.json $$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
	cd dist && sha256sum *.tar.gz *.whl *.json *.txt > SHA256SUMS

check: lint types imports test  ## run ruff, pyright, import-linter and `make test`

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/pyright

imports: setup
	$(BIN)/lint-imports

format: setup  ## format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:  ## remove the environment and caches; runs/ stays
	rm -rf $(VENV) .venv-release .pytest_cache .ruff_cache .hypothesis .import_linter_cache mutants build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
