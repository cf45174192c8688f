# Everything from a fresh clone: `make demo` shows what nestegg does, `make test` checks that it does it.
# Both create .venv and install into it from constraints.txt; a second call installs nothing.

PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check --constraint constraints.txt

.DEFAULT_GOAL := help
.PHONY: help demo test bench format clean

help:
	@echo "make demo     train six methods on embedded data and compare them"
	@echo "make test     style, types, architecture and tests"
	@echo "make bench    timings, as ratios within one run"
	@echo "make format   let ruff rewrite the sources"
	@echo "make clean    remove the virtual environment"

# torch first and alone, at the version of constraints.txt: whatever depends on it then finds it installed.
$(VENV)/base: pyproject.toml constraints.txt
	@$(PYTHON) -m venv $(VENV) 2>/dev/null || python3 -m venv $(VENV)
	@echo "Installing nestegg into $(VENV) …"
	@$(PIP) torch
	@$(PIP) --editable .
	@touch $@

$(VENV)/full: $(VENV)/base
	@echo "Installing what the tests need …"
	@$(PIP) --editable '.[test]'
	@touch $@

demo: $(VENV)/base
	@echo "Fifty clients, three privacy budgets, one model: when clients save budget early and spend it late, how much"
	@echo "accuracy does privacy cost? Six methods on the same data and the same start; nobody exceeds a budget."
	@rm -rf demo
	@$(BIN)/nestegg compare examples/digits.toml --seeds 3 --out demo

test: $(VENV)/full
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest

bench: $(VENV)/full
	@$(BIN)/python -m bench.run

format: $(VENV)/full
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV)
