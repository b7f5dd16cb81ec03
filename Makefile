# Everything a newcomer types. Needs make and Python 3.11 or newer; all else is set up in .venv.

PYTHON ?= python3
VENV   := .venv
# Images for containers set it, and then every process that tests start compiles all that it imports.
unexport PYTHONDONTWRITEBYTECODE
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check install --quiet

.DEFAULT_GOAL := help
.PHONY: help setup check test demo bench chaos extension clean lint types arrows quick worlds clients proxies spark codec programs pure other fuzz sim kills reference faces

# These tests run again with the codec in Python, and on other Pythons: the codec's, and those of what stands on it and
# differs most with the interpreter.
AGAIN := $(addprefix tests/,codec sim sdk/test_client.py sdk/test_interrupts.py sdk/test_sync.py)
# Slow tests are several gates, which run at once: those that play worlds, those of clients and of the proxy with their
# peers, those in Spark, those of the codec, and those of whole programs and installations, which are all the others.
CODEC   := $(addprefix tests/,codec fuzz)
CLIENTS := $(addprefix tests/,chaos interop sdk)

help: ## list the targets
	@awk -F':.*## ' '/^[a-z]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(VENV)/.dev ## make .venv with everything that developing ottla needs

check: extension ## the quick gates, for every edit
	@$(BIN)/python tests/gates.py lint types arrows quick

test: extension ## every gate and every test, with real peers, both engines, the oldest and the newest Python
	@$(BIN)/python tests/gates.py lint types arrows quick \
	    -- clients programs worlds spark proxies codec python3.11 python3.13 pure fuzz

demo: $(VENV)/.demo ## real flights through the proxy, read in PySpark; KAFKA=host:port runs it on your Kafka
	@$(BIN)/ottla demo $(if $(KAFKA),--kafka $(KAFKA))

bench: extension ## measure; prints ratios against other clients in the same run
	@$(BIN)/python -m tests.bench

fuzz: extension ## look for bytes that crash the codec, or that its engines read differently; SECONDS=60
	@if $(PIP) "atheris==3.*"; then $(BIN)/python -m tests.fuzz run --seconds $(or $(SECONDS),60); \
	else echo "atheris has no wheel for this Python or machine: not fuzzed" >&2; test -z "$$CI"; fi

sim: extension ## 10,000 worlds in virtual time, where every promise of the client has to hold; SEEDS=from..to, or one
	@$(BIN)/python -m tests.sim $(or $(SEEDS),0..10000)

chaos: extension ## break three real Kafka nodes under load, and write a report; SECONDS=120 SEED=1 LOAD=transfers KAFKA=3.9
	@$(BIN)/python -m tests.chaos --load $(or $(LOAD),streams) --kafka $(or $(KAFKA),4.3) \
	    --seconds $(or $(SECONDS),120) $(if $(SEED),--seed $(SEED))

kills: extension ## kill brokerlite under the load of other clients, and compare what is left; KILLS=100 SEED=1 LOAD=streams
	@$(BIN)/python -m tests.interop.kills --kills $(or $(KILLS),100) --seed $(or $(SEED),1) --load $(or $(LOAD),transactions)

reference: $(VENV)/.dev ## generate docs/reference from the docstrings
	@$(BIN)/python -m tests.docs.reference

faces: $(VENV)/.dev ## generate sdk/sync from sdk/client.py, producer.py and consumer.py
	@$(BIN)/python -m tests.sdk.faces

extension: $(VENV)/.dev ## build the C of codec/, if its .pyx files were edited; check, test and bench do it too
	@$(BIN)/python tests/packaging/extension.py

clean: ## remove .venv, builds and caches
	rm -rf $(VENV) .venv-3.* build dist *.egg-info codec/*.c codec/*.so
	rm -rf .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -not -path './.git/*' -prune -exec rm -rf {} +

# The gates: `check` and `test` run them (tests/gates.py) and print how long each took.

lint:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types:
	$(BIN)/mypy

arrows:
	$(BIN)/lint-imports

# Three workers on two cores: a third of the time a test waits. A worker is told of -X dev, too, which it does not inherit.
quick:
	$(BIN)/python -X dev -m pytest -m "not slow" --dist loadfile --tx "3*popen//python=$(BIN)/python -X dev"

# The quick tests have the debug allocator, which takes a tenth of the time; these do without.
SLOW := PYTHONMALLOC=pymalloc $(BIN)/python -X dev -m pytest -m slow

worlds:
	$(SLOW) tests/sim

clients:
	$(SLOW) $(CLIENTS)

proxies:
	$(SLOW) tests/proxy

spark:
	$(SLOW) tests/spark

codec:
	$(SLOW) $(CODEC)

programs:
	$(SLOW) $(addprefix --ignore=,$(CLIENTS) $(CODEC) tests/proxy tests/sim tests/spark)

pure:
	OTTLA_ENGINE=python $(BIN)/python -X dev -m pytest -m "not slow" $(AGAIN)

# Called by tests/gates.py with PYTHON and VENV of another version.
other: $(VENV)/.test
	@$(BIN)/python tests/packaging/extension.py
	$(BIN)/python -X dev -m pytest -m "not slow" $(filter-out tests/sim,$(AGAIN))

# Stamps: a second run costs nothing, an edited pyproject.toml installs again.

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	    echo "ottla needs Python 3.11 or newer, and \`$(PYTHON)\` is $$($(PYTHON) --version 2>/dev/null || echo not there)."; \
	    echo "Name another one:  make PYTHON=python3.12 ..."; exit 1; } >&2
	@echo "setting up $(VENV) with $$($(PYTHON) --version) ..."
	@$(PYTHON) -m venv $(VENV) || { \
	    rm -rf $(VENV); echo "Python's venv module does not work; on Debian and Ubuntu: apt-get install python3-venv"; exit 1; } >&2

$(VENV)/.dev: pyproject.toml setup.py | $(BIN)/python
	@echo "installing ottla for development ..."
	@$(PIP) --editable '.[dev]'
	@touch $(VENV)/.demo $(VENV)/.test $@

$(VENV)/.demo: pyproject.toml setup.py | $(BIN)/python
	@echo "installing ottla for the demo ..."
	@$(PIP) --editable '.[demo]'
	@touch $@

$(VENV)/.test: pyproject.toml setup.py | $(BIN)/python
	@echo "installing ottla with what the quick tests need, but Spark ..."
	@$(PIP) --editable '.[test]'
	@touch $@
