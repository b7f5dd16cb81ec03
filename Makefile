# All commands that a newcomer needs. They need make and Python 3.11 or newer; the rest is installed in .venv.

PYTHON ?= python3
VENV   := .venv
# Container images often set it. Then every process that a test starts compiles all modules that it imports.
unexport PYTHONDONTWRITEBYTECODE
# Without a buffer, commands would fail at other lines than the user's.
unexport PYTHONUNBUFFERED
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check install --quiet

.DEFAULT_GOAL := help
.PHONY: help setup check test deep demo bench bench-all chaos extension clean lint types arrows quick clients sdk servers spark documents programs \
    deep-worlds deep-clients deep-interop deep-brokerlite deep-proxy deep-spark deep-codec deep-programs deep-examples pure other fuzz sim kills reference figure faces flattened

# These tests run again with the codec in Python, and on other Pythons: the tests of the codec, and of the code on top of
# it that depends most on the interpreter.
AGAIN := $(addprefix tests/,codec sim sdk/test_client.py sdk/test_interrupts.py sdk/test_sync.py)
# The slow tests are divided into several gates, which run in parallel.
SERVERS := $(addprefix tests/,brokerlite proxy)
DOCUMENTS := $(addprefix tests/,docs demo)
# The parts of `make deep`, the longest first. Each should take at most 20 minutes when it runs alone.
DEEP := deep-worlds deep-codec deep-clients deep-brokerlite deep-proxy deep-interop deep-spark deep-programs deep-examples python3.11 python3.13 pure fuzz

help: ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(VENV)/.dev ## make .venv with everything that developing ottla needs

check: extension ## for every edit: linters, type checkers and the quick tests
	@$(BIN)/python tests/gates.py lint types arrows quick

test: extension ## the promises of the README, with each real peer
	@$(BIN)/python tests/gates.py lint types arrows quick -- clients spark servers programs documents sdk

deep: extension ## everything else: worlds, mutations, kills, cancellations, other Pythons, fuzzing; resumes; PART=worlds runs one
	@$(BIN)/python tests/gates.py --resume .cache/gates.json -- $(if $(PART),$(filter $(PART) deep-$(PART),$(DEEP)),$(DEEP))

demo: $(VENV)/.demo ## real flights through the proxy, read in PySpark; KAFKA=host:port runs it on your Kafka
	@$(BIN)/ottla demo $(if $(KAFKA),--kafka $(KAFKA))

bench: extension ## measure; prints ratios against other clients in the same run
	@$(BIN)/python -m tests.bench

bench-all: extension ## measure every table of docs/benchmarks.md and write it there; an hour and a half; resumes; TABLE=consume makes one
	@$(BIN)/python -m tests.bench all $(TABLE)

fuzz: extension ## look for bytes that crash the codec, or that its engines read differently; SECONDS=60
	@if $(PIP) "atheris==3.*"; then $(BIN)/python -m tests.fuzz run --seconds $(or $(SECONDS),60); \
	else echo "atheris has no wheel for this Python or machine: not fuzzed" >&2; test -z "$$CI"; fi

sim: extension ## check every promise of the client in 10,000 worlds in virtual time; SEEDS=from..to, or one
	@$(BIN)/python -m tests.sim $(or $(SEEDS),0..10000)

chaos: extension ## break three real Kafka nodes under load, and write a report; SECONDS=120 SEED=1 LOAD=transfers KAFKA=3.9 SECURED=1
	@$(BIN)/python -m tests.chaos --load $(or $(LOAD),streams) --kafka $(or $(KAFKA),4.3) \
	    --seconds $(or $(SECONDS),120) $(if $(SEED),--seed $(SEED)) $(if $(SECURED),--secured)

kills: extension ## kill brokerlite under the load of other clients, and compare the remaining records; KILLS=100 SEED=1 LOAD=streams (or groups, shares)
	@$(BIN)/python -m tests.interop.kills --kills $(or $(KILLS),100) --seed $(or $(SEED),1) --load $(or $(LOAD),transactions)

reference: $(VENV)/.dev ## generate docs/reference from the docstrings
	@$(BIN)/python -m tools.reference

figure: $(VENV)/.dev ## draw the parts in docs/design.md from the import contracts of pyproject.toml
	@$(BIN)/python -m tools.figure

faces: $(VENV)/.dev ## generate sdk/client_parts.py from the options, and sdk/sync from sdk/client.py, producer.py and consumer.py
	@$(BIN)/python -m tools.options
	@$(BIN)/python -m tools.faces

flattened: $(VENV)/.dev ## generate codec/flattened.py, the programs of all messages, from their declarations
	@$(BIN)/python -m tools.flattened

extension: $(VENV)/.dev ## build the C of codec/ and sdk/ if a .pyx file was edited; check, test and bench do it too
	@$(BIN)/python tests/packaging/extension.py

clean: ## remove .venv, builds and caches
	rm -rf $(VENV) .venv-3.* build dist *.egg-info $(foreach folder,codec sdk/produce,$(folder)/*.c $(folder)/*.so)
	rm -rf .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -not -path './.git/*' -prune -exec rm -rf {} +

# The gates. `check`, `test` and `deep` run them (tests/gates.py) and print how long each took.

lint:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types:
	$(BIN)/mypy

arrows:
	$(BIN)/lint-imports

# Six workers on two cores, because tests wait for half of their time, and files take different times (196 s with four
# workers, 167 with six). Python's development mode would cost a fifth of the time. The other gates use it, also those
# that run these tests on other Pythons.
quick: $(VENV)/.rewritten
	$(BIN)/python -m pytest -m "not slow and not deep" --hypothesis-profile quick --dist loadfile -n 6

# Python's development mode without the debug allocator, which costs a tenth of the time.
SLOW := PYTHONMALLOC=pymalloc $(BIN)/python -X dev -m pytest -m "slow and not deep"
DEEPLY := PYTHONMALLOC=pymalloc $(BIN)/python -X dev -m pytest -m deep

clients:
	$(SLOW) tests/interop

sdk:
	$(SLOW) tests/sdk

servers:
	$(SLOW) $(SERVERS)

spark:
	$(SLOW) tests/spark

documents:
	$(SLOW) $(DOCUMENTS)

programs:
	$(SLOW) $(addprefix --ignore=,$(addprefix tests/,interop sdk spark) $(SERVERS) $(DOCUMENTS))

# Each mutation is played in one process, one seed after the other.
deep-worlds:
	$(DEEPLY) -n 2 --dist worksteal tests/sim

deep-clients:
	$(DEEPLY) tests/sdk

deep-interop:
	$(DEEPLY) tests/interop tests/chaos

deep-brokerlite:
	$(DEEPLY) tests/brokerlite

deep-proxy:
	$(DEEPLY) tests/proxy

deep-spark:
	$(DEEPLY) tests/spark

deep-codec:
	$(DEEPLY) tests/codec tests/fuzz

deep-programs:
	$(DEEPLY) $(addprefix --ignore=,$(addprefix tests/,sim sdk interop chaos brokerlite proxy spark codec fuzz))

# `make check` tries a quarter of these tests' examples.
deep-examples:
	PYTHONMALLOC=pymalloc $(BIN)/python -X dev -m pytest -m "hypothesis and not slow and not deep"

pure:
	OTTLA_ENGINE=python $(BIN)/python -X dev -m pytest -m "not slow and not deep" $(AGAIN)

# tests/gates.py calls this with PYTHON and VENV of another version.
other: $(VENV)/.test
	@$(BIN)/python tests/packaging/extension.py
	$(BIN)/python -X dev -m pytest -m "not slow and not deep" $(filter-out tests/sim,$(AGAIN))

# Stamps: a second run costs nothing; an edited pyproject.toml leads to a new installation.

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	    echo "ottla needs Python 3.11 or newer, and \`$(PYTHON)\` is $$($(PYTHON) --version 2>/dev/null || echo not there)."; \
	    echo "Name another one:  make PYTHON=python3.12 ..."; exit 1; } >&2
	@echo "setting up $(VENV) with $$($(PYTHON) --version) ..."
	@$(PYTHON) -m venv $(VENV) || { \
	    rm -rf $(VENV); echo "Python's venv module does not work; on Debian and Ubuntu: apt-get install python3-venv"; exit 1; } >&2

$(VENV)/.dev: pyproject.toml setup.py | $(BIN)/python
	@echo "installing ottla for development: compiles its C, and downloads Spark, Java and the tools, which takes minutes ..."
	@$(PIP) --editable '.[dev]'
	@touch $(VENV)/.demo $(VENV)/.test $@

# pytest rewrites the assertions of all tests and caches the result. In a fresh clone each worker would do that, at the
# same time and for 20 s of processor time. What cannot be collected fails in the run itself.
$(VENV)/.rewritten: | $(VENV)/.dev
	@$(BIN)/python -m pytest --collect-only -qq >/dev/null || true
	@touch $@

$(VENV)/.demo: pyproject.toml setup.py | $(BIN)/python
	@echo "installing ottla for the demo: compiles its C, and downloads Spark and Java (550 MB), which takes minutes ..."
	@$(PIP) --editable '.[demo]'
	@touch $@

$(VENV)/.test: pyproject.toml setup.py | $(BIN)/python
	@echo "installing ottla with everything that the quick tests need, except Spark: compiles its C, which takes a minute ..."
	@$(PIP) --editable '.[test]'
	@touch $@
