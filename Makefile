# Everything a fresh machine needs is installed by the targets themselves: `make test` and `make demo` are the two commands.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= $(shell command -v python3.11 || command -v python3 || echo python3)
VENV := .venv
PY := $(VENV)/bin/python
PYTEST := $(PY) -m pytest
ARGS ?=

banner = @printf '\n=== %s ===\n' '$(1)'
# Tests on brokers, workers and networks mostly wait: four processes share them out as tests/spread.py says.
WAITING := -n 4 --dist loadfile
# Folders that a part need not read; tests/conftest.py refuses a test that a part would so overlook.
NO_BROKER := bench cli core docs fencing model schemas simulation testing views worker
BROKERS_ONLY := acceptance containers faults kafka scenarios
except = $(1:%=--ignore=tests/%)
# Tests that only compute give way to those that wait beside them.
COMPUTING := nice -n 10
took = printf '\n=== %s: %s s ===\n' '$@' "$$SECONDS"
# Tests against real processes and brokers depend on the machine's mood. What failed is run once more, alone and in the open:
# a test that fails twice fails; one that passes the second time stands in the output as both. The parts run side by side,
# so each remembers its own failures.
attempt = @again() { printf '\n=== once more: what failed in %s ===\n' '$@'; $(PYTEST) -n 0 --last-failed $(CACHE) $(2) $(ARGS); }; \
	{ code=0; $(3) $(PYTEST) $(1) $(CACHE) $(2) $(ARGS) || { code=$$?; [ $$code -ne 1 ] || { code=0; again || code=$$?; }; }; \
	$(took); exit $$code; } $(named)
# Beside another part each line says whose it is.
named = $(if $(BESIDE),2>&1 | sed -u 's/^/$@ | /')
CACHE = -o cache_dir=.pytest_cache/$@

.PHONY: help
help: ## Show the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## ?(.*)/  \1|\2/' | column -t -s '|'

# --- the environment -------------------------------------------------------------------------------------------------

.PHONY: venv
venv: $(VENV)/.installed ## The Python environment, from the lock with hashes

$(VENV)/.installed: config/requirements-dev.txt pyproject.toml
	@PYTHON='$(PYTHON)' .ci/prepare-machine python
	@test -x $(PY) || $(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet --require-hashes -r config/requirements-dev.txt
	$(PY) .ci/link_source.py
	@touch $@

.PHONY: jars
jars: venv ## Java, Maven and the embedded Kafka's jars
	@.ci/prepare-machine java
	@$(PY) -m fencepost.broker

.PHONY: servers
servers: ## PostgreSQL and Redis, for the tests of fencing at the resource
	@.ci/prepare-machine postgres
	@.ci/prepare-machine redis

.PHONY: spin
spin: ## The Spin model checker and a C compiler
	@.ci/prepare-machine spin

.PHONY: lock
lock: ## Compile the locked requirements again (ARGS=--upgrade for newer versions)
	@.ci/compile-lock $(ARGS)

# --- tests -----------------------------------------------------------------------------------------------------------

.PHONY: test
test: jars servers wheel spin ## All tests: those that wait on brokers beside those that compute
	@echo 'The parts of the tests run side by side; each line says whose it is.'
	@+$(MAKE) --no-print-directory -j2 BESIDE=yes test-brokers test-fast test-croniter test-simulation test-model

.PHONY: test-fast
test-fast: venv ## Tests that need no broker
	$(call banner,fast tests: no broker)
	$(call attempt,-n auto $(call except,$(BROKERS_ONLY)),-m 'not kafka and not faults and not containers and not acceptance and not model and not simulation')

.PHONY: test-croniter
test-croniter: venv ## The schedule tests with the newest croniter (all others have the oldest that is allowed)
	$(call banner,schedules under the newest croniter)
	@{ $(COMPUTING) $(PY) tests/core/schedule/under_croniter.py 7.0.0 -- -n auto $(CACHE) $(ARGS); $(took); } $(named)

.PHONY: test-simulation
test-simulation: venv ## 10,000 simulated histories, and a search without each safeguard
	$(call banner,simulation: real lanes above a simulated Kafka)
	$(call attempt,-n auto,-m simulation tests/simulation,$(COMPUTING))

.PHONY: test-model
test-model: venv spin ## The small cases of the model, with Spin
	$(call banner,model tests: the ownership protocol in every order of its steps)
	$(call attempt,-n 2,-m model tests/model,$(COMPUTING))

.PHONY: test-brokers
test-brokers: jars servers wheel ## The next four in one
	$(call banner,tests on brokers: Kafka tests$(comma) faults$(comma) containers$(comma) acceptance)
	$(call attempt,$(WAITING) $(call except,$(NO_BROKER)),-m 'kafka or faults or containers or acceptance')

.PHONY: test-kafka
test-kafka: jars servers ## Tests on the embedded broker (a real Apache Kafka)
	$(call banner,Kafka tests: on the embedded Apache Kafka)
	$(call attempt,$(WAITING) $(call except,$(NO_BROKER)),-m 'kafka and not faults')

.PHONY: test-containers
test-containers: jars ## Tests on Kafka in a container, through testcontainers
	$(call banner,container tests: on Apache Kafka in a container)
	$(call attempt,-n 0,-m containers tests/containers)

.PHONY: test-faults
test-faults: jars ## Tests that break brokers, workers and the network
	$(call banner,fault tests: brokers and workers are killed$(comma) frozen$(comma) cut off)
	$(call attempt,$(WAITING) $(call except,$(NO_BROKER)),-m faults)

.PHONY: test-acceptance
test-acceptance: jars servers wheel ## Tests of the installed wheel
	$(call banner,acceptance tests: the installed wheel)
	$(call attempt,$(WAITING),-m acceptance tests/acceptance)

comma := ,

# What takes hours. Each part ends by itself and says what it found; the first that finds something ends it.
.PHONY: campaign
campaign: jars spin ## The whole model, a million simulated histories, a thousand real faults (hours)
	$(call banner,the model: all cases)
	$(PY) -m tests.model --all
	$(call banner,simulation: a million histories)
	$(PY) -m tests.simulation --histories 1000000
	$(call banner,faults: a thousand on real brokers)
	$(PY) -m tests.faults --faults 1000 --json campaign-results/faults.json

.PHONY: lint
lint: venv ## ruff and mypy
	$(call banner,lint)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

.PHONY: format
format: venv ## Format the code
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

# --- to use it -------------------------------------------------------------------------------------------------------

.PHONY: wheel
wheel: venv ## Build the wheel into dist/
	@rm -rf dist
	$(PY) -m build --wheel --no-isolation --outdir dist .

.PHONY: demo
demo: jars ## Broker, workers, faults and the proof (ARGS=--keep leaves the cluster up)
	@$(PY) -m fencepost.demo $(ARGS)

.PHONY: compose-try
compose-try: jars ## Kafka and three workers in containers, with images made offline
	@compose/try.sh

.PHONY: bench
bench: jars ## Measure speed, side by side with others, and save JSON
	@$(PY) -m tests.bench $(ARGS)

.PHONY: clean
clean: ## Remove what the targets made in this folder
	rm -rf $(VENV) dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis .ci-out
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
