# One command per task. Each sets up .venv first if need be: from a fresh clone with nothing but Python 3.11+ and make.

VENV := .venv
READY := $(VENV)/.ready
# Handed on to the program behind the target: make test ARGS="tests/store -k transact -n 0"
ARGS ?=
# How long make soak runs.
SECONDS ?= 60
# The interpreter to build .venv with; empty: the first of python3, python3.13, python3.12, python3.11 that is new enough.
PYTHON ?=
export PYTHON

.DEFAULT_GOAL := help
.PHONY: help up test judge check bench soak lock clean always

help: ## Say what can be made
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 16

up: $(READY) ## Start Tally here, and print where it listens
	@$(VENV)/bin/tally up $(ARGS)

# Three at a time, for two cores: many of the tests wait for programs that they have started.
test: $(READY) ## Run the tests on two cores; ARGS="..." goes to pytest
	@$(VENV)/bin/python -m pytest -n 3 -m "not judge" $(ARGS)

judge: $(READY) ## Run the long tests against emulators, SDKs and generators; ARGS="..." goes to pytest
	@$(VENV)/bin/python -m pytest -n 3 -m judge $(ARGS)

check: $(READY) ## Lint, format, types, import rules
	$(VENV)/bin/ruff check
	$(VENV)/bin/ruff format --check
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports --no-logo

bench: $(READY) ## Measure, against raw SQLite on this machine; ARGS="..." goes to the benchmark
	@$(VENV)/bin/python -m bench $(ARGS)

soak: $(READY) ## Run the fault and fuzz tests for SECONDS (60)
	@TALLY_SOAK_SECONDS=$(SECONDS) $(VENV)/bin/python -m pytest -n 2 -m soak --timeout=$$(($(SECONDS) + 300)) $(ARGS)

lock: ## Bring the locks up to pyproject.toml; ARGS=--upgrade takes the newest versions
	@scripts/make-venv $(VENV) uv
	$(VENV)/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
		--extra dev --output-file requirements.lock $(ARGS) pyproject.toml
	$(VENV)/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
		--extra console --constraint requirements.lock --no-annotate --output-file deploy/requirements.lock pyproject.toml

clean: ## Remove .venv and all caches, not your data
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist
	find src tests bench -name __pycache__ -type d -prune -exec rm -rf {} +

# Made anew when the interpreter is gone (upgraded, removed) or the project has moved.
STALE := $(shell test -x $(VENV)/bin/python && test "$$(cat $(VENV)/.location 2>/dev/null)" = "$$(pwd -P)" || echo always)

$(READY): requirements.lock pyproject.toml scripts/make-venv $(STALE)
	@scripts/make-venv $(VENV)

always:
