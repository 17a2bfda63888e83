# Each command creates or updates .venv first: see scripts/setup.
#   PYTHON=python3.12 make test      another interpreter
#   make test-all ARGS="-k repetition"   arguments for pytest, the benchmark or conformance
#   make demo PRESET=hermes          the demo of a preset or variant
#   make -k check                    continue after a failed check

BIN := .venv/bin
# Tests of a module run on one worker where possible, because they share fixtures.
PYTEST := $(BIN)/python -m pytest -n auto --dist worksteal
ARGS ?=
CASES ?= tests/conformance/cases
SECONDS ?= 60

# Ignore variables of an activated environment; keep bytecode, so that processes need not compile everything again.
unexport PYTHONPATH PYTHONHOME VIRTUAL_ENV PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup test test-all clients conformance mutants check format-check lint mypy pyright layers format demo docs screenshots bench big whatif-table storm failover fuzz soak clean

help: ## List the commands
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 22

setup: ## Create or update .venv
	@sh scripts/setup

test: setup ## Run the quick tier of the tests, a sample of every part: two minutes
	$(PYTEST) --tier quick $(ARGS)

test-all: setup ## Run all tests, required before a merge: six minutes
	$(PYTEST) $(ARGS)

clients: setup ## Run real coding agents on scripts and compare their imports with their requests: 20 minutes the first time; ARGS="codex --script basic"
	$(BIN)/python tests/clients/run.py $(ARGS)

conformance: setup ## Compare the presets with recordings of known loops; CASES=DIR for other recordings
	$(BIN)/python tests/conformance/run.py "$(CASES)" $(ARGS)

mutants: setup ## Mutate limits, guards, store, engine and what-if, and list mutants that no test fails: hours; ARGS="--sample=6 store/" for some
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "cosmic-ray>=8.7"
	$(BIN)/python tests/mutation/run.py $(ARGS)

check: format-check lint mypy pyright layers ## Run every static check: format, lint, types, layers

format-check: setup
	$(BIN)/ruff format --check .

lint: setup
	$(BIN)/ruff check .

mypy: setup
	$(BIN)/mypy

pyright: setup
	$(BIN)/pyright --pythonpath $(BIN)/python

layers: setup
	$(BIN)/lint-imports --no-logo

format: setup ## Format the sources and apply lint fixes
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

demo: setup ## Run the one-minute demo with a local model, without a key; PRESET=hermes for a preset
	@$(BIN)/python -m refold.console.demo $(if $(PRESET),--preset "$(PRESET)")

docs: setup ## Build the documentation in site/, which opens from disk: seconds
	$(BIN)/python -m scripts.docs.build

screenshots: setup ## Write screenshots of the report page to screenshots/ and update the README's: half a minute, needs Chromium
	$(BIN)/python -m scripts.docs.screenshots

bench: setup ## Measure decode, fold, audit, decide, a step, append and open beside their anchors; ARGS=engine for a part
	$(BIN)/python tests/bench/run.py $(ARGS)

whatif-table: setup ## Run whatif with every preset on the test transcripts, with inconclusive cases: half a minute
	$(BIN)/python tests/support/whatif_figures.py
	$(BIN)/python tests/support/whatif_law.py

storm: setup ## Kill and suspend the workers of 200 runs at random, and count lost and repeated work: SECONDS=60, ARGS=--postgres
	$(BIN)/python tests/storm/run.py --seconds $(SECONDS) $(ARGS)

failover: setup ## Lose a PostgreSQL server or its standby under load; count lost events and measure: four minutes; ARGS="--only synchronous"
	$(BIN)/python tests/storm/failover.py $(ARGS)

big: setup ## Run every command on a run of 340,000 events and 1 GB; report seconds and peak memory; ARGS="--folder DIR"
	$(BIN)/python tests/bench/big.py $(ARGS)

fuzz: setup ## Break logs, files, bundles and policies at random, 80 times as often as in CI: half an hour
	HYPOTHESIS_PROFILE=thorough $(PYTEST) tests/fuzz $(ARGS)

soak: setup ## Run simulations with injected faults for SECONDS=60, with new seeds; the last line has the totals
	$(BIN)/python tests/simulation/run.py --soak $(SECONDS) $(ARGS)

clean: ## Remove .venv, caches and builds
	rm -rf .venv .clients .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache .benchmarks .demo dist build site screenshots
	find reducers store engine importers replay testing console tests -name __pycache__ -type d -prune -exec rm -rf {} +
