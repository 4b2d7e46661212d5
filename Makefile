# The two commands of a fresh checkout: `make demo` and `make check`. They need Python 3.11 or newer with its venv module.

SHELL := /bin/sh
.DEFAULT_GOAL := help
.SUFFIXES:

PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11 python; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo "$$p"; break; }; done)
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install -qq
# Found by name without installing, whatever the folder of this checkout is called.
export PYTHONPATH := $(CURDIR)/.import
# Python of an environment with hermes-agent; another may be named: make check RETOLD_PEER=/path/to/python
RETOLD_PEER ?= .peer/bin/python

.PHONY: help demo check readme bench kills prove mutate clean

help:
	@echo "make demo   install into .venv and see what Retold does"
	@echo "make check  format, lint, types, import contracts and tests, as CI runs them"
	@echo "make readme write the generated parts of README.md and docs/commands.md"
	@echo "make bench  measure against hermes-agent and raw SQLite"
	@echo "make kills  kill writers for a long time and look for what was lost"
	@echo "make prove  hold random commands of several writers against a plain model, for long"
	@echo "make mutate change the rules of domain/ one by one, and see whether a test notices"
	@echo "make clean  remove all that these made"

demo: $(VENV)/.installed
	@$(BIN)/retold demo

check: $(VENV)/.installed-dev $(RETOLD_PEER)
	@rm -rf build # left by an installation; it would be a second copy of every module
	@echo "== format";           $(BIN)/ruff format --quiet --check . || { $(BIN)/ruff format --check .; exit 1; }
	@echo "== lint";             $(BIN)/ruff check --quiet .
	@echo "== types (mypy)";     $(BIN)/mypy --no-error-summary
	@echo "== types (pyright)";  $(BIN)/pyright --warnings
	@echo "== import contracts"; $(BIN)/lint-imports --no-logo || exit 1
	@echo "== tests";            RETOLD_PEER="$(RETOLD_PEER)" $(BIN)/python -m pytest -q -n 2
	@echo "== all passed"

readme: $(VENV)/.installed
	@$(BIN)/python -m retold.tests.readme

bench: $(VENV)/.installed-dev $(RETOLD_PEER)
	@echo "== bench (some ten minutes and gigabytes)"
	@RETOLD_PEER="$(RETOLD_PEER)" RETOLD_BENCH_KEEP=1 \
		$(BIN)/python -m pytest -q -o python_files='bench_*.py' tests/bench

.peer/bin/python: tests/bench/peer-requirements.txt
	@echo "== making .peer, the environment of what Retold is measured against"
	@"$(PYTHON)" -m venv .peer
	@.peer/bin/python -m pip --disable-pip-version-check install -qq -r tests/bench/peer-requirements.txt \
		|| { rm -rf .peer; exit 1; }
	@touch $@

kills: $(VENV)/.installed-dev
	@echo "== kills"; $(BIN)/python -m pytest -q -m soak tests

prove: $(VENV)/.installed-dev
	@echo "== prove (RETOLD_PROVE examples, by default 1000)"
	@$(BIN)/python -m pytest -q -m soak tests/proof

# The package bears its name where mutmut works: it knows a mutant by its module.
mutate: $(VENV)/.installed-dev
	@echo "== mutate (some twenty minutes; what survives is told at the end, docs/mutants.md says why)"
	@rm -rf .mutants; mkdir -p .mutants/retold
	@cp -r __init__.py __main__.py py.typed domain projections infrastructure cli tests .mutants/retold
	@cp tests/mutmut.cfg .mutants/setup.cfg
	@cd .mutants && PYTHONPATH= $(CURDIR)/$(BIN)/mutmut run --max-children 2 && \
		PYTHONPATH= $(CURDIR)/$(BIN)/mutmut results

$(VENV)/bin/python:
	@test -n "$(PYTHON)" || { echo "Retold needs Python 3.11 or newer; set PYTHON=/path/to/it" >&2; exit 1; }
	@echo "== making $(VENV) with $(PYTHON)"
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
		echo "Python's venv module is missing (on Debian and Ubuntu: apt-get install python3-venv)" >&2; exit 1; }

$(VENV)/.installed: pyproject.toml | $(VENV)/bin/python
	@echo "== installing"
	@$(PIP) --editable .
	@touch $@

$(VENV)/.installed-dev: pyproject.toml | $(VENV)/bin/python
	@echo "== installing, with the tools of development"
	@$(PIP) --editable '.[dev]'
	@touch $@ $(VENV)/.installed

clean:
	@rm -rf $(VENV) .peer .mutants .benchmarks build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
