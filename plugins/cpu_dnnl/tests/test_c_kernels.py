"""Third-party kernels for the cpu target: a numpy function, and a C function by its address."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core import Kernel, Kernels, Operation, define_op
from mgx_core.ops.scan import PrefixScanSum
from mgx_core.targets.kernel import HostKernel
from mgx_cpu_dnnl.c_compiler import CLibraries
from mgx_cpu_dnnl.c_kernels import c_function_kernel, c_kernel, float_bits
from mgx_cpu_dnnl.target import CpuTarget

SIGNATURE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)


class Extended(CpuTarget):
    """The cpu target with additional plans that are tried first, like those of an installed package."""

    def __init__(self, plans: Kernels) -> None:
        super().__init__()
        self.plans = plans

    def kernels(self, context: Any) -> Kernels:
        return self.plans + super().kernels(context)


def check(make: Callable[[Operation], Kernel]) -> Any:
    plans = Kernels("cpu")

    @plans.plan(PrefixScanSum)
    def plan(op: Operation, inputs: Sequence[Any], context: Any, modules: Sequence[Any] = ()) -> Kernel:
        return make(op)

    program = mgx.Program()
    m = program.get_main_module()
    x = m.add_parameter("x", mgx.shape(type="float32", lens=[3, 40]))
    m.add_return([m.add(mgx.op("relu"), m.add(mgx.op("prefix_scan_sum", axis=1), m.add(mgx.op("add"), x, x)))])
    program.compile(Extended(plans))
    given = np.random.default_rng(1).standard_normal((3, 40)).astype(np.float32)
    wanted = np.maximum(np.cumsum(given + given, axis=1), 0)
    np.testing.assert_allclose(program.run({"x": given})[0].to_numpy(), wanted, rtol=1e-5, atol=1e-5)
    return program.executable.instances()[0].runner


def test_a_numpy_function() -> None:
    calls: list[tuple[int, ...]] = []

    def by_numpy(given: Any) -> Any:
        calls.append(given.shape)
        return np.cumsum(given, axis=1, dtype=np.float32)

    runner = check(lambda op: HostKernel("cumsum by numpy", by_numpy))
    assert calls == [(3, 40)]
    assert [s.name for s in runner.program.hosted] == ["cumsum by numpy"]


def test_a_c_function() -> None:
    rows: list[tuple[int, int]] = []

    @SIGNATURE
    def by_address(buffers: int, args: int, begin: int, end: int, scratch: int) -> None:
        source, target = (ctypes.c_void_p * 2).from_address(buffers)
        n = ctypes.c_int64.from_address(args).value
        for row in range(begin, end):
            x = np.ctypeslib.as_array((ctypes.c_float * n).from_address(source + 4 * n * row))
            y = np.ctypeslib.as_array((ctypes.c_float * n).from_address(target + 4 * n * row))
            np.cumsum(x, out=y)
        rows.append((begin, end))

    address = ctypes.cast(by_address, ctypes.c_void_p).value
    assert address is not None
    runner = check(
        lambda op: c_function_kernel(
            "my cumsum", op, address, lambda s: s[0].lens()[0], lambda s: [s[0].lens()[1]], owner=by_address, grain=3
        )
    )
    assert sum(end - begin for begin, end in rows) == 3
    assert [s.name for s in runner.schedule.steps if "cumsum" in s.name] == ["my cumsum"]
    assert runner.program.hosted == []


@pytest.mark.parametrize(
    ("address", "work", "args", "word"),
    [
        (0, 3, [4], "address must be that of a compiled function, got 0"),
        (1, 2.5, [4], r"work: an integer is required .*, got 2\.5"),
        (1, 3, [0.5], r"args: an integer is required .*, got 0\.5"),
        (1, -1, [4], r"work: an integer from 0 to 2\^63 - 1 is required, got -1"),
        (1, 3, [1 << 63], r"args: an integer from .* is required, got 9223372036854775808"),
        (1, 3, 7, r"from plan 'plan' of package \w+ for target 'cpu', failed: TypeError"),
        ("f", 3, [], r"address must be that of a compiled function, got 'f'"),
    ],
)
def test_arguments_that_a_c_function_cannot_accept(address: int, work: Any, args: list[Any], word: str) -> None:
    with pytest.raises(mgx.MgxError, match=word):
        check(lambda op: c_function_kernel("mine", op, address, lambda s: work, lambda s: args))


def test_a_callable_that_raises_is_named() -> None:
    def broken(shapes: Any) -> int:
        raise KeyError("rows")

    for options in ({"work": broken}, {"work": lambda s: 1, "args": broken}):
        with pytest.raises(mgx.PluginError) as caught:
            check(lambda op, options=options: c_function_kernel("mine", op, 1, **options))
        package = __name__.partition(".")[0]
        assert f"from plan 'plan' of package {package} for target 'cpu', failed: KeyError: 'rows'" in str(caught.value)
        assert "kernel 'mine' of prefix_scan_sum[" in str(caught.value)
        assert isinstance(caught.value.__cause__, KeyError)


TEXT = """
#include <stdint.h>
#include <string.h>

static float twice(float x) { return x + x; }

void cumsum(void *const *buffers, const int64_t *args, int64_t begin, int64_t end, void *scratch) {
  double factor; memcpy(&factor, args + 1, sizeof factor);
  for (int64_t row = begin, n = args[0]; row < end; ++row) {
    float sum = 0;
    for (int64_t i = 0; i < n; ++i) {
      sum += ((const float *)buffers[0])[row * n + i];
      ((float *)buffers[1])[row * n + i] = (float)(twice(sum) * factor);
    }
  }
}
"""


def by_text(text: str = TEXT, **options: Any) -> Callable[[Operation], Kernel]:
    return lambda op: c_kernel(
        "cumsum in C", op, text, lambda s: s[0].lens()[0], lambda s: [s[0].lens()[1], float_bits(0.5)], **options
    )


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """An empty cache directory, and the list of sources that are compiled."""
    texts: list[str] = []
    real = CLibraries._compiled

    def recorded(self: CLibraries, text: str, title: str) -> bytes:
        texts.append(text)
        return real(self, text, title)

    monkeypatch.setenv("MGX_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(CLibraries, "_compiled", recorded)
    return texts


def test_c_source_is_what_runs(compiled: list[str]) -> None:
    runner = check(by_text())
    assert [s.name for s in runner.schedule.steps if "cumsum" in s.name] == ["cumsum in C"]
    assert runner.program.hosted == []


@define_op("acme.weighted")
class Weighted(Operation):
    """x * weight + shift, each optional."""

    def infer(self, x: Any, weight: Any = None, shift: Any = None) -> Any:
        return x.as_standard()

    def compute(self, x: Any, weight: Any = None, shift: Any = None) -> Any:
        return np.full(x.shape, 777, x.dtype)


@pytest.mark.parametrize("validate", [False, True])
def test_absent_operands_are_left_out_of_the_buffers_and_shapes(validate: bool) -> None:
    text = """#include <stdint.h>
    void shifted(void *const *buffers, const int64_t *args, int64_t begin, int64_t end, void *scratch) {
      for (int64_t i = begin; i < end; ++i)
        ((float *)buffers[2])[i] = ((const float *)buffers[0])[i] + ((const float *)buffers[1])[0];
    }"""
    plans, lengths = Kernels("cpu"), []

    def work(shapes: Sequence[Any]) -> int:
        lengths.append([s.lens() for s in shapes])
        return int(shapes[0].elements())

    @plans.plan(Weighted)
    def plan(op: Operation, inputs: Sequence[Any], context: Any) -> Kernel:
        assert inputs[1] is None
        return c_kernel("shifted", op, text, work)

    program = mgx.Program()
    m = program.get_main_module()
    x = m.add_parameter("x", mgx.shape(type="float32", lens=[3]))
    shift = m.add_parameter("shift", mgx.shape(type="float32", lens=[1]))
    m.add_return([m.add(Weighted(), x, m.add_absent(), shift)])
    program.compile(Extended(plans), validate=validate)
    assert program.run({"x": [1, 2, 3], "shift": [10]})[0].tolist() == [11, 12, 13]
    assert lengths == [[[3], [1]]]


def test_a_text_is_compiled_once_and_again_when_it_changes(compiled: list[str]) -> None:
    for _ in range(2):
        check(by_text())
    check(by_text(TEXT + "// another digest"))
    assert compiled == [TEXT, TEXT + "// another digest"]


def test_a_damaged_library_is_compiled_again(compiled: list[str], tmp_path: Path) -> None:
    check(by_text())
    (kept,) = (tmp_path / "c_kernels").iterdir()
    kept.write_bytes(kept.read_bytes()[:-40])
    check(by_text())
    assert len(compiled) == 2


def test_errors_of_the_c_compiler_name_kernel_package_and_line() -> None:
    with pytest.raises(mgx.MgxError) as caught:
        check(by_text(TEXT.replace("sum +=", "total +=")))
    message = str(caught.value)
    assert f"from plan 'plan' of package {__name__.partition('.')[0]} for target 'cpu'" in message
    assert "kernel 'cumsum in C'" in message
    assert "kernel.c:12:" in message
    assert "total" in message


def test_without_a_c_compiler_the_reference_runs_with_a_reason(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    runner = check(by_text(TEXT + "// never compiled"))
    placed = [p for p in runner.schedule.placements if p.op.startswith("prefix_scan_sum")]
    assert "no C compiler was found: $CC, or cc, gcc, clang on the PATH" in "".join(placed[0].refused)


@pytest.mark.parametrize(
    ("text", "entry", "word"),
    [
        ("int x;", "", "it defines none"),
        (TEXT, "cumprod", "named 'cumprod'; it defines cumsum"),
        (
            TEXT + TEXT.replace("cumsum", "other"),
            "",
            "if there are several, name the one to call in `entry`.; it defines cumsum, other",
        ),
    ],
)
def test_texts_without_the_function(text: str, entry: str, word: str) -> None:
    with pytest.raises(mgx.MgxError, match=word):
        check(by_text(text, entry=entry))


def test_a_context_reports_its_loaded_code() -> None:
    target = Extended(Kernels("cpu"))
    context = target.get_context()
    assert "C kernels of packages" not in context.memory()
    context.c_libraries.load(TEXT, "a kernel")
    assert context.memory()["C kernels of packages"].entries == 1


PLACES = {
    "y[60] = 1": "wrote at byte 240 of its result 0, which has 240 bytes",
    "y[-1] = 1": "wrote at byte -4 of its result 0",
    "x[2] = 1": r"wrote at byte (8|9|10|11) of its operand 0",
    "x[61] = 1": "wrote at byte 244 of its operand 0",
    "((float *)scratch)[4] = 1": "wrote at byte 16 of its scratch memory, which has 16 bytes",
}


def copies_and(statement: str) -> mgx.Program:
    text = f"""#include <stdint.h>
void f(void *const *buffers, const int64_t *args, int64_t begin, int64_t end, void *scratch) {{
  float *x = buffers[0], *y = buffers[1];
  for (int64_t i = begin; i < end; i++) y[i] = x[i];
  {statement};
}}"""
    plans = Kernels("cpu")

    @plans.plan(PrefixScanSum)
    def plan(op: Operation, inputs: Sequence[Any], context: Any) -> Kernel:
        return c_kernel("copies", op, text, lambda shapes: shapes[0].elements(), scratch_bytes=16)

    program = mgx.Program()
    m = program.get_main_module()
    x = m.add_parameter("x", mgx.shape(type="float32", lens=[3, 20]))
    m.add_return([m.add(mgx.op("prefix_scan_sum", axis=1), x)])
    program.compile(Extended(plans), validate=True)
    return program


@pytest.mark.parametrize("statement", PLACES)
def test_writes_outside_the_results_are_detected_on_request(statement: str) -> None:
    program = copies_and(statement)
    with pytest.raises(
        mgx.PluginError, match=rf"kernel 'copies' of prefix_scan_sum.* \(in {__name__}\) {PLACES[statement]}"
    ):
        program.run({"x": np.zeros((3, 20), np.float32)})


def test_a_guarded_kernel_is_the_one_that_runs() -> None:
    given = np.arange(60, dtype=np.float32).reshape(3, 20)
    program = copies_and("")
    np.testing.assert_array_equal(program.run({"x": given})[0], given)
    (placed,) = program.executable.instances()[0].placements
    assert (placed.place, placed.kernel) == ("target", "copies")


def numpy_program(function: Callable[[Any], Any]) -> mgx.Program:
    plans = Kernels("cpu")
    plans.plan(PrefixScanSum)(lambda op, inputs, context: HostKernel("by numpy", function))
    program = mgx.Program()
    m = program.get_main_module()
    x = m.add_parameter("x", mgx.shape(type="float32", lens=[3]))
    m.add_return([m.add(mgx.op("prefix_scan_sum", axis=0), m.add(mgx.op("neg"), x))])
    program.compile(Extended(plans), validate=True)
    return program


def test_a_numpy_function_that_overwrites_its_operand_is_detected_on_request() -> None:
    def scribbles(x: Any) -> Any:
        x += 1
        return np.cumsum(x)

    program = numpy_program(scribbles)
    with pytest.raises(mgx.PluginError, match=r"kernel 'by numpy' of prefix_scan_sum.* wrote into its operand 0"):
        program.run({"x": np.zeros(3, np.float32)})
