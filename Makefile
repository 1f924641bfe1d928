# The whole workflow. Every target works on a fresh clone: it needs make, Python 3.11 or later and
# the network once. ARGS is handed on: make test ARGS="tests/model -k tree".

SHELL := /bin/sh
PYTHONS := $(or $(PYTHON),python3 python3.14 python3.13 python3.12 python3.11)
BIN := .venv/bin
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check --no-input

.DEFAULT_GOAL := help
.PHONY: help demo test quick simulate check soak fuzz docs bench lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "make %-10s%s\n", $$1, $$2}' Makefile

demo: .venv/.ready ## a tour on real text, ending in a server to look at
	@$(BIN)/python scripts/demo.py $(ARGS)

test: .venv/.ready ## every test, on every storage
	@$(BIN)/python -m pytest $(ARGS)

quick: .venv/.ready ## the tests without PostgreSQL, in a minute or two
	@$(BIN)/python -m pytest -m "not postgres and not slow" $(ARGS)

simulate: .venv/.ready ## a random script of requests, equal on every storage: SEED=7, SEED=1-50
	@$(BIN)/python -m muniment.testing.simulation --seed $(or $(SEED),1) $(ARGS)

check: .venv/.ready ## style, types, import contracts, the house rules and the docs
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/python -m pytest tests/test_tidy.py tests/test_docs.py

soak: .venv/.ready ## what chance makes different every time, for SECONDS (600); says its seeds
	@$(BIN)/python scripts/soak.py --seconds $(or $(SECONDS),600) $(ARGS)

fuzz: .venv/.ready ## requests made from the OpenAPI document, many of them
	@$(BIN)/python -m pytest tests/api/test_fuzz.py -s --fuzz-rounds=20 $(ARGS)

docs: .venv/.ready ## fill the tables of the documentation from the code
	@$(BIN)/python scripts/docs.py $(ARGS)

bench: .venv/.ready ## the benchmarks, as a table and JSON
	@PYTHONPATH=. $(BIN)/python -m bench $(ARGS)

lock: .venv/.ready ## resolve the dependencies again into requirements.lock
	@$(BIN)/python scripts/lock.py

clean: ## remove all that these targets make, the environment too
	rm -rf .venv .demo build dist .*_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/.ready: requirements.lock pyproject.toml
	@found=; for python in $(PYTHONS); do \
	  if $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	    found=$$python; break; \
	  fi; \
	done; \
	if [ -z "$$found" ]; then \
	  echo "Muniment needs Python 3.11 or later, and found none among: $(PYTHONS)." \
	    "Name one: make PYTHON=…" >&2; \
	  exit 1; \
	fi; \
	echo "installing into .venv: once, about a minute" >&2; \
	$$found -m venv .venv
	@$(PIP) install --require-hashes --only-binary :all: -r requirements.lock
	@$(PIP) install --no-deps --no-build-isolation -e .
	@touch $@
