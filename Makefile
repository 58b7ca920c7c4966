# One command per task. Each creates .venv first if necessary; a fresh clone needs only Python 3.11+ and make.

VENV := .venv
READY := $(VENV)/.ready
# Passed to the program that the target runs: make test ARGS="tests/store -k transact -n 0"
ARGS ?=
# Duration of make soak.
SECONDS ?= 60
# The interpreter for .venv; if empty, the first of python3, python3.14, python3.13, python3.12 and python3.11 that is new enough.
PYTHON ?=
export PYTHON
# Container images often set it, and then every process would compile all modules again: 3 s instead of 1 s per start.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help up test judge check docs bench soak lock sbom audit images clean always

help: ## List the commands
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 16

up: $(READY) ## Start Tally with simulators and demo data, and print its URLs
	@$(VENV)/bin/tally up $(ARGS)

# Three workers for two cores: many tests wait for programs that they start.
test: $(READY) ## Run the tests; ARGS="..." passes options to pytest
	@$(VENV)/bin/python -m pytest -n 3 -m "not judge" $(ARGS)

judge: $(READY) ## Run the long tests against emulators, SDKs and generators; ARGS="..." passes options to pytest
	@$(VENV)/bin/python -m pytest -n 3 -m judge $(ARGS)

check: $(READY) ## Check lint, format, types and import contracts
	$(VENV)/bin/ruff check
	$(VENV)/bin/ruff format --check
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports --no-logo

docs: $(READY) ## Build the documentation site into site/
	@NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --strict --quiet $(ARGS)

bench: $(READY) ## Run the benchmarks; ARGS="..." passes options to them
	@$(VENV)/bin/python -m bench $(ARGS)

soak: $(READY) ## Run the fault and fuzz tests for SECONDS (default 60)
	@TALLY_SOAK_SECONDS=$(SECONDS) $(VENV)/bin/python -m pytest -n 2 -m soak --timeout=$$(($(SECONDS) + 300)) $(ARGS)

lock: ## Update the lock files from pyproject.toml; ARGS=--upgrade upgrades all packages
	@scripts/make-venv $(VENV) uv
	$(VENV)/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
		--extra dev --output-file requirements.lock $(ARGS) pyproject.toml
	$(VENV)/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
		--extra console --constraint requirements.lock --no-annotate --output-file deploy/requirements.lock pyproject.toml
	printf 'hatchling\n' | $(VENV)/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
		--no-header --constraint requirements.lock --no-annotate --output-file deploy/build-requirements.lock -

sbom: $(READY) ## Write the bills of materials of both lock files into dist/ (CycloneDX JSON)
	@mkdir -p dist
	@PYTHONWARNINGS=ignore $(VENV)/bin/cyclonedx-py requirements --output-reproducible --pyproject pyproject.toml \
		--output-file dist/sbom.cdx.json requirements.lock
	@PYTHONWARNINGS=ignore $(VENV)/bin/cyclonedx-py requirements --output-reproducible --pyproject pyproject.toml \
		--output-file dist/sbom-image.cdx.json deploy/requirements.lock
	@echo "dist/sbom.cdx.json (requirements.lock), dist/sbom-image.cdx.json (deploy/requirements.lock)"

audit: $(READY) ## Search published vulnerabilities for the locked packages; needs network access
	@scripts/audit $(VENV) $(ARGS)

images: ## Pin the images of deploy/images.txt by digest in deploy/images.env; needs docker buildx
	@scripts/pin-images deploy/images.txt deploy/images.env

clean: ## Remove .venv, caches and build output, but not your data
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist site
	find src tests bench examples scripts -name __pycache__ -type d -prune -exec rm -rf {} +

# Recreates .venv when its interpreter is missing or the project has moved.
STALE := $(shell test -x $(VENV)/bin/python && test "$$(cat $(VENV)/.location 2>/dev/null)" = "$$(pwd -P)" || echo always)

$(READY): requirements.lock pyproject.toml scripts/make-venv $(STALE)
	@scripts/make-venv $(VENV)

always:
