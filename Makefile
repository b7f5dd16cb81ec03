# Everything a newcomer types. Needs make and Python 3.11 or newer; all else is set up in .venv.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check install --quiet

.DEFAULT_GOAL := help
.PHONY: help setup check test demo bench extension clean lint types arrows quick full

help: ## list the targets
	@awk -F':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(VENV)/.dev ## make .venv with everything that developing ottla needs

check: setup ## the quick gates, for every edit (under three minutes)
	@$(BIN)/python tests/gates.py lint types arrows quick

test: setup ## every gate and every test, with real peers (under thirty minutes)
	@$(BIN)/python tests/gates.py lint types arrows full

demo: $(VENV)/.demo ## real flights through the proxy, read in PySpark; KAFKA=host:port runs it on your Kafka
	@$(BIN)/ottla demo $(if $(KAFKA),--kafka $(KAFKA))

bench: setup ## measure; prints ratios against other clients in the same run
	@$(BIN)/python -m tests.bench

clean: ## remove .venv, builds and caches
	rm -rf $(VENV) build dist *.egg-info codec/*.c codec/*.so .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -not -path './.git/*' -prune -exec rm -rf {} +

extension: $(BIN)/python ## build the C of codec/ again, after an edit of its .pyx files
	@$(BIN)/python -m pip --disable-pip-version-check install --quiet "setuptools>=80" "Cython>=3.1"
	@$(BIN)/python -c "from setuptools import setup; setup()" --quiet build_ext --inplace

# The gates: `check` and `test` run them one after the other and print how long each took.

lint:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types:
	$(BIN)/mypy

arrows:
	$(BIN)/lint-imports

quick:
	$(BIN)/python -X dev -m pytest -m "not slow"

full:
	$(BIN)/python -X dev -m pytest

# Stamps: a second run costs nothing, an edited pyproject.toml installs again.

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	    echo "ottla needs Python 3.11 or newer, and \`$(PYTHON)\` is $$($(PYTHON) --version 2>/dev/null || echo not there)."; \
	    echo "Name another one:  make PYTHON=python3.12 ..."; exit 1; } >&2
	@echo "setting up $(VENV) with $$($(PYTHON) --version) ..."
	@$(PYTHON) -m venv $(VENV) || { \
	    rm -rf $(VENV); echo "Python's venv module does not work; on Debian and Ubuntu: apt-get install python3-venv"; exit 1; } >&2

$(VENV)/.dev: pyproject.toml | $(BIN)/python
	@echo "installing ottla for development ..."
	@$(PIP) --editable '.[dev]'
	@touch $(VENV)/.demo $@

$(VENV)/.demo: pyproject.toml | $(BIN)/python
	@echo "installing ottla for the demo ..."
	@$(PIP) --editable '.[demo]'
	@touch $@
