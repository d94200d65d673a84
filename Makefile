# The one list of commands: people and CI call the same targets.
#
#   make demo    a simulated T4 VM, provisioned for real, from nothing
#   make test    what needs no machine from nothing, and one finished machine as smoke; SEED=1: files in another order
#   make test-machines  what needs machines from nothing, Ansible's runs, sshd, browsers, builds of FFmpeg
#   make test-all  both, with the long matrix and the soak: each system from nothing
#   make faults  which of these commands notices each of 60 faults; hours
#   make chaos   kills, power cuts and lost networks in the middle of commands: N=50 rounds, SEED=1 the same ones again
#   make coverage  the share of lines and branches that the tests without a machine run
#   make lint    ruff, mypy, import contracts, yamllint, ansible-lint
#   make canary  what the live archives lack of what the catalogue says; needs the internet
#   make bench   ratios against plain tools, in one run
#   make wheel   dist/gpuprep-*.whl
#   make release wheel and sdist of the last commit, built twice apart and compared: docs/releasing.md
#   make man     the man pages, made anew from the commands
#   make playground  a simulated T4 VM to try every command on, and what to type
#   make hashes  the sha256 of every wheel that is pinned, written anew
#   make clean   remove what these targets made in this folder

SHELL := /bin/bash
.ONESHELL:
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
# Make would look for a rule of C, Fortran or SCCS for each of the sources below: four tenths of a second.
MAKEFLAGS += --no-builtin-rules
# What does not need each other is made side by side: the two environments, the parts of the lint.
ifeq ($(MAKELEVEL),0)
MAKEFLAGS += -j3
endif

VENV := .venv
BIN := $(VENV)/bin
BUILD := .venv-build
PINS := .ci/requirements-build.txt $(wildcard ansible_collections/gpuprep/gpu/roles/gpu_agent/files/requirements/*.txt)
# The time that is written into wheel and sdist: that of the last commit, so that the same commit gives the same bytes.
EPOCH = $(or $(shell git log -1 --format=%ct 2>/dev/null),1580601600)
PIP := $(BIN)/python -m pip --disable-pip-version-check
SOURCES := pyproject.toml .ci/wheel_sbom.py .ci/requirements-build.txt $(shell find gpuprep ansible_collections profiles man -type f -not -name '*.pyc')

# Two parts side by side: mypy takes as long as all others.
LINT := lint-types lint-others

# Compiled files stay for the next run and for other workers: without them each worker compiles all tests anew.
unexport PYTHONDONTWRITEBYTECODE

# Debian packages a fresh machine may lack. The first line is for gpuprep itself, the second for simulated VMs, the third for the tests.
PACKAGES := python3-venv openssh-client ca-certificates \
            mmdebstrap systemd-container gcc libc6-dev dpkg-dev gpgv iproute2 \
            openssh-server shellcheck procps postgresql gnupg chromium-headless-shell fonts-dejavu-core \
            bash zsh fish mandoc

.PHONY: help demo playground man test test-machines test-all faults chaos coverage lint $(LINT) bench canary wheel release hashes clean packages

help:
	@sed -n 's/^# \{0,3\}//; 2,18p' $(firstword $(MAKEFILE_LIST))

packages:
	@missing=""
	for package in $(PACKAGES); do
	  dpkg-query -W -f '$${Status}' $$package 2>/dev/null | grep -q 'ok installed' || missing="$$missing $$package"
	done
	[ -z "$$missing" ] && exit 0
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
	  echo "Installing:$$missing"
	  apt-get update -qq
	  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing >/dev/null
	else
	  echo "Not installed:$$missing (as root on Debian this target installs them; simulated VMs need them)" >&2
	fi

# Debian's own python3 where there is one: it is the one that python3-venv belongs to.
PYTHON ?= $(shell for p in /usr/bin/python3 python3; do command -v $$p && break; done)

$(VENV)/.made: pyproject.toml | packages
	@echo "Making $(VENV)"
	$(PYTHON) -m venv $(VENV)
	$(PIP) install -q --no-compile ".[dev]"
	touch $@

# What builds the wheel, pinned by hash and apart from what tests it.
$(BUILD)/.made: .ci/requirements-build.txt | packages
	@$(PYTHON) -m venv $(BUILD)
	$(BUILD)/bin/python -m pip install -q --disable-pip-version-check --only-binary=:all: --no-deps --require-hashes -r $<
	touch $@

# The tests and the demo run the built wheel, as users do, never the source tree.
$(VENV)/.installed: $(SOURCES) $(VENV)/.made $(BUILD)/.made
	@rm -f dist/gpuprep-*.whl
	umask 022
	SOURCE_DATE_EPOCH=$(EPOCH) $(BUILD)/bin/python -m hatchling build -t wheel -d dist >$(BUILD)/log 2>&1 || { cat $(BUILD)/log >&2; exit 1; }
	$(PIP) install -q --no-deps --force-reinstall dist/gpuprep-*.whl
	touch $@

wheel: $(VENV)/.installed
	@ls dist/gpuprep-*.whl

release: $(BUILD)/.made
	@$(BUILD)/bin/python .ci/release.py dist

hashes:
	@$(PYTHON) -m venv $(BUILD)
	$(BUILD)/bin/python -m pip install -q --disable-pip-version-check 'pip>=23.3'
	$(BUILD)/bin/python .ci/hashes.py $(PINS)

demo: $(VENV)/.installed
	@$(BIN)/gpuprep sim up t4 --os debian13
	$(BIN)/gpuprep provision sim:t4 --profile t4
	echo
	echo "Look around:   $(BIN)/gpuprep sim exec t4 -- nvidia-smi"
	echo "Run it again:  make demo"
	echo "Take it down:  $(BIN)/gpuprep sim down t4"

# The machine alone, bare: what is done with it is what there is to try.
playground: $(VENV)/.installed
	@$(BIN)/gpuprep sim up t4 --os debian13
	echo
	echo "A bare machine with a simulated T4. Everything you do to it is simulated where it says so. Try, in this order:"
	echo
	echo "  export PATH=\"$$PWD/$(BIN):\$$PATH\""
	echo "  gpuprep plan sim:t4 --profile t4          what would be done, and why"
	echo "  gpuprep provision sim:t4 --profile t4     do it; some minutes"
	echo "  gpuprep watch sim:t4                      in another terminal; Ctrl-C ends it"
	echo "  gpuprep sim fault --list                  what can break; then: gpuprep sim fault t4 KIND"
	echo "  gpuprep drift sim:t4 --profile t4         what is not as it was"
	echo "  gpuprep status                            all machines, the worst first"
	echo "  gpuprep sim down t4                       the end of it"

man: $(VENV)/.made
	@PYTHONPATH=$$PWD $(BIN)/python .ci/manpages.py man

# --max-worker-restart 0: where a worker crashes, the run ends and names the test. With a new worker, xdist 3.8 waits for
# ever (its issues 1323 and 1327).
# PYTHONNODEBUGRANGES: compiled files are smaller, and Python is started some thousand times.
PYTEST = PYTHONNODEBUGRANGES=1 $(BIN)/pytest tests -n 3 --dist loadgroup --no-loadscope-reorder \
	--max-worker-restart 0 --durations=20 $(if $(SEED),--random-order-bucket=module --random-order-seed=$(SEED))

test: $(VENV)/.installed
	@$(BIN)/python tests/support/finished.py
	$(PYTEST)

test-machines: export GPUPREP_REQUIRE_E2E = 1
test-machines: $(VENV)/.installed
	@$(PYTEST) -m "machines and not only_all"

test-all: export GPUPREP_REQUIRE_E2E = 1
test-all: export GPUPREP_TEST_ALL = 1
test-all: $(VENV)/.installed
	@$(PYTEST) -m ""

faults: $(VENV)/.installed
	@$(BIN)/python tests/support/injectfaults.py

chaos: $(VENV)/.installed
	@$(BIN)/python tests/support/chaos.py --rounds $(or $(N),10) $(if $(SEED),--seed $(SEED))

coverage: $(VENV)/.installed
	@$(BIN)/pytest tests -m "not e2e and not only_all" -n 2 -q --cov --cov-report=term

lint: $(VENV)/.installed
	@$(MAKE) --no-print-directory --output-sync=target $(LINT)

lint-types:
	@$(BIN)/mypy

lint-others:
	@$(BIN)/ruff check gpuprep tests .ci ansible_collections
	$(BIN)/ruff format --check gpuprep tests .ci ansible_collections
	$(BIN)/lint-imports
	$(BIN)/yamllint --strict ansible_collections profiles gpuprep
	PATH="$$PWD/$(BIN):$$PATH" ANSIBLE_COLLECTIONS_PATH="$$PWD" $(BIN)/ansible-lint --offline -q ansible_collections

canary: $(VENV)/.installed
	@$(BIN)/python .ci/canary.py

bench: $(VENV)/.installed
	@$(BIN)/python tests/bench

clean:
	rm -rf $(VENV) $(BUILD) dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
