# The only commands anyone needs. `make` alone lists them.
#
# Two stamps say what .venv holds: the runtime lock, or everything (tests, checks, PySpark). The
# locks agree on every version, so the second only ever adds to the first. Nothing runs in parallel:
# two pips in one .venv break it.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
MAKEFLAGS += --no-print-directory

VENV := .venv
BIN := $(VENV)/bin
RUNTIME := $(VENV)/.runtime-installed
EVERYTHING := $(VENV)/.everything-installed
ARGS ?=
PYTEST_ARGS ?=

# The first Python that is new enough; PYTHON=/path/to/python overrules the search.
PYTHON ?=
CANDIDATES := $(or $(PYTHON),python3.11 python3.12 python3.13 python3)
NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))
FIND_PYTHON = for python in $(CANDIDATES); do \
	"$$python" -c '$(NEW_ENOUGH)' 2>/dev/null && break; \
	python=; done; \
	[ -n "$$python" ] || { echo "kraftpy needs Python 3.11 or newer: install it, or name one with PYTHON=/path/to/python" >&2; exit 1; }

# A .venv knows its own path, and its Python is a link to another: when the directory was moved or
# that Python is gone or too old, it is made anew, whatever the stamps say.
MADE_IN := $(VENV)/.made-in
WORKS = $(BIN)/python -c '$(NEW_ENOUGH)' 2>/dev/null && { [ ! -e $(MADE_IN) ] || [ "$$(cat $(MADE_IN))" = "$(CURDIR)" ]; }
ifeq ($(wildcard $(VENV))$(shell $(WORKS) || echo broken),$(VENV)broken)
$(RUNTIME) $(EVERYTHING): FORCE
endif
.PHONY: FORCE
FORCE:

# pip checks every file against the lock's hashes; the project itself is linked, not copied.
PIP_INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check
# What is linked pip does not compile, and some environments keep Python from doing so when it runs:
# then every start would read the sources anew, which takes as long as all the rest of it.
LINK_PROJECT = $(PIP_INSTALL) --no-deps --no-build-isolation --editable . && \
	$(BIN)/python -m compileall -q kraftpy
MAKE_VENV = { $(WORKS) && $(BIN)/python -c 'import pip' 2>/dev/null; } || \
	{ $(FIND_PYTHON); "$$python" -m venv --clear $(VENV) && echo "$(CURDIR)" > $(MADE_IN); }

.PHONY: help
help: ## List these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

.PHONY: run
run: $(RUNTIME) ## Set up if needed, then run `kraftpy dev` (ARGS="--data-dir DIR")
	@exec $(BIN)/kraftpy dev $(ARGS)

.PHONY: setup
setup: $(RUNTIME) ## Set up .venv with the pinned runtime dependencies

.PHONY: test
test: $(EVERYTHING) ## Set up all that the tests need, PySpark too, and run them
	@$(BIN)/python -m pytest -n 2 $(PYTEST_ARGS)

.PHONY: check
check: $(EVERYTHING) ## Lint, format, types, import contracts, tidy tests
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python -m pytest -q tests/tidy

ROUNDS ?= 50
.PHONY: quorum-storm
quorum-storm: $(EVERYTHING) ## Kill and stop three controllers under a writer (ROUNDS=50)
	@STORM_ROUNDS=$(ROUNDS) $(BIN)/python -m pytest -q tests/e2e/test_quorum_storm.py

MINUTES ?= 5
.PHONY: cluster-storm
cluster-storm: $(EVERYTHING) ## Kill and stop controllers and brokers under a client (MINUTES=5)
	@CLUSTER_STORM_MINUTES=$(MINUTES) $(BIN)/python -m pytest -q tests/e2e/test_cluster_storm.py

.PHONY: fuzz-broker
fuzz-broker: $(EVERYTHING) ## Random and mutated frames at a live broker (FOR=60, in seconds)
	@FUZZ_BROKER_SECONDS=$(or $(FOR),60) $(BIN)/python -m pytest -q tests/e2e/test_broker_fuzz.py

.PHONY: group-storm
group-storm: $(EVERYTHING) ## Kill and stop coordinators of consumer groups (ROUNDS=50)
	@GROUP_STORM_ROUNDS=$(ROUNDS) $(BIN)/python -m pytest -q tests/e2e/test_group_storm.py

.PHONY: group-proof
group-proof: $(EVERYTHING) ## Every story of every client in groups, and the machines with many examples
	@GROUP_PROOF=1 GROUP_EXAMPLES=1000 $(BIN)/python -m pytest -q tests/interop/test_groups.py \
		tests/interop/test_consumer_protocol.py tests/property/test_groups_machine.py \
		tests/property/test_consumer_groups_machine.py

# One seed, one saved plan, or many seeds: SEED=7, PLAN=tests/sim/plans/x.json, SEEDS=200.
SEEDS ?= 20
SIM_WHAT = $(if $(PLAN),--plan $(PLAN),$(if $(SEED),--seed $(SEED),--seeds $(SEEDS)))
.PHONY: sim
sim: $(EVERYTHING) ## Simulate the quorum under faults (SEED=7, SEEDS=200, ARGS=--trace)
	@$(BIN)/python -m tests.sim $(SIM_WHAT) $(ARGS)

.PHONY: sim-controller
sim-controller: $(EVERYTHING) ## The same with controllers, brokers and admins on top
	@$(BIN)/python -m tests.sim --controller $(SIM_WHAT) $(ARGS)

.PHONY: sim-mutants
sim-mutants: $(EVERYTHING) ## Plant bugs in the quorum, see each caught, write tests/sim/MUTANTS.md
	@$(BIN)/python -m tests.sim.plant $(ARGS)

# The harness sees only the wire and the processes; what a run leaves is in jepsen-store/.
JEPSEN = PYTHONPATH=jepsen-like $(BIN)/python -m jepsen_like
.PHONY: jepsen
jepsen: $(EVERYTHING) ## Break a cluster for five minutes and judge what held (ARGS="--only log")
	@$(JEPSEN) smoke --fresh $(ARGS)

.PHONY: jepsen-matrix
jepsen-matrix: $(EVERYTHING) ## Every workload under every fault, for hours; goes on where it was
	@$(JEPSEN) matrix $(ARGS)

.PHONY: jepsen-stock
jepsen-stock: $(EVERYTHING) ## Attack pysyncobj as it is shipped until it loses writes (ARGS=--all)
	@PYTHONPATH=jepsen-like $(BIN)/python -m tests.jepsen.stock_raft $(ARGS)

.PHONY: jepsen-mutants
jepsen-mutants: $(EVERYTHING) ## Plant bugs in a cluster and see the harness catch them
	@$(JEPSEN) mutants $(ARGS)

# For an hour: SECONDS=3600.
SECONDS ?= 60
.PHONY: audit
audit: $(EVERYTHING) ## Run a cluster under faults, audit what it recorded, say where the report is
	@$(BIN)/python -m tests.e2e.audit_run --seconds $(SECONDS) $(ARGS)

.PHONY: bench-log
bench-log: $(EVERYTHING) ## Measure the log against plain reads and writes
	@$(BIN)/python -m bench.log $(ARGS)

.PHONY: bench-server
bench-server: $(EVERYTHING) ## Measure the broker's server against one without any bounds
	@$(BIN)/python -m bench.server $(ARGS)

.PHONY: bench-groups
bench-groups: $(EVERYTHING) ## Measure the group coordinator beside Apache Kafka's
	@$(BIN)/python -m bench.groups $(ARGS)

.PHONY: bench-image
bench-image: $(EVERYTHING) ## Measure replay and loading of metadata images
	@$(BIN)/python -m bench.image $(ARGS)

.PHONY: bench-quorum
bench-quorum: $(EVERYTHING) ## Measure the quorum against etcd, ZooKeeper and the bare disk
	@$(BIN)/python -m bench.quorum $(ARGS)

.PHONY: bench-audit
bench-audit: $(EVERYTHING) ## Measure audits: local, Spark, plain Python (ARGS=--records=100000000)
	@$(BIN)/python -m bench.audit $(ARGS)

.PHONY: audit-proof
audit-proof: $(EVERYTHING) ## For every rule a fault among a million good records: found, and no more
	@$(BIN)/python -m tests.audit_proof $(ARGS)

.PHONY: bench-controller
bench-controller: $(EVERYTHING) ## Measure the active controller: creation, fencing, failover
	@$(BIN)/python -m bench.controller $(ARGS)

.PHONY: bench-start
bench-start: $(EVERYTHING) ## Measure starts to the first acknowledged message, beside Apache Kafka
	@$(BIN)/python -m bench.start $(ARGS)

.PHONY: bench-broker
bench-broker: $(EVERYTHING) ## Measure the broker against librdkafka's mock and Apache Kafka (ARGS=--quick)
	@$(BIN)/python -m bench.broker $(ARGS)

.PHONY: clients
clients: $(EVERYTHING) ## Run every Kafka client there is against kraftpy, write docs/clients.md
	@$(BIN)/python -m tests.interop.record

.PHONY: deploy-check
deploy-check: $(EVERYTHING) ## Run the image's commands in a fresh venv, and compose's nodes from it
	@DEPLOY_CHECK=1 $(BIN)/python -m pytest -q tests/unit/test_deploy.py tests/e2e/test_deploy_commands.py

.PHONY: docs
docs: $(EVERYTHING) ## Write docs/compatibility.md from the code
	@$(BIN)/python -m docs.compatibility

.PHONY: pictures
pictures: $(EVERYTHING) ## Take the pictures of docs/pictures from a real cluster (needs Chromium)
	@$(BIN)/python -m docs.pictures

# Nothing but these two touches the system. What they would start on their own is left switched off:
# bench-quorum runs its own servers, in a directory that it removes. bench-broker gets Apache Kafka's
# jars with Maven, and builds its load generator with the compiler.
.PHONY: bench-peers
bench-peers: ## Install what bench-quorum and bench-broker compare with (Debian; as root)
	@[ "$$(id -u)" = 0 ] || { echo "make bench-peers installs Debian packages: run it as root" >&2; exit 1; }
	apt-get install --yes --no-install-recommends etcd-server zookeeper default-jre-headless maven \
		gcc libc6-dev

.PHONY: test-peers
test-peers: ## Install kcat and Chromium, which some tests use (Debian; as root)
	@[ "$$(id -u)" = 0 ] || { echo "make test-peers installs Debian packages: run it as root" >&2; exit 1; }
	apt-get install --yes --no-install-recommends kcat chromium

# Everything is resolved once; the runtime lock is then held to the same versions.
LOCK = CUSTOM_COMPILE_COMMAND='make lock' $(BIN)/pip-compile --quiet --generate-hashes \
	--allow-unsafe --strip-extras --no-emit-index-url --no-emit-find-links \
	--no-emit-trusted-host --no-emit-options --no-build-isolation
.PHONY: lock
lock: $(EVERYTHING) ## Resolve the dependencies anew and write requirements/*.lock (ARGS=--upgrade)
	$(LOCK) $(ARGS) --extra audit --extra test --extra dev \
		--output-file requirements/test.lock pyproject.toml requirements/build.in
	$(LOCK) --constraint requirements/test.lock \
		--output-file requirements/runtime.lock pyproject.toml requirements/build.in

.PHONY: clean
clean: ## Remove .venv, caches and build output
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache \
		.hypothesis spark-warehouse
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(RUNTIME): requirements/runtime.lock pyproject.toml
	@$(MAKE_VENV)
	@echo "Installing kraftpy into $(VENV) ..."
	@$(PIP_INSTALL) --require-hashes --requirement requirements/runtime.lock
	@$(LINK_PROJECT)
	@touch $@

$(EVERYTHING): requirements/test.lock pyproject.toml
	@$(MAKE_VENV)
	@echo "Installing kraftpy, its tests and PySpark into $(VENV) (about 500 MB, takes minutes) ..."
	@$(PIP_INSTALL) --require-hashes --requirement requirements/test.lock
	@$(LINK_PROJECT)
	@touch $(RUNTIME) $@
