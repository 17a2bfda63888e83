# Each command sets up what it needs in .venv, from nothing the first time: see scripts/setup.
#   PYTHON=python3.12 make test      another interpreter
#   make test-all ARGS="-k repetition"   more words for pytest (or the benchmark, or topics of conformance)
#   make demo PRESET=hermes          the demo of a preset or variant
#   make -k check                    go on after the first check that fails

BIN := .venv/bin
# Tests of a module go to one worker, as far as they can: what they share is made once.
PYTEST := $(BIN)/python -m pytest -n auto --dist worksteal
ARGS ?=
CASES ?= tests/conformance/cases
SECONDS ?= 60

# What an activated environment left behind must not reach ours; without bytecode each process would compile all anew.
unexport PYTHONPATH PYTHONHOME VIRTUAL_ENV PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup test test-all clients conformance mutants check format-check lint mypy pyright layers format demo docs screenshots bench big whatif-table storm fuzz soak clean

help: ## List the commands
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 22

setup: ## Make .venv whole, if it is not
	@sh scripts/setup

test: setup ## Run the quick tier of the tests, a sample of every part: two minutes
	$(PYTEST) --tier quick $(ARGS)

test-all: setup ## Run all tests, as before a change lands: six minutes
	$(PYTEST) $(ARGS)

clients: setup ## Let real coding agents play scripts, and hold their imports against what was sent: 20 minutes the first time; ARGS="codex --script basic"
	$(BIN)/python tests/clients/run.py $(ARGS)

conformance: setup ## Hold the presets against recorded answers of known loops: CASES=DIR for others
	$(BIN)/python tests/conformance/run.py "$(CASES)" $(ARGS)

mutants: setup ## Mutate limits, guards, store, engine and what-if, and list what no test notices: hours; ARGS="--sample=6 store/" for some
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

format: setup ## Format the sources, and mend what the linter can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

demo: setup ## See in a minute what only refold does, with a real model and no key: PRESET=hermes for a preset's runs
	@$(BIN)/python -m refold.console.demo $(if $(PRESET),--preset "$(PRESET)")

docs: setup ## Make the site of the documents in site/, which opens from disk: seconds
	$(BIN)/python -m scripts.docs.build

screenshots: setup ## Take pictures of the page of a run into screenshots/, and the README's anew: half a minute, with a Chromium
	$(BIN)/python -m scripts.docs.screenshots

bench: setup ## Measure decode, fold, audit, decide, a step, append and open beside their anchors; ARGS=engine for a part
	$(BIN)/python tests/bench/run.py $(ARGS)

whatif-table: setup ## Ask of all transcripts of the tests what the presets would have done, and of what nobody can say: half a minute
	$(BIN)/python tests/support/whatif_figures.py
	$(BIN)/python tests/support/whatif_law.py

storm: setup ## Kill and suspend the workers of 200 runs at random, and count what is lost or done twice: SECONDS=60
	$(BIN)/python tests/storm/run.py --seconds $(SECONDS) $(ARGS)

big: setup ## Do everything to a run of 340,000 events and 1 GB: seconds, peak memory; ARGS="--folder DIR"
	$(BIN)/python tests/bench/big.py $(ARGS)

fuzz: setup ## Break logs, files, bundles and policies at random, 80 times as many as in a build: half an hour
	HYPOTHESIS_PROFILE=thorough $(PYTEST) tests/fuzz $(ARGS)

soak: setup ## Play simulated runs in a failing world for SECONDS=60, from new seeds; the last line has the figures
	$(BIN)/python tests/simulation/run.py --soak $(SECONDS) $(ARGS)

clean: ## Remove .venv, caches and builds
	rm -rf .venv .clients .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache .benchmarks .demo dist build site screenshots
	find reducers store engine importers replay console tests -name __pycache__ -type d -prune -exec rm -rf {} +
