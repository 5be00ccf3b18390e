# Needs Python >= 3.11 with pip (and, for targets with native code, a C++ compiler); everything else is fetched into .venv-*.
PYTHON ?= python3
JOBS ?= 2
PLUGINS := plugins/ref plugins/frontends/onnx plugins/cpu_dnnl plugins/gpu_hip
KIT := conformance
DISTS := . $(PLUGINS) $(KIT)
EDITABLE := $(addprefix -e ,$(DISTS))
METADATA := pyproject.toml $(addsuffix /pyproject.toml,$(PLUGINS) $(KIT))
PIP := -m pip install --quiet --disable-pip-version-check
export PIP_NO_INPUT := 1
unexport PYTHONPATH

# a virtual environment with a recent pip, also where the system's Python lacks ensurepip
define venv
	@rm -rf $(1)
	@$(PYTHON) -m venv $(1) 2>/dev/null || { rm -rf $(1); $(PYTHON) -m venv --without-pip $(1) \
		&& $(PYTHON) -m pip --python $(1)/bin/python install --quiet pip; }
	@$(1)/bin/python $(PIP) --upgrade pip
endef

.DEFAULT_GOAL := help
.PHONY: help demo test test-all lint types wheels core-alone browser bench clean

help:
	@echo "make demo    classify handwritten digits with the example network"
	@echo "make test    style, types, import layers, separate wheels, all tests"
	@echo "make test-all  the same and the tests marked slow"
	@echo "make lint    style and import layers"
	@echo "make types   mypy --strict"
	@echo "make bench   times (BENCH=... passes options to benchmarks/)"
	@echo "make clean   remove environments and build output"

.venv-demo/ready: $(METADATA)
	$(call venv,.venv-demo)
	@.venv-demo/bin/python $(PIP) $(EDITABLE)
	@touch $@

.venv-test/ready: $(METADATA)
	$(call venv,.venv-test)
	@.venv-test/bin/python $(PIP) $(EDITABLE) --group test --group lint --group type
	@.venv-test/bin/python -m compileall -q mgx_core $(wildcard plugins/*/mgx_*) plugins/frontends/onnx/mgx_onnx # as pip does
	@touch $@

.venv-core/ready: pyproject.toml
	$(call venv,.venv-core)
	@.venv-core/bin/python $(PIP) -e . --group core-test
	@touch $@

demo: .venv-demo/ready
	@.venv-demo/bin/python examples/digits/demo.py

lint: .venv-test/ready
	.venv-test/bin/ruff check .
	.venv-test/bin/ruff format --check .
	.venv-test/bin/lint-imports

types: .venv-test/ready
	.venv-test/bin/mypy

wheels: .venv-test/ready
	@rm -rf dist
	@.venv-test/bin/python -m pip wheel --quiet --no-deps --wheel-dir dist $(addprefix ./,$(DISTS))
	@ls dist

core-alone: .venv-core/ready
	.venv-core/bin/python -m pytest -q tests/core_alone

# one test looks at a report in a real browser, and skips itself where there is none and none can be installed
browser:
	@command -v chromium >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null \
		&& apt-get update -qq && apt-get install -qq -y --no-install-recommends chromium; } >/dev/null 2>&1 \
		|| echo "there is no chromium here, so no test looks at reports in a browser"

test: lint types wheels core-alone browser
	.venv-test/bin/python -m pytest -q -n $(JOBS) --dist worksteal -m "not slow and not gpu"

# everything, long runs included; tests marked gpu skip themselves where there is no device
test-all: test
	.venv-test/bin/python -m pytest -q -n $(JOBS) --dist worksteal -m "slow and not gpu"

bench: .venv-demo/ready
	@.venv-demo/bin/python benchmarks $(BENCH)

clean:
	rm -rf .venv-* build dist .tox .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
