# Needs Python >= 3.11 with pip (and, for targets with native code, a C++ compiler); everything else is fetched into .venv-*.
PYTHON ?= python3
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
PLUGINS := \
	plugins/ref \
	plugins/frontends/onnx \
	plugins/frontends/tf \
	plugins/frontends/tflite \
	plugins/cpu_dnnl \
	plugins/gpu_hip \
	plugins/compat/migraphx \
	plugins/serve
KIT := conformance
TORCH := plugins/frontends/torch plugins/compat/torch_migraphx
WITH_TORCH := . plugins/ref plugins/cpu_dnnl plugins/gpu_hip plugins/frontends/onnx plugins/compat/migraphx $(TORCH)
RAY := . plugins/ref plugins/frontends/onnx plugins/serve
DISTS := . $(PLUGINS) $(KIT)
DEMO := . plugins/frontends/onnx plugins/cpu_dnnl
# the metadata of folders $(1) that affects environments
metadata = $(patsubst %,build/metadata/%/installed.json,$(1))
NATIVE := plugins/cpu_dnnl/CMakeLists.txt $(wildcard $(addprefix plugins/cpu_dnnl/,src/* mgx_cpu_dnnl/jit/*.py mgx_cpu_dnnl/prebuilt_loops/*.py))
PIP := -m pip install --quiet --disable-pip-version-check
PYTEST := .venv-test/bin/python -m pytest -q -n $(JOBS) --dist worksteal
export PIP_NO_INPUT := 1
unexport PYTHONPATH PYTHONDONTWRITEBYTECODE # without stored bytecode, each process that a test starts compiles all it imports

# a virtual environment with a recent pip, even if the system's Python lacks ensurepip
define venv
	@rm -rf $(1)
	@$(PYTHON) -m venv $(1) 2>/dev/null || { rm -rf $(1); $(PYTHON) -m venv --without-pip $(1) \
		&& $(PYTHON) -m pip --python $(1)/bin/python install --quiet pip; }
	@$(1)/bin/python $(PIP) --upgrade pip
endef

# editable installs: $(1) environment, $(2) folders, $(3) more arguments.  Build requirements are installed once, in the same
# environment, so that later builds of native code are incremental.
define editable
	@$(1)/bin/python -c 'import sys, tomllib; print(*sorted({r for f in sys.argv[1:] \
		for r in tomllib.load(open(f + "/pyproject.toml", "rb"))["build-system"]["requires"]}), sep="\n")' $(2) > $(1)/build.txt
	@$(1)/bin/python $(PIP) -r $(1)/build.txt editables # which hatchling requires only during a build
	@PATH="$(CURDIR)/$(1)/bin:$$PATH" $(1)/bin/python $(PIP) --no-build-isolation $(addprefix -e ,$(2)) $(3)
endef

# records in $(1)/native.sources which sources its native module belongs to: the checkout's path and a checksum of its files.  The file
# changes only if they do, so a copied environment or checkout, whose timestamps tell nothing, builds the module again.
define sources
	@{ echo $(CURDIR) && cat $(sort $(NATIVE)) | cksum; } > $(1)/native.sources.new
	@cmp -s $(1)/native.sources.new $(1)/native.sources || cp $(1)/native.sources.new $(1)/native.sources
	@rm $(1)/native.sources.new
endef

.DEFAULT_GOAL := help
.PHONY: gold-tf help demo test fast test-torch slow-torch test-ray test-mlserver test-all lint types wheels core-alone slow strangers test-capi test-capi-memory test-amd bench clean FORCE

help:
	@echo "make demo              classifies handwritten digits with the example network"
	@echo "make test              lint, import layers, types, all tests that are not slow"
	@echo "make lint              of these: ruff, ruff format, import layers"
	@echo "make types             of these: mypy --strict"
	@echo "make fast              of these: the tests"
	@echo "make test-all          all tests: the above and the following"
	@echo "make slow              slow tests"
	@echo "make strangers         of these: installs and tests the example packages like any third-party package"
	@echo "make test-torch        tests that need PyTorch, in an environment with it"
	@echo "make slow-torch        the slow ones of these: all samples of torch's own tests on cpu"
	@echo "make test-ray          mgx-serve on Ray and with KServe's client, in an environment with both"
	@echo "make test-mlserver     mgx inside MLServer, in an environment with it"
	@echo "make test-capi         the C and C++ interface: programs that are compiled against it"
	@echo "make test-capi-memory  its memory: AddressSanitizer, valgrind, eight threads for a minute"
	@echo "make test-amd          cross-compiles kernels for AMD GPUs with ziglang's clang"
	@echo "make core-alone        tests of the core in an environment without plugins"
	@echo "make wheels            builds the wheels of all packages in dist/"
	@echo "make bench             benchmarks (BENCH=... passes options)"
	@echo "make gold-tf           networks with TensorFlow's results, for slow tests (NETWORKS=... selects some)"
	@echo "make clean             removes environments, caches and build output"

# written only if it changes, with its source's timestamp: editing the tools' settings does not rebuild environments
build/metadata/%/installed.json: %/pyproject.toml .ci/installed.py
	@mkdir -p $(@D)
	@$(PYTHON) .ci/installed.py $< > $@.new
	@cmp -s $@.new $@ || { mv $@.new $@ && touch -r $< $@; }
	@rm -f $@.new

.venv-demo/ready: export MGX_PREBUILT_LOOPS := none
.venv-demo/ready: $(call metadata,$(DEMO)) $(NATIVE)
	$(call venv,.venv-demo)
	$(call editable,.venv-demo,$(DEMO))
	@touch $@

.venv-test/ready: $(call metadata,$(DISTS) $(TORCH))
	$(call venv,.venv-test)
	$(call editable,.venv-test,$(DISTS),--group test --group lint --group type)
	$(call editable,.venv-test,$(TORCH),--no-deps) # for import layers and types, which need no torch
	@.venv-test/bin/python -m compileall -q mgx_core $(wildcard conformance/mgx_* plugins/*/mgx_* plugins/*/*/*migraphx plugins/*/*/mgx_*) # as pip does
	$(call sources,.venv-test)
	@touch $@ .venv-test/native

.venv-test/native.sources .venv-torch/native.sources: .venv-%/native.sources: FORCE | .venv-%/ready
	$(call sources,.venv-$*)

# the native module is rebuilt whenever the contents of one of its sources have changed
.venv-test/native .venv-torch/native: .venv-%/native: .venv-%/ready .venv-%/native.sources
	@PATH="$(CURDIR)/.venv-$*/bin:$$PATH" .venv-$*/bin/python $(PIP) --no-build-isolation --no-deps -e plugins/cpu_dnnl
	@touch $@

# torch without CUDA, which saves 3 GB; if that index is unreachable, the default index's build
.venv-torch/ready: $(call metadata,$(WITH_TORCH))
	$(call venv,.venv-torch)
	@.venv-torch/bin/python $(PIP) --retries 0 --index-url https://download.pytorch.org/whl/cpu 'torch==2.13.0' \
		|| .venv-torch/bin/python $(PIP) 'torch==2.13.0'
	$(call editable,.venv-torch,$(WITH_TORCH),--group core-test expecttest onnxscript torchao)
	$(call sources,.venv-torch)
	@touch $@ .venv-torch/native

.venv-ray/ready: $(call metadata,$(RAY))
	$(call venv,.venv-ray)
	$(call editable,.venv-ray,$(RAY),--group ray-test)
	@touch $@

.venv-mlserver/ready: $(call metadata,$(RAY))
	$(call venv,.venv-mlserver)
	$(call editable,.venv-mlserver,$(RAY),--group mlserver-test)
	@touch $@

.venv-core/ready: $(call metadata,.)
	$(call venv,.venv-core)
	@.venv-core/bin/python $(PIP) -e . --group core-test
	@touch $@

# TensorFlow's results for networks of keras.applications, generated once in a separate environment; slow tests read them
gold-tf:
	$(call venv,.venv-gold-tf)
	@.venv-gold-tf/bin/python $(PIP) tensorflow-cpu scipy
	@.venv-gold-tf/bin/python plugins/frontends/tf/tests/gold/make.py .gold-tf $(NETWORKS)
	@.venv-gold-tf/bin/python plugins/frontends/tf/tests/gold/small.py .gold-tf/small

demo: .venv-demo/ready
	@.venv-demo/bin/python examples/digits/demo.py

lint: .venv-test/ready
	.venv-test/bin/ruff check .
	.venv-test/bin/ruff format --check .
	PYTHONPATH=plugins/capi .venv-test/bin/lint-imports # the package with the C library is built later

types: .venv-test/ready
	.venv-test/bin/mypy

# types are checked while the tests run, since mypy uses one core
test: lint .venv-test/native
	@$(MAKE) --no-print-directory -j2 types fast

fast: .venv-test/native
	$(PYTEST) -m "not slow and not gpu"

test-torch: .venv-torch/native
	.venv-torch/bin/python -m pytest -q -n $(JOBS) --dist worksteal -W default -m "not slow and not gpu" $(addsuffix /tests,$(TORCH))

slow-torch: .venv-torch/native
	.venv-torch/bin/python -m pytest -q -n $(JOBS) --dist worksteal -W default -m "slow and not gpu" $(addsuffix /tests,$(TORCH))

# sequential, since each starts its own processes; clients that register the same messages need separate processes
test-ray: .venv-ray/ready
	.venv-ray/bin/python -m pytest -q -W default plugins/serve/tests/cluster
	.venv-ray/bin/python -m pytest -q -W default plugins/serve/tests/kserve_client

# the runtime for MLServer, which requires older packages than Ray
test-mlserver: .venv-mlserver/ready
	.venv-mlserver/bin/python -m pytest -q -W default plugins/serve/tests/mlserver_runtime

# everything, including long runs; a test of reports in a browser is skipped if there is none
test-all: test test-torch test-ray test-mlserver wheels core-alone test-capi test-capi-memory test-amd slow slow-torch

slow: .venv-test/native
	$(PYTEST) -m "slow and not gpu"

# the example packages, each installed like a third-party package
strangers: .venv-test/native
	$(PYTEST) -m slow examples

wheels: .venv-test/native
	@rm -rf dist
	@PATH="$(CURDIR)/.venv-test/bin:$$PATH" .venv-test/bin/python -m pip wheel --quiet --no-deps --no-build-isolation \
		--wheel-dir dist $(addprefix ./,$(DISTS))
	@ls dist

core-alone: .venv-core/ready
	.venv-core/bin/python -m pytest -q tests/core_alone

# the C and C++ interface; needs a Python with a shared library
.venv-test/capi: .venv-test/native plugins/capi/pyproject.toml plugins/capi/CMakeLists.txt $(wildcard plugins/capi/src/* plugins/capi/include/migraphx/*)
	$(call editable,.venv-test,plugins/capi)
	@touch $@

test-capi: .venv-test/capi
	.venv-test/bin/python -m pytest -q -m "not slow" plugins/capi/tests

# its memory: AddressSanitizer, valgrind if it is installed, eight threads for a minute
test-capi-memory: .venv-test/capi
	.venv-test/bin/python -m pytest -q -rs -m slow plugins/capi/tests

# cross-compiles kernels for AMD GPUs with the clang of the ziglang wheel (100 MB)
.venv-test/amd: .venv-test/ready
	@.venv-test/bin/python $(PIP) "$$(.venv-test/bin/python -c 'import tomllib; \
		print(*tomllib.load(open("plugins/gpu_hip/pyproject.toml", "rb"))["project"]["optional-dependencies"]["amd-offline"])')"
	@touch $@

test-amd: .venv-test/native .venv-test/amd
	$(PYTEST) -m "not gpu" $(addprefix plugins/gpu_hip/tests/,compile/test_compilers.py test_offline.py) \
		plugins/gpu_hip/tests/test_hip_kernels.py::test_an_architecture_that_is_not_here \
		plugins/gpu_hip/tests/test_target.py::test_kernels_compile_for_an_amd_device

bench: .venv-test/native
	@.venv-test/bin/python benchmarks $(BENCH)

clean:
	rm -rf .venv-* build plugins/*/build dist .tox .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
