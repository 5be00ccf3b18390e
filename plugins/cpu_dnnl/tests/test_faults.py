"""Failures have clear messages, and the program remains usable afterwards."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mgx_core as mgx
from mgx_cpu_dnnl.native_library import native
from mgx_cpu_dnnl.shared import shared
from mgx_cpu_dnnl.target import CpuTarget


def outer(names: tuple[str, str] = ("n", "m")) -> mgx.Program:
    """x [n, 1] + y [1, m] -> [n, m], through tanh."""
    program = mgx.Program()
    m = program.get_main_module()
    n, k = (mgx.dim.symbol(name, 1, 1 << 40) for name in names)
    x = m.add_parameter("x", mgx.Shape("float32", [n, 1]))
    y = m.add_parameter("y", mgx.Shape("float32", [1, k]))
    wide = [m.add(mgx.op("multibroadcast", out_lens=[n, k]), v) for v in (x, y)]
    m.add_return([m.add(mgx.op("tanh"), m.add(mgx.op("add"), *wide))])
    program.compile(CpuTarget())
    return program


def run(program: mgx.Program, n: int, m: int) -> Any:
    given = {"x": np.ones((n, 1), np.float32), "y": np.ones((1, m), np.float32)}
    return program.run(given)[0].to_numpy()


def test_a_result_larger_than_memory() -> None:
    program = outer()
    assert run(program, 3, 4).shape == (3, 4)
    with pytest.raises(mgx.DeviceError, match=r"memory|bytes"):
        run(program, 1 << 22, 1 << 22)
    np.testing.assert_allclose(run(program, 5, 6), np.tanh(np.float32(2)), rtol=1e-6)


STARVED = """
import resource, sys
import numpy as np
sys.path.insert(0, sys.argv[1])
from test_faults import outer, run
import mgx_core as mgx

program = outer()
run(program, 64, 64)
with open("/proc/self/statm") as file:
    used = int(file.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (256 << 20), resource.RLIM_INFINITY))
for _ in range(3):
    try:
        run(program, 1 << 14, 1 << 14)
    except mgx.DeviceError as error:
        print("refused:", error)
    else:
        sys.exit("1 GiB was found where there is none")
    assert abs(float(run(program, 64, 64)[0, 0]) - 0.9640276) < 1e-6
print("alive")
"""


def test_memory_that_the_system_refuses() -> None:
    command = [sys.executable, "-W", "ignore", "-c", STARVED, str(Path(__file__).parent)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("refused: ") == 3
    assert done.stdout.endswith("alive\n")
    assert "memory" in done.stdout


# The C library reads the size of threads' stacks when a process starts; larger than what the limit leaves, none can be created.
THREADLESS = """
import os, resource, sys
if sys.argv[-1] != "again":
    resource.setrlimit(resource.RLIMIT_STACK, (4 << 30, resource.getrlimit(resource.RLIMIT_STACK)[1]))
    os.execv(sys.executable, [*sys.orig_argv, "again"])
sys.path.insert(0, sys.argv[1])
import numpy as np
from test_native_thread_scheduler import PICKED, WIDTH, gather, n

n.set_threads(4)
with open("/proc/self/statm") as file:
    used = int(file.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 30), resource.RLIM_INFINITY))
program, table = gather(steps=8)
rows = np.arange(PICKED, dtype=np.int64)
(out,) = program.run_arrays([rows])
np.testing.assert_array_equal(out, table[rows])
print("alive")
"""


def test_threads_that_the_system_refuses() -> None:
    command = [sys.executable, "-W", "ignore", "-c", THREADLESS, str(Path(__file__).parent)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "alive\n"), done.stderr


def test_a_loop_that_does_not_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(self: Any, text: str) -> bytes:
        raise RuntimeError("LLVM is out of sorts")

    def build() -> mgx.Program:
        program = mgx.Program()
        m = program.get_main_module()
        x = m.add_parameter("x", mgx.Shape("float64", [3, 5, 7]))
        y = m.add(mgx.op("atanh"), m.add(mgx.op("sin"), m.add(mgx.op("mul"), x, x)))
        m.add_return([m.add(mgx.op("cosh"), y)])
        program.compile(CpuTarget())
        return program

    engine = shared().engine
    monkeypatch.setattr(engine, "_cache", None)
    monkeypatch.setattr(type(engine), "emit_object", fails)
    with pytest.raises(mgx.DeviceError, match="LLVM is out of sorts"):
        build()
    # neither silently ignored nor a call to address 0
    with pytest.raises(mgx.DeviceError, match="LLVM is out of sorts"):
        build()
    monkeypatch.undo()
    x = np.random.default_rng(0).random((3, 5, 7)) * 0.5
    np.testing.assert_allclose(build().run({"x": x})[0].to_numpy(), np.cosh(np.arctanh(np.sin(x * x))), rtol=1e-13)


def test_other_shapes_go_on_where_one_does_not_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    program = mgx.Program()
    m = program.get_main_module()
    x = m.add_parameter("x", mgx.Shape("float32", [mgx.dim.symbol("n", 1, 4096), 3]))
    m.add_return([m.add(mgx.op("reduce_sum", axes=[0]), m.add(mgx.op("asinh"), x))])
    program.compile(CpuTarget())
    small = np.ones((2, 3), np.float32)
    wanted = program.run({"x": small})[0].to_numpy()

    def fails(self: Any, text: str) -> bytes:
        raise MemoryError

    engine = shared().engine
    monkeypatch.setattr(engine, "_cache", None)
    monkeypatch.setattr(type(engine), "emit_object", fails)
    refused = 0
    for n in (7, 64, 300, 4096):  # some share code
        try:
            program.run({"x": np.ones((n, 3), np.float32)})
        except mgx.DeviceError:
            refused += 1
        np.testing.assert_array_equal(program.run({"x": small})[0].to_numpy(), wanted)
    assert refused
    monkeypatch.undo()
    for n in (7, 64, 300, 4096):
        got = program.run({"x": np.ones((n, 3), np.float32)})[0].to_numpy()
        np.testing.assert_allclose(got, n * np.arcsinh(1.0), rtol=1e-5)


def test_code_for_another_processor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = outer()
    wanted = run(program, 4, 9)
    monkeypatch.setattr(CpuTarget, "machine", lambda self, context: "a processor with AVX-1024")
    program.save(tmp_path / "other.mxr")
    monkeypatch.undo()
    loaded = mgx.load(tmp_path / "other.mxr")
    np.testing.assert_array_equal(run(loaded, 4, 9), wanted)
    assert any("AVX-1024" in note for note in loaded.executable.notes)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"x": np.ones((2, 1), np.float32)}, "'y'.*missing"),
        ({"x": np.ones((2, 1), np.float64), "y": np.ones((1, 2), np.float32)}, "'x' must be float32"),
        ({"x": np.ones((2, 2), np.float32), "y": np.ones((1, 2), np.float32)}, "'x'"),
        ({"x": np.ones((2,), np.float32), "y": np.ones((1, 2), np.float32)}, "'x' must be"),
        ({"x": "text", "y": np.ones((1, 2), np.float32)}, "'x'"),
        ({"x": np.ones((2, 1), np.float32), "y": np.ones((1, 2), np.float32), "z": np.ones(1)}, "no parameter 'z'"),
    ],
)
def test_wrong_values(given: dict[str, Any], message: str) -> None:
    program = outer()
    with pytest.raises(mgx.ParameterError, match=message):
        program.run(given)
    assert run(program, 2, 2).shape == (2, 2)


def test_wrong_buffers_of_a_native_program() -> None:
    program = native().NativeProgram("wrong", 64)
    source, target = program.input(np.float32, [4]), program.output(np.float32, [4])
    program.add_loop("copy", native().native_loop("copy_4"), None, [source, target], [1, 4, 1, 1], 4)
    program.finish()
    x = np.arange(4, dtype=np.float32)
    for wrong in ([], [x, x], [x.astype(np.float64)], [x[:3]], [None], [x.reshape(2, 2)]):
        with pytest.raises(mgx.ParameterError):
            program.run_arrays(wrong)
    with pytest.raises(mgx.ParameterError):
        program.run([x.ctypes.data], [])
    np.testing.assert_array_equal(program.run_arrays([x])[0], x)
