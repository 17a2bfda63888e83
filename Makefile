# Each command sets up what it needs in .venv, from nothing the first time: see scripts/setup.
#   PYTHON=python3.12 make test      another interpreter
#   make test ARGS="-k repetition"   more words for pytest (or the benchmark)
#   make -k check                    go on after the first check that fails

BIN := .venv/bin
ARGS ?=

# What an activated environment left behind must not reach ours.
unexport PYTHONPATH PYTHONHOME VIRTUAL_ENV

.DEFAULT_GOAL := help
.PHONY: help setup test check format-check lint mypy pyright layers format demo bench clean

help: ## List the commands
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 22

setup: ## Make .venv whole, if it is not
	@sh scripts/setup

test: setup ## Run the tests
	$(BIN)/python -m pytest -n auto $(ARGS)

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

demo: setup ## Watch a real model drive a recorded, audited run: no key needed
	$(BIN)/python -m refold.console.demo

bench: setup ## Measure decode, fold, audit, decide and append against their anchors
	$(BIN)/python tests/bench/run.py $(ARGS)

clean: ## Remove .venv, caches and builds
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache .benchmarks .demo dist build
	find reducers store engine replay console tests -name __pycache__ -type d -prune -exec rm -rf {} +
