# Two commands do all the set-up on a machine with Python >= 3.11: make demo, and make test, which needs a JDK 17.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: setup test check soak flink lint golden demo docs manifests lock clean

$(VENV)/.ready: pyproject.toml requirements.lock
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -r requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps -e .
	touch $@

# Every Spark session of the demo, the tests and `apply` starts in two thirds of the time with it.
$(VENV)/.classes: $(VENV)/.ready
	$(BIN)/python -m reconciler.spark.session.class_data && touch $@ || true

setup: $(VENV)/.classes  ## the virtual environment with every extra, from the lock file

test: setup  ## everything that a change must pass, in lanes side by side
	$(BIN)/python -m tests.lanes test

check: setup  ## lint, types, contracts, and the quick tests without a JVM and a cluster: minutes
	$(BIN)/python -m tests.lanes check

soak: setup  ## the long forms: 20 times every example of every property, and the tests marked soak; hours
	LAYOUTCTL_EXAMPLES=20 $(BIN)/pytest -m "soak or not (spark or cluster)"

flink: setup  ## Flink's jars (140 MB) for the tests marked flink, which are skipped without them
	$(BIN)/python -m tests.flink.job

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

golden: setup  ## rewrite the golden files of what is printed; read the difference
	LAYOUTCTL_GOLDEN=write $(BIN)/pytest -q -m "not spark and not cluster and not soak" \
	  tests/cli/test_observe.py $$(grep -rlE "said\(|golden\(" --include="test_*.py" tests)
	git diff --stat -- ":(glob)tests/**/golden/**"

demo: setup  ## the main job on generated data, in one command
	$(BIN)/layoutctl demo

docs: setup  ## the pages that are generated
	$(BIN)/python -m reconciler.api.reference > docs/reference/policy.md
	$(BIN)/python -m reconciler.api.runbook > docs/operations/conditions.md

manifests: setup  ## the chart's CRD templates and manifests/, with helm built from its pins
	HELM=$$($(BIN)/python -m tests.cluster.binaries helm)/helm $(BIN)/python -m charts.sync

lock:  ## regenerate requirements.lock (needs uv)
	uv pip compile --universal --python-version 3.11 --extra dev pyproject.toml \
	  --generate-hashes --no-emit-index-url --no-emit-find-links --no-header -o requirements.lock

clean:
	rm -rf $(VENV) dist build .mypy_cache .ruff_cache
