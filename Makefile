# Everything runs in .venv, which is made at first use and brought up to date when pyproject.toml
# changes. Written for GNU make 3.81, which is what macOS has.

VENV := .venv
PYTHON := $(VENV)/bin/python
# What is compiled is kept even where Python is told not to: each process would do it again.
TESTS := env -u PYTHONDONTWRITEBYTECODE $(PYTHON) -m pytest
INSTALLED := $(VENV)/.installed
PIP := $(PYTHON) -m pip --disable-pip-version-check --quiet

PYTEST_ARGS ?=
# Who has done its tests takes others': most of the time goes into a tenth of them, which lie together.
PARALLEL := -n auto --maxprocesses 4 --dist worksteal
# Whole clusters are many processes each. With three at once on two slow cores heartbeats are late, and tests see
# faults that nobody made.
CLUSTERS := -n 2
BENCH_ARGS ?=
SOAK ?= sim
SOAK_SECONDS ?= 1800

QUICK_TESTS := $(wildcard tests/test_*.py tests/unit tests/property tests/conformance tests/gallery/test_cards.py tests/gallery/test_judge.py tests/sim/test_sim.py)
# Whole trainings, some once for each call at which a rank may die: almost a fifth of the quick tests' time.
WHOLE_RUNS := $(patsubst %,tests/unit/train/steps/test_%.py,calling leaves runner)
# Where the tests are that have this mark: to read all others costs each process four seconds.
# tests/conftest.py refuses one that is not found like that.
marked = $(sort $(shell grep -rlw --include='test_*.py' 'mark\.$(1)' tests))
USABLE := import ensurepip, sys; sys.exit(sys.version_info < (3, 11))
# Homebrew's python3 is newer than what elasticd was tried with: one of these is taken first, if there is one.
TRIED := import ensurepip, sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))

COVERAGE_TESTS ?= tests/unit/core tests/unit/recovery tests/unit/checkpoints

.PHONY: help demo mac-check test deep check docs screenshots bench soak clean coverage lint linux darwin pyright imports quick

help: ## say what there is (the default)
	@awk -F ' *:.*## ' '/^[a-z-]+ *:.*## / { printf "make %-9s  %s\n", $$1, $$2 }' Makefile

demo: $(INSTALLED) ## train on a local cluster of three daemons, break it, show it heal
	@$(VENV)/bin/elasticctl demo

mac-check: $(INSTALLED) ## prove what only a Mac can: minutes; ends in a table and a file to send
	@$(VENV)/bin/elasticctl doctor --mac

# Tests about speed run one by one.
test: $(INSTALLED) ## the test suite; PYTEST_ARGS="-k name" for a part of it
ifeq ($(PYTEST_ARGS),)
	@$(TESTS) $(PARALLEL) -m "not deep and not slow" --ignore tests/integration
	@$(TESTS) $(CLUSTERS) -m "not deep and not alone" tests/integration
	@$(TESTS) -m "alone and not deep" $(call marked,alone)
else
	@$(TESTS) -m "not deep" $(PYTEST_ARGS)
endif

deep: $(INSTALLED) ## the tests that take longer: more nodes, networks, kills
ifeq ($(PYTEST_ARGS),)
	@$(TESTS) $(PARALLEL) -m slow $(call marked,slow)
	@$(TESTS) $(CLUSTERS) -m "deep and not alone" $(call marked,deep)
	@$(TESTS) -m "deep and alone" $(call marked,alone)
else
	@$(TESTS) -m "deep or slow" $(PYTEST_ARGS)
endif

docs: $(INSTALLED) ## write docs/commands.md from what --help says
	@$(VENV)/bin/python tests/commandpages.py

screenshots: $(INSTALLED) ## write docs/page-*.png: the web page's views, with made-up figures
	@$(VENV)/bin/python tests/screenshots.py

check: $(INSTALLED) ## format, lint, types, import directions and quick tests that start no process
	@$(MAKE) --no-print-directory --jobs 3 lint linux darwin pyright imports quick

# The parts of make check that read and do not run. What is known of a file is known per platform.
lint: $(INSTALLED)
	@$(PYTHON) -m ruff format --check .
	@$(PYTHON) -m ruff check .

linux darwin:
	@$(PYTHON) -m mypy --platform $@ --cache-dir .mypy_cache/$@

# Its wrapper would ask PyPI for a newer one each time.
pyright:
	@PYRIGHT_PYTHON_IGNORE_WARNINGS=1 $(PYTHON) -m pyright --pythonpath $(PYTHON)

imports: $(INSTALLED)
	@$(VENV)/bin/lint-imports

# The last of make check, so that it fills what the others leave of the machine. Fewer examples.
quick:
	@MAKEFLAGS= $(TESTS) -q $(PARALLEL) \
		--hypothesis-profile quick -m "not process and not deep and not slow" \
		$(addprefix --ignore=,$(WHOLE_RUNS)) $(QUICK_TESTS)

coverage: $(INSTALLED) ## branches of the pure code that COVERAGE_TESTS (its unit tests) do not take
	@$(PYTHON) -m pytest -q $(PARALLEL) -m "not process and not deep" --cov --cov-report term-missing \
		$(COVERAGE_TESTS)

bench: $(INSTALLED) ## measure: every tests/benchmarks/bench_*.py in turn
	@set -e; for script in tests/benchmarks/bench_*.py; do \
		echo "== $$script"; $(PYTHON) "$$script" $(BENCH_ARGS); \
	done

soak: $(INSTALLED) ## faults for SOAK_SECONDS=1800; SOAK=sim, chaos (real processes), gallery (scripts), fuzz, checkpoint
	@case "$(SOAK)" in sim|chaos|gallery|fuzz|checkpoint) ;; *) \
		echo "make soak: SOAK is sim, chaos, gallery, fuzz or checkpoint, not '$(SOAK)'" >&2; exit 2;; esac
	@$(PYTHON) tests/$(SOAK)/soak.py --seconds $(SOAK_SECONDS)

clean: ## remove .venv and everything else that can be made again
	rm -rf $(VENV) build dist bench-results *.egg-info
	rm -rf .coverage .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name .git -prune -o -type d -name __pycache__ -prune -exec rm -rf {} +

# Written last, so an installation that was interrupted is taken up again.
$(INSTALLED): pyproject.toml
	@if ! $(PYTHON) -c '$(USABLE)' 2>/dev/null; then \
		for python in python3 python3.13 python3.12 python3.11 none; do \
			"$$python" -c '$(TRIED)' 2>/dev/null && break; \
		done; \
		if [ "$$python" = none ] && python3 -c '$(USABLE)' 2>/dev/null; then python=python3; fi; \
		if [ "$$python" = none ]; then \
			echo "elasticd needs Python 3.11 or newer, with venv; found: $$(python3 --version 2>&1)" >&2; \
			exit 1; \
		fi; \
		echo "Making $(VENV) with $$("$$python" --version)"; \
		"$$python" -m venv --clear $(VENV); \
	fi
	@echo "Installing elasticd and its development tools into $(VENV)"
	@{ $(PIP) install --upgrade 'pip>=25.1' && $(PIP) install --editable . --group dev; } \
		2>$(VENV)/install.log || { cat $(VENV)/install.log >&2; exit 1; }
	@touch $@
