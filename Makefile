# Two commands set a fresh machine up: `make demo` and `make test`. Both make .venv from pyproject.toml and constraints.txt:
# the demo with what relaydp needs, the others with the development tools too.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# The four data sets of the paper are read from $RELAYDP_DATA; a checkout with ../shared/data beside it uses that folder.
ifneq ($(wildcard ../shared/data/README.md),)
export RELAYDP_DATA ?= $(abspath ../shared/data)
endif

.PHONY: setup bytecode demo test test-shipped test-all test-times test-slow test-sklearn kill-test mutants fuzz bench lint docs clean
.DEFAULT_GOAL := help
.NOTPARALLEL: # one .venv, written by one recipe at a time

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

# Bytecode is made of what a demo imports, by its first run, not of everything there is: that takes longer than the rest.
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt
VENV_WITH_PIP := $(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv $(VENV)

$(VENV)/.ready: pyproject.toml constraints.txt
	$(VENV_WITH_PIP)
	$(INSTALL) -e .
	@touch $@

# Tests start hundreds of processes, perhaps none of which may write bytecode: here it is made of everything, and by
# `bytecode` of the sources, by all cores. Some packages contain files that are not valid Python; that does no harm.
$(VENV)/.dev-ready: pyproject.toml constraints.txt
	$(VENV_WITH_PIP)
	$(INSTALL) -e ".[dev]"
	@$(BIN)/python -m compileall -qq -j 0 $(VENV)/lib >/dev/null || true
	@touch $(VENV)/.ready $@

bytecode: setup
	@$(BIN)/python -m compileall -qq -j 0 src

setup: $(VENV)/.dev-ready ## make .venv with the pinned packages and the development tools

demo: $(VENV)/.ready ## train a private model over 8 agents on embedded data, about a minute with its installation
	$(BIN)/relaydp demo

# Tests on samples of their cases, compiled with fewer optimisations (tests/conftest.py). Neighbouring tests share compiled
# programs, so each worker takes them in order, and takes some of the others' when it has done its own. Some wait for a
# network: one worker more than cores.
WORKERS ?= $(shell $(PYTHON) -c "import os; print((os.cpu_count() or 1) + 1)")
test: setup bytecode ## every test, the expensive ones on some of their cases (minutes)
	$(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal

test-times: setup bytecode ## the same, and where the time went
	$(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal -p tests.times

# What `make test` cannot show, since it compiles with fewer optimisations: the bits that users get, in kernels, in a
# network and on a Ray cluster (which takes more time to start than to use); the demo, README, examples, notebooks,
# benchmarks, the paper's experiments from end to end, and programs that are kept.
SHIPPED := tests/party/test_party.py tests/problem/kernels/test_kernels.py tests/problem/kernels/test_neighbours.py \
	tests/network/test_agent.py tests/cluster/test_solving_apart.py tests/cluster/test_solving_apart_ray.py \
	tests/cluster/test_study_ray.py tests/engine/test_scale.py::test_kept_programs_change_no_bit_and_may_be_refused \
	tests/repository/test_bench.py tests/repository/test_bench_accuracy.py tests/repository/test_bench_decor.py \
	tests/repository/test_bench_parts.py tests/repository/test_docs.py::test_the_readmes_table_is_what_the_demo_prints \
	tests/repository/test_docs.py::test_the_readmes_snippets_run tests/repository/test_docs.py::test_examples_run \
	tests/repository/test_docs.py::test_notebooks_run_without_a_warning \
	tests/paper/test_paper.py::test_real_experiments_end_to_end_in_two_processes \
	tests/paper/test_paper_complexity.py::test_a_tiny_effort_writes_the_page \
	tests/paper/test_paper_complexity.py::test_relations_write_the_page \
	tests/repository/test_two_commands.py::test_the_demo_needs_the_core_packages_alone
test-shipped: setup ## the tests of bits and kernels, on some of their cases, compiled as users have it
	RELAYDP_TESTS=shipped $(BIN)/python -m pytest -q -n auto --dist worksteal $(SHIPPED)

# In two halves: every program that XLA compiles takes mappings of memory, and Linux allows a process 65,530 of them.
test-all: setup ## every case but the slow ones, compiled as users have it (most of an hour on two cores)
	RELAYDP_TESTS=all $(BIN)/python -m pytest -q -n auto --dist worksteal tests/[a-e]*/
	RELAYDP_TESTS=all $(BIN)/python -m pytest -q -n auto --dist worksteal tests/[f-z]*/

test-slow: setup ## the slow checks: real data, many seeds, large graphs
	RELAYDP_TESTS=all $(BIN)/python -m pytest -q -m slow

test-sklearn: setup ## the estimators with the previous minor version of scikit-learn (SKLEARN="-m slow" for the checks without privacy)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --upgrade --target build/sklearn "scikit-learn==1.8.*"
	PYTHONPATH=build/sklearn $(BIN)/python -m pytest -q -n 2 $(SKLEARN) tests/estimator/test_estimator.py

kill-test: setup ## kill agents of a consortium 500 times and check their journals (KILLS="--kills 50" for fewer)
	$(BIN)/python tests/kill_test.py $(or $(KILLS),--kills 500 --agents 8)

mutants: setup ## plant bugs that would break the promise, and show which check catches each (MUTANTS="kernel" for some)
	$(BIN)/python tests/mutants.py $(MUTANTS)

fuzz: setup ## ten minutes of damaged messages at a running agent (FUZZ="--seconds 30" for less)
	$(BIN)/python tests/fuzz_agent.py $(or $(FUZZ),--seconds 600)

bench: setup ## measure speed, as ratios to other programs: build/bench/bench.md (an hour; BENCH="--quick" takes minutes)
	$(BIN)/python benchmarks/bench.py $(BENCH)

lint: setup ## ruff and pyright
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

docs: setup ## README's picture and table, the page of errors, every snippet, and the site in build/site
	$(BIN)/python scripts/update_readme.py
	$(BIN)/python scripts/update_errors.py
	RELAYDP_TESTS=all $(BIN)/python -m pytest -q tests/repository/test_docs.py tests/repository/test_site.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

clean: ## remove the environment and caches
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis build dist
