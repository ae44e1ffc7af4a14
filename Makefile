# `make help` lists the targets. Everything is written to build/ and .venv/.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
# uv installs packages without bytecode. If Python must not store it either, as in many containers, every process compiles
# what it imports: 3 CPU seconds for scikit-learn, every time.
unexport PYTHONDONTWRITEBYTECODE

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
FRAMEWORKS := .venv-frameworks
# Without its dependency on the complete tensorflow, which would replace tensorflow-cpu. The version is TensorFlow's.
TF_KERAS := tf_keras==$(shell sed -n 's/^tensorflow-cpu==//p' frameworks.txt)
RELEASE := build/release
JOBS ?= $(shell nproc)
# How often a failed test is run again. 0 by default, so that a flaky test is seen; .ci/run allows one, and the summary
# lists every test that needed it.
RETRIES ?= 0
# More tests at a time than cores: they often wait for processes.
PYTEST := $(BIN)/pytest -q -n $(shell echo $$((3 * $(JOBS) / 2))) --dist worksteal $(if $(filter-out 0,$(RETRIES)),--reruns $(RETRIES) -raR)
# Twice as many C++ tests as cores at a time: most of them wait for processes and sockets.
TESTS = $(shell echo $$((2 * $(JOBS))))
CTEST := ctest --output-on-failure \
  $(if $(filter-out 0,$(RETRIES)),--repeat until-pass:$(shell echo $$(($(RETRIES) + 1))))
PIP := $(BIN)/pip install --disable-pip-version-check --constraint constraints.txt
# A sixth of pip's time for the packages of the tests. torch is installed with pip, which the machine's settings may
# point to a build for its hardware.
UV_PIP := $(BIN)/uv pip install --python $(BIN)/python --constraint constraints.txt
# Sanitized trees take two thirds of the time with Clang, and a second compiler reads the code.
SANITIZER_CXX ?= $(firstword $(shell command -v clang++-19 clang++-18 clang++-17 clang++-16))
CPP_FILES = $(shell git ls-files --cached --others --exclude-standard '*.h' '*.cpp')

##@ Use it

help:  ## List the targets
	@awk 'BEGIN {FS = ":.*##"} /^##@/ {printf "\n%s\n", substr($$0, 5)} \
	  /^[a-z-]+:.*##/ {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: install  ## Train a small network on handwritten digits with 4 workers
	@$(BIN)/python examples/python/digits.py

# pip mostly waits for the network and the disk, so torch is installed while the library is compiled.
install: $(RELEASE)/build.ninja  ## Library, command line and Python package, in .venv
	@$(MAKE) --no-print-directory --jobs 2 $(VENV)/.torch library
	@$(MAKE) --no-print-directory $(VENV)/.installed
	@cmake --install $(RELEASE) --component python \
	  --prefix "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("platlib"))')" > /dev/null

library: $(RELEASE)/build.ninja
	@cmake --build $(RELEASE) --parallel $(JOBS) --target trireme trireme_cli _core trireme_launcher

build: install $(VENV)/.dev  ## The same, with all programs of the tests, examples and benchmarks
	@cmake --build $(RELEASE) --parallel $(JOBS)

##@ Check it

# Stages, each with its time, for the table at the end.
STAGE := tools/stage.sh build/stages.tsv
RUN := $(MAKE) --no-print-directory
test:  ## Everything: unit tests, Python, examples, docs, sanitizers, fuzzers, lint
	@rm -f build/stages.tsv
	@$(STAGE) "install" $(RUN) install
	@$(STAGE) "packages of the tests" $(RUN) $(VENV)/.dev
	@$(STAGE) "lint" $(RUN) lint
	@tools/overlap.sh build/sanitizers.log "$(RUN) test-release" "$(RUN) test-sanitizers"
	@tools/stage.sh build/stages.tsv

# The halves of `make test`. They run at the same time, because each leaves cores idle while its tests wait for processes
# and while packages are downloaded.
test-release:
	@$(STAGE) "tests, examples, benchmarks" $(RUN) build
	@$(STAGE) "Python tests" $(RUN) test-python
	@$(STAGE) "frameworks" $(RUN) test-frameworks
	@$(STAGE) "engines" $(RUN) test-engines

# The continuous integration builds a missing Horovod wheel. Nothing else waits for it but the tests of the frameworks.
test-sanitizers:
	@$(if $(filter true,$(CI)),tools/overlap.sh build/horovod.log "$(RUN) sanitizers" \
	  "$(STAGE) 'Horovod wheel' nice -n 19 $(RUN) horovod",$(RUN) sanitizers)

sanitizers:
	@$(STAGE) "ASan, UBSan, fuzzers" $(RUN) asan
	@$(STAGE) "ThreadSanitizer" $(RUN) tsan

test-fast:  ## Unit tests and the quick Python tests, in under 4 minutes after a build
	@rm -f build/stages.tsv
	@$(STAGE) "build" $(RUN) build
	@tools/overlap.sh build/unit_tests.log "$(RUN) test-quick" "$(STAGE) 'unit tests' $(RUN) test-unit"
	@tools/stage.sh build/stages.tsv

test-quick:
	@$(STAGE) "quick Python tests" $(PYTEST) -m "not torch and not notebook and not slow"

# `make test` runs them with sanitizers instead: twice is enough.
test-unit: build  ## The C++ unit tests without sanitizers
	@cmake --build $(RELEASE) --parallel $(JOBS) --target unit_tests
	$(CTEST) --parallel $(TESTS) --test-dir $(RELEASE) --label-exclude "slow|fuzz"

test-python: build  ## All Python tests, including examples and docs, and the slow C++ tests
	$(PYTEST)
	$(CTEST) --parallel $(JOBS) --test-dir $(RELEASE) --label-regex slow

# Together, because the unit tests mostly wait and the fuzzers compute.
asan: $(VENV)/.dev  ## The unit tests and fuzzers with AddressSanitizer and UndefinedBehaviorSanitizer
	$(call sanitized,asan,--label-exclude slow)

tsan: $(VENV)/.dev  ## The unit tests of code with threads, with ThreadSanitizer
	$(call sanitized,tsan,--label-exclude "slow|fuzz")

fuzz: $(VENV)/.dev  ## Only the fuzzers, with a fixed number of inputs, with AddressSanitizer
	$(call sanitized,asan,--label-regex fuzz)

chaos: build  ## Failure scenarios on real processes: make chaos [SEED=1] [N=30] [FIRST=0] [LOAD=1] [CLUSTER=1] [PARALLEL=4]
	@PYTHONPATH=tests $(BIN)/python -m chaos $(if $(SEED),--seed $(SEED)) --count $(or $(N),30) --first $(or $(FIRST),0) \
	  $(if $(LOAD),--load) $(if $(CLUSTER),--cluster) --parallel $(or $(PARALLEL),1) $(ARGS)

differential: build  ## Random data plans against an oracle: make differential [SEED=1] [N=1000] [FIRST=0] [LANGUAGE=python|cpp|both]
	@PYTHONPATH=tests $(BIN)/python -m differential $(if $(SEED),--seed $(SEED)) --count $(or $(N),1000) \
	  --first $(or $(FIRST),0) --language $(or $(LANGUAGE),both) $(ARGS)

test-frameworks: frameworks  ## The adapters of frameworks: Lightning, DeepSpeed, TensorFlow, JAX, XGBoost and others
	cd tests/frameworks && ../../$(FRAMEWORKS)/bin/pytest -q -n $(JOBS) --dist worksteal \
	  $(if $(filter-out 0,$(RETRIES)),--reruns $(RETRIES) -raR) .

# One file at a time on each core: the tests of a file share a cluster.
test-engines: frameworks  ## The engines for clusters, with real ones: Slurm, Ray
	cd tests/engines && ../../$(FRAMEWORKS)/bin/pytest -q -n $(JOBS) --dist loadfile -m "not slow" \
	  $(if $(filter-out 0,$(RETRIES)),--reruns $(RETRIES) -raR) .

test-clusters: frameworks  ## The same, with the scenarios that take minutes
	cd tests/engines && ../../$(FRAMEWORKS)/bin/pytest -q -n $(JOBS) --dist loadfile .

# Tested as a wheel, made of what is built already.
frameworks: install $(FRAMEWORKS)/.packages  ## The frameworks and this Trireme, in .venv-frameworks
	@rm -rf build/wheel
	@$(BIN)/pip wheel --quiet --no-deps --no-build-isolation --wheel-dir build/wheel --config-settings build-dir=$(RELEASE) .
	@$(BIN)/uv pip install --quiet --python $(FRAMEWORKS)/bin/python --reinstall-package trireme build/wheel/*.whl
	$(call install_horovod,$(if $(filter true,$(CI)),,--if-built))

horovod: $(FRAMEWORKS)/.packages  ## A Horovod wheel for these frameworks, in .venv-frameworks; built once on a machine
	$(call install_horovod)

define install_horovod
@wheel=$$(tools/horovod_wheel.sh $(CURDIR)/$(FRAMEWORKS)/bin/python $(1)); test -z "$$wheel" || \
  $(BIN)/uv pip install --quiet --python $(FRAMEWORKS)/bin/python --no-deps "$$wheel"
endef

test-gpu: build  ## Failures and resizes on a machine with two GPUs: make test-gpu [ARGS="--case kill"] [ARGS=--cpu]
	@PYTHONPATH=tests $(BIN)/python -m gpu $(ARGS)

define sanitized
@cmake --preset $(1) $(if $(SANITIZER_CXX),-D CMAKE_CXX_COMPILER=$(SANITIZER_CXX)) > /dev/null
@cmake --build --preset $(1) --parallel $(JOBS) --target sanitized_tests
$(CTEST) --parallel $(TESTS) --preset $(1) $(2)
endef

lint: $(VENV)/.dev  ## Format, ruff, mypy --strict
	clang-format --dry-run --Werror $(CPP_FILES)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# One stamp per file, so that unchanged files are not checked again.
TIDY_STAMPS = $(patsubst %,build/tidy/%.ok,$(filter src/%.cpp,$(CPP_FILES)))
tidy: build  ## clang-tidy over files that changed since it last passed; slow, so not part of `make test`
	@$(MAKE) --no-print-directory --jobs $(JOBS) $(TIDY_STAMPS)

build/tidy/%.ok: % .clang-tidy
	@mkdir -p $(@D)
	@tools/tidy.sh $(RELEASE) $<
	@touch $@

format:  ## Format all files
	clang-format -i $(CPP_FILES)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

##@ Measure it

bench: build  ## Start-up, reports and scale of Trireme
	$(BIN)/python bench/run.py

bench-peers: build frameworks  ## The same and the frameworks, side by side with Ray Train and torchrun, in a venv of their own
	$(BIN)/python bench/run.py --peers
	$(FRAMEWORKS)/bin/python bench/run.py frameworks --peers --repeat 1

##@ Clean it

clean:  ## Remove what was built
	rm -rf build dist $(VENV) $(FRAMEWORKS)

.PHONY: help demo install library build frameworks horovod test test-release test-sanitizers sanitizers test-fast \
  test-quick test-unit test-python test-frameworks test-engines test-clusters test-gpu asan tsan fuzz chaos differential \
  lint tidy format bench bench-peers clean

# The compiler, the libraries and the tools of the build.
$(VENV)/.tools: constraints.txt tools/install_packages.sh
	@tools/install_packages.sh build $(PYTHON)
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) "scikit-build-core>=0.10" "nanobind>=2.4" uv
	@touch $@

$(RELEASE)/build.ninja: $(VENV)/.tools CMakePresets.json
	@cmake --preset release -DPython_EXECUTABLE="$(CURDIR)/$(BIN)/python" > /dev/null
	@touch $@

$(VENV)/.torch: $(VENV)/.tools
	@$(PIP) torch
	@touch $@

# Frameworks have many packages, which the core's tests must not wait for or depend on.
$(FRAMEWORKS)/.packages: $(VENV)/.tools frameworks.txt constraints.txt
	@test -x $(FRAMEWORKS)/bin/python || $(PYTHON) -m venv $(FRAMEWORKS)
	@$(FRAMEWORKS)/bin/pip install --quiet --disable-pip-version-check --constraint constraints.txt torch
	@$(BIN)/uv pip install --python $(FRAMEWORKS)/bin/python --constraint constraints.txt -r frameworks.txt
	@$(BIN)/uv pip install --python $(FRAMEWORKS)/bin/python --no-deps $(TF_KERAS)
	@touch $@

# Editable. The extension is built by now, with ninja's progress on the terminal, so uv only registers the package.
$(VENV)/.installed: $(VENV)/.torch pyproject.toml
	@$(UV_PIP) --no-build-isolation --editable ".[demo]"
	@touch $@

# Everything that tests and linters need. CMake looks for Arrow again: it comes with pyarrow.
$(VENV)/.dev: $(VENV)/.tools pyproject.toml
	@$(MAKE) --no-print-directory install
	@tools/install_packages.sh dev $(PYTHON)
	@$(UV_PIP) --no-build-isolation --editable ".[dev]"
	@cmake --preset release > /dev/null
	@touch $(VENV)/.installed $@
