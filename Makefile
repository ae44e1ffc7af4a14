# `make help` lists what there is. Everything ends up in build/ and .venv/.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RELEASE := build/release
# Waiting, not computing, takes the time of many tests; but what builds and measures shares these.
JOBS ?= $(shell nproc)
# How often a test that fails is tried again. Processes race on a machine that is busy; what needed a second try is listed
# at the end, to be mended. None here, so that whoever writes a test sees it fail; one in .ci/run.
RETRIES ?= 0
PYTEST := $(BIN)/pytest -q $(if $(filter-out 0,$(RETRIES)),--reruns $(RETRIES) -raR)
CTEST := ctest --output-on-failure $(if $(filter-out 0,$(RETRIES)),--repeat until-pass:$(shell echo $$(($(RETRIES) + 1))))
PIP := $(BIN)/pip install --disable-pip-version-check --constraint constraints.txt
CPP_FILES = $(shell git ls-files --cached --others --exclude-standard '*.h' '*.cpp')

##@ Use it

help:  ## This list
	@awk 'BEGIN {FS = ":.*##"} /^##@/ {printf "\n%s\n", substr($$0, 5)} \
	  /^[a-z-]+:.*##/ {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: $(VENV)/.installed  ## Library, command line, Python package (.venv), tests and examples; seconds when nothing changed
	@cmake --build $(RELEASE) --parallel $(JOBS)
	@cmake --install $(RELEASE) --component python \
	  --prefix "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("platlib"))')" > /dev/null

demo: build  ## Train a small network on handwritten digits with 4 workers
	@$(BIN)/python examples/python/digits.py

##@ Check it

test: build test-unit test-python lint asan tsan fuzz  ## Everything: unit tests, Python, examples, docs, sanitizers, fuzzers, lint

test-fast: build test-unit  ## Unit tests and the quick Python tests, in under 4 minutes
	$(PYTEST) -m "not torch and not notebook and not slow"

test-unit: build  ## The C++ unit tests
	$(CTEST) --test-dir $(RELEASE) --label-exclude "slow|fuzz"

test-python: build  ## All Python tests, the examples and the docs among them, and the slow C++ ones
	$(PYTEST)
	$(CTEST) --test-dir $(RELEASE) --label-regex slow

asan: $(VENV)/.installed  ## The unit tests under AddressSanitizer and UndefinedBehaviorSanitizer
	$(call sanitized,asan,--label-exclude "slow|fuzz")

tsan: $(VENV)/.installed  ## The unit tests under ThreadSanitizer
	$(call sanitized,tsan,--label-exclude "slow|fuzz")

fuzz: $(VENV)/.installed  ## The fuzzers, with a fixed number of inputs, under AddressSanitizer
	$(call sanitized,asan,--label-regex fuzz)

chaos: build  ## Scenarios of failure on real processes: make chaos [SEED=1] [N=30] [FIRST=0] [LOAD=1] [PARALLEL=4]
	@PYTHONPATH=tests $(BIN)/python -m chaos $(if $(SEED),--seed $(SEED)) --count $(or $(N),30) --first $(or $(FIRST),0) \
	  $(if $(LOAD),--load) --parallel $(or $(PARALLEL),1) $(ARGS)

define sanitized
@cmake --preset $(1) > /dev/null
@cmake --build --preset $(1) --parallel $(JOBS) --target sanitized_tests
$(CTEST) --preset $(1) --parallel $(JOBS) $(2)
endef

lint: $(VENV)/.installed  ## Format, ruff, mypy --strict
	clang-format --dry-run --Werror $(CPP_FILES)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# One stamp per file, so that only what changed is looked at again.
TIDY_STAMPS = $(patsubst %,build/tidy/%.ok,$(filter src/%.cpp,$(CPP_FILES)))
tidy: build  ## clang-tidy over what changed since it last passed; slow, so not part of `make test`
	@$(MAKE) --no-print-directory --jobs $(JOBS) $(TIDY_STAMPS)

build/tidy/%.ok: % .clang-tidy
	@mkdir -p $(@D)
	@tools/tidy.sh $(RELEASE) $<
	@touch $@

format:  ## Put all files into shape
	clang-format -i $(CPP_FILES)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

##@ Measure it

bench: build  ## Start-up, reports and scale of Trireme
	$(BIN)/python bench/run.py

bench-peers: build  ## The same side by side with Ray Train and torchrun, in a venv of their own
	$(BIN)/python bench/run.py --peers

##@ Clean it

clean:  ## Remove what was built
	rm -rf build dist $(VENV)

.PHONY: help build demo test test-fast test-unit test-python asan tsan fuzz chaos lint tidy format bench bench-peers clean

# Again when what is installed changes; the C++ sources are ninja's business.
$(VENV)/.installed: pyproject.toml constraints.txt CMakeLists.txt
	@tools/install_packages.sh $(PYTHON)
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing Trireme into $(VENV) (the first time takes minutes)"
	@$(PIP) "scikit-build-core>=0.10" "nanobind>=2.4" torch pyarrow  # before the build, which looks for libtorch and Arrow
	@CMAKE_BUILD_PARALLEL_LEVEL=$(JOBS) $(PIP) --no-build-isolation --editable ".[dev]"
	@touch $@
