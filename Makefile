# Two commands matter: `make check` examines this machine, `make test` proves gpudoctor itself. Both set up what they need.

VENV := .venv
BIN := $(VENV)/bin
# One more than there are processors: tests also wait for containers. The quick ones hardly wait, and each worker reads them all.
PROCESSORS := $(shell nproc)
WORKERS := $(shell expr $(PROCESSORS) + 1)
DEMO := tests/machines/h100-measured/snapshot.json

.DEFAULT_GOAL := help
.PHONY: help check test test-fast test-gpu fuzz coverage lint docs wheel kernels format clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

check: $(VENV)/installed ## Diagnose this machine (PYTHON=... to examine another Python)
	@$(BIN)/gpudoctor check $(if $(PYTHON),--python "$(PYTHON)") || test $$? -eq 1
	@test -e /dev/nvidiactl || test -e /dev/dxg || printf '\nNo GPU here? See a real H100 instead:\n  %s\n' \
	  "$(BIN)/gpudoctor check --replay $(DEMO)"

test: $(VENV)/installed-dev ## Run the tests
	$(BIN)/pytest -n $(WORKERS) -q --dist loadgroup

test-fast: $(VENV)/installed-dev ## Run the quick tests: no Docker, GPU, browser, network or root
	$(BIN)/pytest -n $(PROCESSORS) -q --dist loadgroup -m "not (docker or gpu or browser or slow)"

fuzz: $(VENV)/installed-dev ## Give broken and hostile input to all that reads files, for minutes (SEED=... to begin elsewhere)
	GPUDOCTOR_FUZZ=30 GPUDOCTOR_FUZZ_SEED=$(or $(SEED),1000) $(BIN)/pytest -n $(WORKERS) -q tests/test_fuzz.py tests/test_hostile.py tests/test_redaction_verdicts.py tests/test_text_rules.py tests/test_patterns.py

coverage: $(VENV)/installed-dev ## Run the tests and measure coverage, child processes included
	$(BIN)/pytest -n $(WORKERS) -q --dist loadgroup --cov --cov-report=term

test-gpu: $(VENV)/installed-dev ## Run the tests that need a GPU, on a machine that has one
	$(BIN)/pytest -m gpu

lint: $(VENV)/installed-dev ## Check format, style and types
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy

docs: $(VENV)/installed-dev ## Write the site, with a page for every check and problem, to dist/site
	$(BIN)/mkdocs build --quiet

wheel: $(VENV)/installed-dev ## Build the wheel and the source distribution in dist/
	$(BIN)/python -m build --outdir dist

kernels: ## Write kernels.ptx from kernels.cu, with nvcc 13: PTX 6.0, which every driver since R384 compiles
	nvcc -arch compute_75 -ptx -o - gpudoctor/worker/measuring/kernels.cu \
	  | sed -E 's/^\.version .*/.version 6.0/; s/^\.target .*/.target sm_50/' > gpudoctor/worker/measuring/kernels.ptx

format: $(VENV)/installed-dev ## Format the code
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

clean: ## Remove what the other targets made
	rm -rf $(VENV) dist .coverage .mypy_cache .pytest_cache .ruff_cache

$(VENV)/installed: pyproject.toml | $(VENV)
	@$(call install,.)
	@touch $@

$(VENV)/installed-dev: pyproject.toml | $(VENV)
	@$(call install,.[dev])
	@touch $@ $(VENV)/installed

$(VENV):
	@if command -v uv >/dev/null; then uv venv --quiet --no-project $(VENV); \
	elif python3 -c 'import ensurepip' 2>/dev/null; then python3 -m venv $(VENV); \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo 'Installing python3-venv, which this Python lacks ...'; \
	  apt-get update -qq && apt-get install -y -qq python3-venv >/dev/null && python3 -m venv $(VENV); \
	else echo 'This Python has no venv module. Install it first: sudo apt install python3-venv' >&2; exit 1; fi

# install PACKAGE: with uv where it is there, else with the venv's pip. Then compile it, as an install from a wheel does.
define install
if command -v uv >/dev/null; then uv pip install --quiet --python $(BIN)/python --editable '$(1)'; \
else echo 'Installing gpudoctor into $(VENV) ...'; $(BIN)/python -m pip install --quiet --editable '$(1)'; fi
@$(BIN)/python -m compileall -q gpudoctor checks && $(BIN)/python -m gpudoctor.compiled gpudoctor images
endef
