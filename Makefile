# The recipes are those of CI. PYTHON makes the virtual environment; everything else runs in it.
PYTHON ?= python3
BIN ?= .venv/bin

.PHONY: setup demo test quick lint types docs ci

setup:
	$(PYTHON) -m venv .venv
	.venv/bin/pip install -q -e '.[test]'

demo:
	$(BIN)/cql demo

test:
	$(BIN)/pytest -q -n 2 --dist loadgroup

quick:
	$(BIN)/pytest -q -n 2 --dist loadgroup -m "not slow"

lint:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types:
	$(BIN)/mypy

docs:
	$(BIN)/pip install -q -e '.[docs]'
	$(BIN)/mkdocs build --strict

ci:
	.ci/run
