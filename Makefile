# Everything from a fresh clone: `make demo` shows what nestegg does, `make test` checks that it does it.
# Both create .venv and install into it from constraints.txt; a second call installs nothing.

PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check --constraint constraints.txt

# nestegg runs from its sources here: every process would compile its modules anew where Python was told to keep none.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
# `docs` is a folder, too.
.PHONY: help demo flower-demo style check test style-and-docs tests docs results bench soak release format clean

help:
	@echo "make demo     the paper's way beside a recipe of ours, on embedded data; a run refused for lack of budget"
	@echo "make flower-demo  a SuperLink and four SuperNodes on loopback over TLS, ten rounds, three budgets, the accounts"
	@echo "make check    style, types, architecture and the fast tests: what to run while you work"
	@echo "make test     the same, all other tests, and how much of the package they cover: what must pass"
	@echo "make docs     the documentation as a site in site/, to open from the disk; a broken link is an error"
	@echo "make results  the paper's evaluation at cpu scale: runs the cells that are missing, refreshes the results in docs/"
	@echo "make bench    timings beside Opacus and four other simulators, which it installs; takes half an hour"
	@echo "make soak     a thousand kill -9, a million clients, a Flower federation killed at every step, planted bugs; two hours"
	@echo "make release  sdist, manylinux wheel, bill of materials and licences in dist/, built twice and tried; ten to twenty minutes"
	@echo "make format   let ruff rewrite the sources"
	@echo "make clean    remove the virtual environment"

# torch first and alone, at the version of constraints.txt: whatever depends on it then finds it installed.
$(VENV)/base: pyproject.toml constraints.txt
	@echo "1 of 3: making a virtual environment in $(VENV). All of this happens once."
	@$(PYTHON) -m venv $(VENV) 2>/dev/null || python3 -m venv $(VENV)
	@echo "2 of 3: installing torch, by far the largest part: about 200 MB to fetch, gigabytes where it comes with CUDA …"
	@rm -f src/nestegg/training/_kernel.*.so  # one of an earlier version might be found first
	@$(PIP) torch
	@echo "3 of 3: installing nestegg, SciPy and what draws charts, about 100 MB to fetch; the kernel is compiled …"
	@$(PIP) --editable '.[train,ledger,charts]'
	@touch $@

$(VENV)/flower: $(VENV)/base
	@echo "Installing Flower and what it needs, about 50 MB to fetch, once …"
	@$(PIP) --editable '.[flower]'
	@touch $@

$(VENV)/full: $(VENV)/base
	@echo "Installing what the tests and the documentation need, about 500 MB to fetch, once: this takes minutes …"
	@$(PIP) --editable '.[test]'
	@touch $@

$(VENV)/release: $(VENV)/base
	@echo "Installing what a release needs …"
	@$(PIP) --editable '.[release]'
	@touch $@

# A command as a user would type it, in the demo's folder.
step = cd demo && echo && echo "$$ nestegg $(1)" && $(CURDIR)/$(BIN)/nestegg $(1)

demo: $(VENV)/base
	@echo "Fifty clients, three privacy budgets, one model. First as the paper has it: a small network, budget saved early"
	@echo "and spent late. Then a recipe of ours on the same clients: features that need nobody's data, and a schedule that"
	@echo "is computed. Nobody exceeds a budget. Three seeds each."
	@rm -rf demo
	@$(BIN)/nestegg compare examples/digits.toml --methods fedavg,idp-fedavg,paper --seeds 3 --out demo/papers-way
	@$(BIN)/nestegg compare examples/recipes/digits.toml --seeds 3 --out demo/recipe
	@echo "A ledger remembers. Every client has a budget for life; a run on Monday takes a part of it, and the same run on"
	@echo "Tuesday would take more than is left. It is refused before any client works, and planned anew from what is left."
	@cp examples/ledger.toml examples/lifetimes.csv demo
	@$(call step,ledger budgets import lifetimes.csv)
	@$(call step,run ledger.toml --out monday)
	@$(call step,run ledger.toml --out tuesday) || test $$? -eq 3
	@$(call step,ledger replan tuesday)
	@$(call step,run --resume tuesday)
	@$(call step,ledger show)
	@$(call step,ledger verify)
	@echo
	@$(BIN)/python examples/gains.py demo

flower-demo: $(VENV)/flower
	@rm -rf flower-demo
	@$(BIN)/python examples/flower/demo.py flower-demo

# A process of tests for each core, and a thread for each process: more would wait for one another.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/pytest --numprocesses auto --dist worksteal --durations 20

style: $(VENV)/full
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

check: style
	HYPOTHESIS_PROFILE=quick $(PYTEST) -m "not slow"

# Side by side: tests wait for servers and clusters a sixth of their time, and style takes most of a minute.
test: $(VENV)/full
	@$(MAKE) --no-print-directory --jobs 2 style-and-docs tests

style-and-docs: style docs

tests: $(VENV)/full
	$(PYTEST) --cov

# Run as a module, by which pages may be made by programs in docs/. Not quietly: MkDocs would then count no warning.
docs: $(VENV)/full
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	@echo "The documentation is in site/index.html."

results: $(VENV)/base
	@$(BIN)/nestegg reproduce all --scale cpu
	@$(BIN)/python docs/results.py

bench: $(VENV)/full
	@$(BIN)/python -m bench.run $(if $(DATA),--data $(DATA))
	@$(BIN)/python -m bench.features
	@$(BIN)/nestegg bench
	@$(BIN)/python -m bench.flower_overhead

soak: $(VENV)/full
	@$(BIN)/python -m bench.soak --kills 1000
	@$(BIN)/python -m bench.soak --kills 100 --postgresql
	@NESTEGG_LEDGER_TRIES=200 $(BIN)/pytest -q tests/ledger/test_state_machine.py
	@$(BIN)/pytest -m soak
	@$(BIN)/python -m bench.ledger
	@$(BIN)/python -m bench.third_parties
	@$(BIN)/python -m bench.sources
	@$(BIN)/python -m bench.aarch64
	@$(BIN)/python -m bench.flower_faults
	@$(BIN)/python -m bench.planted

release: $(VENV)/release
	@$(BIN)/python -m tools.release

format: $(VENV)/full
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV)
