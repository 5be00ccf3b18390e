"""Loops that were compiled with the package: their files, stale and damaged files, networks that do not need LLVM."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from run_loops import run_numpy

import mgx_core as mgx
import mgx_cpu_dnnl
from mgx_cpu_dnnl.int8_depthwise import has_avx512_vnni
from mgx_cpu_dnnl.jit import engine as engines
from mgx_cpu_dnnl.jit import prebuilt
from mgx_cpu_dnnl.jit.byte_gemm_loops import BytePlan
from mgx_cpu_dnnl.jit.code import Code, V
from mgx_cpu_dnnl.jit.engine import Engine
from mgx_cpu_dnnl.jit.kernel import JitKernel
from mgx_cpu_dnnl.native_library import native
from mgx_cpu_dnnl.prebuilt_loops.network import ACTIVATIONS, Network
from mgx_cpu_dnnl.shared import KernelCache, shared
from mgx_cpu_dnnl.target import CpuTarget


def times(number: float) -> Any:
    def build(c: Code) -> None:
        base = c.load(c.gep(V("%buffers", "ptr", 0), 0, "ptr"), "ptr", 0)

        def step(i: V, _: Any) -> list[V]:
            at = c.gep(base, i, "float")
            x = c.load(at, "float", 0)
            c.store(at, c.op("fmul", x, c.const(number, x)))
            return []

        c.loop(V("%begin", "i64", 0), V("%end", "i64", 0), 1, step)

    return build


def results(function: Any) -> list[float]:
    x = np.arange(4, dtype=np.float32)
    run_numpy(JitKernel("times", function, 4, 1, (), 0, 0, 1), [x])
    return [float(v) for v in x]


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """The file for this kind of processor, with one loop: key `times`, code that multiplies by 3."""
    engine = Engine(cache=None)
    engine.stamp = "a processor"
    engine.function("times", times(3)).address  # noqa: B018
    path = tmp_path / prebuilt.file_name(prebuilt.kind_of(engine.wide, engine.divides))
    prebuilt.write(path, engine.stamp, engine.objects(), prebuilt.generator())
    return path


def test_loops_of_the_file_are_compiled_no_more(kept: Path, tmp_path: Path) -> None:
    """They take precedence over the cache, so that a process computes the same as later ones."""
    cache = tmp_path / "cache"
    Engine(cache=cache).function("times", times(5)).address  # noqa: B018
    engine = Engine(cache=cache, ready=["/nowhere", str(kept.parent)])
    assert results(engine.function("times", times(5))) == [0, 3, 6, 9]
    assert results(engine.function("other", times(7))) == [0, 7, 14, 21]
    assert engine.compiled == 1
    assert len(prebuilt.PrebuiltLoops(kept)) == 1


@pytest.mark.parametrize("missing", ["bmi2", "avx2"])
def test_processors_that_lack_what_loops_use_have_theirs_compiled(
    kept: Path, missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Machine:
        """The native module of a virtual machine that hides some features."""

        def __getattr__(self, name: str) -> Any:
            return getattr(native(), name)

        def cpu_features(self) -> list[str]:
            return [word for word in native().cpu_features() if word != missing]

    monkeypatch.setattr(engines, "native", Machine)
    engine = Engine(cache=None, ready=[str(kept.parent)])
    assert results(engine.function("times", times(5))) == [0, 5, 10, 15]
    assert engine.compiled == 1


@pytest.mark.parametrize("part", ["sizes", "contents"])
def test_loops_of_another_generator_are_not_used(kept: Path, part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Contents are compared if a source is newer than the file, sizes always."""
    monkeypatch.setattr(prebuilt, f"_{part}", lambda sources: "another")
    assert len(prebuilt.PrebuiltLoops(kept)) == (part == "contents")
    newest = max(stat.st_mtime_ns for stat in prebuilt._sources().values())
    os.utime(kept, ns=(newest, newest))
    assert len(prebuilt.PrebuiltLoops(kept)) == 0


def test_damaged_files_count_as_absent(kept: Path) -> None:
    whole = kept.read_bytes()
    for damaged in (
        b"",
        b"rubbish\n",
        whole[:150],
        whole[:-1] + bytes([whole[-1] ^ 1]),
        whole.replace(b"\n1\n", b"\nx\n"),
    ):
        kept.write_bytes(damaged)
        engine = Engine(cache=None, ready=[str(kept.parent)])
        assert results(engine.function("times", times(5))) == [0, 5, 10, 15]
        assert engine.compiled == 1


def test_objects_of_the_file_that_cannot_be_loaded_are_compiled(tmp_path: Path) -> None:
    engine = Engine(cache=None)
    symbol = prebuilt.symbol_of("a processor", "times")
    path = tmp_path / prebuilt.file_name(prebuilt.kind_of(engine.wide, engine.divides))
    prebuilt.write(path, "a processor", {symbol: b"\x7fELF" + bytes(200)}, prebuilt.generator())
    engine = Engine(cache=None, ready=[str(tmp_path)])
    assert results(engine.function("times", times(5))) == [0, 5, 10, 15]


def test_the_package_was_built_with_loops() -> None:
    """For the current generator: an edit of it requires a build (`make .venv-test/native`)."""
    for kind in prebuilt.PROCESSORS:
        found = [Path(folder, prebuilt.file_name(kind)) for folder in mgx_cpu_dnnl.__path__]
        assert [len(prebuilt.PrebuiltLoops(path)) > 500 for path in found if path.is_file()] == [True], kind


NETWORK = """
import sys
import numpy as np
import mgx_core as mgx
from mgx_cpu_dnnl.prebuilt_loops.network import ACTIVATIONS, Network
n = Network()
x = n.layer_norm(n.input(1, 24, 64), 3e-5)
heads = [n.transpose(n.reshape(n.linear(x, 64), 1, 24, 4, 16), 0, 2, 1, 3) for _ in range(3)]
scores = n.each("mul", n.add("dot", heads[0], n.transpose(heads[1], 0, 1, 3, 2)), 0.17)
x = n.add("dot", n.add("softmax", scores, axis=3), heads[2])
x = n.linear(n.reshape(n.transpose(x, 0, 2, 1, 3), 1, 24, 64), 64)
x = n.linear(ACTIVATIONS["gelu"](n, n.linear(n.layer_norm(x), 256)), 64)
image = n.reshape(n.transpose(x, 0, 2, 1), 1, 64, 4, 6)
image = ACTIVATIONS["silu"](n, n.convolution(image, 32, 3))
gate = n.each("sigmoid", n.convolution(n.add("reduce_mean", image, axes=(2, 3)), 32))
program = n.finished(n.add("logsoftmax", n.reshape(n.each("mul", image, gate), 1, 768), axis=1))
program.compile(mgx.get_target("cpu"))
(y,) = program.run({"x1": np.linspace(-2, 2, 1536, dtype=np.float32).reshape(1, 24, 64)})
assert np.isfinite(np.asarray(y)).all()
print(*(name for name in sys.modules if name.startswith("llvmlite")))
"""


WINDOWS = """
import sys
import numpy as np
import mgx_core as mgx
from mgx_cpu_dnnl.prebuilt_loops.network import ACTIVATIONS, Network
n = Network()
q, k, v = (n.input(6, 4, 49, 32) for _ in range(3))
scores = n.each("mul", n.add("dot", q, n.transpose(k, 0, 1, 3, 2)), 0.2)
scores = n.each("add", scores, n.weights(1, 4, 49, 49))
x = n.reshape(n.transpose(n.add("dot", n.add("softmax", scores, axis=3), v), 0, 2, 1, 3), 6, 49, 128)
image = n.reshape(n.transpose(n.reshape(x, 2, 3, 7, 7, 128), 0, 2, 1, 3, 4), 1, 14, 21, 128)
image = n.transpose(image, 0, 3, 1, 2)
mean = n.add("reduce_mean", ACTIVATIONS["silu"](n, n.each("add", image, n.weights(128, 1, 1))), axes=(2, 3))
rows = n.reshape(mean, 1, 128)
unit = n.linear(ACTIVATIONS["tanh"](n, n.each("add", n.linear(rows, 96, False), n.weights(96))), 1)
program = n.finished(unit, n.each("mul", n.input(96), 0.37))
program.compile(mgx.get_target("cpu"))
feeds = {name: np.full(shape.lens(), 0.1, np.float32) for name, shape in program.get_parameter_shapes().items()}
assert all(np.isfinite(np.asarray(y)).all() for y in program.run(feeds))
print(*(name for name in sys.modules if name.startswith("llvmlite")))
"""


OTHERS = """
import sys
import numpy as np
import mgx_core as mgx
from mgx_cpu_dnnl.prebuilt_loops.network import Network
n = Network()
x, y = n.input(3, 40, 70), n.input(40, 1)
near = n.each("exp", n.each("neg", n.each("abs", n.each("sub", n.each("sin", x), y))))
total = n.add("reduce_sum", n.each("mul", near, near), axes=(2,))
mask = n.each("where", n.each("less", x, y), near, n.each("sqrt", n.each("abs", x)))
counts = n.add("reduce_sum", n.add("convert", n.each("less", x, y), target_type=mgx.dtype.of("int64")), axes=(2,))
columns = n.add("reduce_mean", n.each("tanh", n.each("mul", n.each("floor", x), near)), axes=(1,))
program = n.finished(n.each("div", near, total), mask, counts, columns)
program.compile(mgx.get_target("cpu"))
feeds = {k: np.full(s.lens(), 0.1, np.float32) for k, s in program.get_parameter_shapes().items()}
assert all(np.isfinite(np.asarray(y)).all() for y in program.run(feeds))
print(*(name for name in sys.modules if name.startswith("llvmlite")))
"""


@pytest.mark.parametrize("network", [NETWORK, WINDOWS, OTHERS], ids=["layers", "windows", "loops that no other has"])
def test_a_network_of_common_layers_loads_no_compiler(network: str, tmp_path: Path) -> None:
    environment = {**os.environ, "MGX_CACHE_DIR": str(tmp_path)}
    found = subprocess.run([sys.executable, "-c", network], env=environment, capture_output=True, text=True, check=True)
    assert found.stdout.split() == []


@pytest.mark.skipif(
    native().multiplies_tiles() or not has_avx512_vnni(), reason="products of bytes are prebuilt with dot products"
)
@pytest.mark.parametrize("residual", [False, True])
def test_products_of_quantized_files_are_one_loop_at_once(residual: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine(cache=None, ready=list(mgx_cpu_dnnl.__path__))
    monkeypatch.setitem(vars(shared()), "engine", engine)
    monkeypatch.setattr(shared(), "kernels", KernelCache())
    n, r = Network(), np.random.default_rng(0)

    x = n.coded("dequantizelinear", n.input(1, 40, 9, 9, type="uint8"), 0.02, 3)
    weights = n.module.add_literal(r.integers(-127, 128, (72, 40, 1, 1)).astype(np.int8))
    w = n.coded("dequantizelinear", weights, 0.004, 0, "int8")
    y = n.each("add", n.add("convolution", x, w), n.weights(72, 1, 1))
    codes = n.coded("quantizelinear", y, 0.1, 117)
    if residual:
        other = n.coded("dequantizelinear", n.input(1, 72, 9, 9, type="uint8"), 0.03, 0)
        total = n.each("add", n.coded("dequantizelinear", codes, 0.1, 117), other)
        codes = n.coded("quantizelinear", total, 0.2, 9)
    program = n.finished(codes)
    program.compile(CpuTarget())
    (instance,) = program.executable.instances()
    assert BytePlan.kind not in [kind for _, (kind, *_) in instance.runner.program.program.deferred_loops()]
    assert engine.compiled == 0


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_of_samples_are_those_of_networks(name: str) -> None:
    """Each is finite, and 0 or nearly constant there."""
    n = Network()
    program = n.finished(ACTIVATIONS[name](n, n.input(3)))
    program.compile(mgx.get_target("ref"))
    (y,) = program.run({"x1": np.array([-1, 0, 1], np.float32)})
    values = np.asarray(y)
    assert values[0] < values[1] < values[2] or name in (
        "relu",
        "relu6",
        "mish",
        "gelu",
        "gelu tanh",
        "gelu quick",
        "silu",
        "hard swish",
    )
    assert values[2] > 0.4
