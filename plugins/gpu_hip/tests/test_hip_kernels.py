"""Third-party kernels: HIP source, Python functions, and messages for invalid ones."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import mgx_core as mgx
import mgx_gpu_hip
from mgx_core import HostKernel, Kernel, Kernels, Operation, OpSet, Shape, define_op
from mgx_core.plugins import manager as plugins
from mgx_core.types.dim import symbol
from mgx_gpu_hip.compile import build as builder
from mgx_gpu_hip.compile.build import KernelCache
from mgx_gpu_hip.compile.gxx import HostCompiler
from mgx_gpu_hip.guarded import GuardedTarget
from mgx_gpu_hip.hip_kernels import hip_kernel
from mgx_gpu_hip.target import GpuTarget


@define_op("acme.row_sums")
class RowSums(Operation):
    """Sums along the last axis and their count; the reference is deliberately wrong, so that results show whether a kernel
    ran.
    """

    factor: float = 1.0

    def infer(self, x: Shape) -> Any:
        return Shape.of(x.dtype, x.dims[:-1])

    def compute(self, x: Any) -> Any:
        return np.full(x.shape[:-1], 777, x.dtype)


TEXT = """extern "C" __global__ void row_sums(const float* x, float* y, float* partial, int rows, long long n, float factor) {
  __shared__ float sums[64];
  for (int row = blockIdx.x; row < rows; row += gridDim.x) {
    float sum = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x) sum += x[row * n + i];
    sums[threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
      for (int i = 1; i < 64; ++i) sum += sums[i];
      partial[row] = sum;
      y[row] = partial[row] * factor;
    }
    __syncthreads();
  }
}
"""


def by_text(text: str = TEXT, **options: Any) -> Any:
    def plan(op: Any, inputs: Sequence[Shape], context: Any) -> Kernel:
        return hip_kernel(
            "row sums by acme",
            op,
            text,
            **{
                "grid": lambda shapes: min(shapes[0].lens()[0], 4),
                "block": 64,
                "args": lambda shapes: [*shapes[0].lens(), op.factor],
                "scratch": lambda shapes: [4 * shapes[0].lens()[0]],
                **options,
            },
        )

    return plan


def target(plan: Any, op: type[Operation] = RowSums, kind: type[GpuTarget] = GpuTarget) -> GpuTarget:
    plans = Kernels("gpu")
    plans.plan(op)(plan)

    class Extended(kind):  # type: ignore[misc, valid-type]
        def kernels(self, context: Any) -> Kernels:
            return plans + super().kernels(context)

    return Extended("host", 1) if kind is GpuTarget else Extended()


def compiled(
    plan: Any, dims: Sequence[Any] = (6, 100), dtype: str = "float32", kind: type[GpuTarget] = GpuTarget, **options: Any
) -> mgx.Program:
    program = mgx.Program()
    m = program.get_main_module()
    x = m.add_parameter("x", Shape.of(mgx.dtype.of(dtype), dims))
    y = m.add(RowSums(factor=0.5), m.add(mgx.op("transpose", permutation=[1, 0]), x))
    m.add_return([m.add(mgx.op("add"), y, y)])
    program.compile(target(plan, kind=kind), **options)
    return program


def given(*dims: int) -> Any:
    return np.random.default_rng(3).standard_normal(dims).astype(np.float32)


def placement(program: mgx.Program) -> Any:
    (found,) = [p for p in program.executable.instances()[-1].placements if p.op.startswith("acme.")]
    return found


def test_numbers_computed_from_changing_extents_are_arguments_of_one_program() -> None:
    program = compiled(by_text(), dims=(symbol("m", 0, 999), symbol("n", 0, 999)))
    for n, m in ((5, 6), (7, 9), (11, 12), (13, 14), (30, 40), (8, 100), (90, 7)):
        x = given(m, n)
        (y,) = program.run({"x": x})
        np.testing.assert_allclose(y.to_numpy(), x.sum(0), rtol=1e-4, atol=1e-4)
    made: Any = program.executable
    assert made._changing._open and any("acme" in p.kernel for p in made._changing._open[0].program.placements)


def test_the_text_is_what_runs() -> None:
    x = given(6, 100)
    program = compiled(by_text())
    np.testing.assert_allclose(program.run({"x": x})[0].to_numpy(), x.sum(0), rtol=1e-5)
    assert (placement(program).place, placement(program).kernel) == ("target", "row sums by acme")
    assert "row sums by acme" in [s.name for s in program.executable.instances()[0].runner.schedule.steps]


def test_other_extents_compile_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    program = compiled(by_text(), (mgx.dim.symbol("n", 1, 50), mgx.dim.symbol("m", 1, 200)))
    texts: set[str] = set()
    real = builder.build

    def recorded(sources: Any, *args: Any, **options: Any) -> Any:
        texts.update(s.text for s in sources if s.name == "row_sums")
        return real(sources, *args, **options)

    monkeypatch.setattr("mgx_gpu_hip.runner.build", recorded)
    for dims in ((6, 100), (7, 30), (1, 1)):
        x = given(*dims)
        np.testing.assert_allclose(program.run({"x": x})[0].to_numpy(), x.sum(0), rtol=1e-5, atol=1e-5)
    assert len(texts) == 1


@pytest.mark.parametrize("declared", ["alignas(16) __shared__ float", "__shared__ alignas(16) float"])
def test_aligned_shared_memory(declared: str) -> None:
    program = compiled(by_text(TEXT.replace("__shared__ float", declared)), (5, 9))
    x = given(5, 9)
    np.testing.assert_allclose(program.run({"x": x})[0].to_numpy(), x.sum(0), rtol=1e-5, atol=1e-6)


def test_alignment_comes_before_other_attributes() -> None:
    """As required by clang 17, the compiler of ROCm 6.0; later versions and NVRTC accept either order."""
    texts = [p for p in Path(mgx_gpu_hip.__file__).parent.rglob("*") if p.suffix in (".h", ".hip", ".py")]
    assert len(texts) > 50
    found = [p.name for p in texts if re.search(r"__\w+__ +alignas", p.read_text())]
    assert not found


@pytest.mark.parametrize("declared", ["extern __shared__ float sums[];", "alignas(16) extern __shared__ float sums[];"])
def test_dynamic_shared_memory(declared: str) -> None:
    text = TEXT.replace("__shared__ float sums[64];", declared)
    x = given(5, 9)
    program = compiled(by_text(text, shared_bytes=lambda shapes: 256), (5, 9))
    np.testing.assert_allclose(program.run({"x": x})[0].to_numpy(), x.sum(0), rtol=1e-5, atol=1e-6)


def test_strides_reach_a_text_that_asks_for_them() -> None:
    text = TEXT.replace("x[row * n + i]", "x[row + i * rows]")
    x = given(6, 100)
    program = compiled(by_text(text, row_major=False))
    np.testing.assert_allclose(program.run({"x": x})[0].to_numpy(), x.sum(0), rtol=1e-5)


def test_a_saved_program_contains_its_code(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    plans = Kernels("gpu")
    plans.plan(RowSums)(by_text())
    plugin: Any = ModuleType("acme_plugin")
    plugin.make, plugin.plans, plugin.ops = lambda: GpuTarget("host", 1), plans, OpSet.of(RowSums)
    plugin.targets = mgx.hookimpl(lambda: [mgx.Lazy("gpu", "acme_plugin:make")])
    plugin.operations = mgx.hookimpl(lambda: [mgx.Lazy("acme", "acme_plugin:ops")])
    plugin.kernels = mgx.hookimpl(lambda target: [mgx.Lazy("acme", "acme_plugin:plans")])
    monkeypatch.setitem(sys.modules, "acme_plugin", plugin)
    manager = plugins.Plugins(discover=False)
    manager.register(plugin, "acme_plugin")
    monkeypatch.setattr(plugins, "_manager", [manager])
    x = given(6, 100)
    compiled(by_text()).save(tmp_path / "p.mxr")
    monkeypatch.setattr(HostCompiler, "compile", lambda *args: pytest.fail("compiled again"))
    monkeypatch.setattr(KernelCache, "get", lambda self, key: None)
    program = mgx.load(tmp_path / "p.mxr")
    np.testing.assert_allclose(program.run({"x": x})[0].to_numpy(), x.sum(0), rtol=1e-5)
    assert placement(program).kernel == "row sums by acme"


def test_an_architecture_that_is_not_here() -> None:
    pytest.importorskip("ziglang")
    program = compiled(by_text(), target="gfx90a")
    runner = program.executable.instances()[0].runner
    (code,) = [c for c in runner.codes if c.name == "row_sums"]
    assert code.image[:4] == b"\x7fELF"


def test_compiler_errors_name_the_kernel_the_package_and_the_line() -> None:
    wrong = TEXT.replace("sum += x[", "sum += z[")
    with pytest.raises(mgx.MgxError, match=r"kernel 'row sums by acme' of package .*acme\.row_sums.*:5:.*error.*z"):
        compiled(by_text(wrong))


@pytest.mark.parametrize("kind", [GpuTarget, GuardedTarget])
def test_errors_of_a_kernel_name_the_kernel_the_package_and_the_op(kind: type[GpuTarget]) -> None:
    wrong = TEXT.replace("y[row] = partial[row]", "y[row] = *(float*)0")
    program = compiled(by_text(wrong), kind=kind)
    package = __name__.partition(".")[0]
    with pytest.raises(mgx.DeviceError) as error:
        program.run({"x": given(6, 100)})
    assert f"kernel 'row sums by acme' of package {package} for acme.row_sums[factor=0.5]" in str(error.value)
    assert "no node" not in str(error.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"args": lambda shapes: [1]}, "must take 3 pointers .1 operand, 1 result, 1 scratch. and then 1 number,"),
        ({"text": TEXT.replace("const float* x", "const double* x")}, "x must point to float, got double"),
        ({"text": "void row_sums() {}"}, "must have one function .* it has none"),
        ({"entry": "other"}, "named 'other'; it has row_sums"),
        ({"grid": lambda shapes: 2.5}, "grid must return non-negative integers, got"),
        ({"grid": lambda shapes: [1, 2, 3, 4]}, "grid must have one to three extents"),
        (
            {"grid": lambda shapes: {}["rows"]},
            r"from plan 'plan' of package \w+ for target 'gpu', failed: KeyError: 'rows'",
        ),
        ({"args": lambda shapes: [1.5, 2, 3]}, "args must return a number of type int for rows, got 1.5"),
        ({"args": lambda shapes: [1 << 40, 2, 3]}, "args must return a number of type int for rows, got 1099511627776"),
        ({"args": lambda shapes: None}, r"from plan 'plan' of package \w+ for target 'gpu', failed: TypeError"),
        ({"scratch": lambda shapes: ["x"]}, "scratch must return non-negative integers"),
        ({"shared_bytes": lambda shapes: -1}, "shared_bytes must return non-negative integers, got .-1."),
        ({"block": 2048}, "a block must have 1 to 1024 threads, got 2048"),
        ({"grid": 4}, "grid must be a function of the operands' shapes, got 4"),
    ],
)
def test_a_text_that_does_not_fit_is_refused_by_name(change: dict[str, Any], message: str) -> None:
    with pytest.raises(mgx.MgxError, match=message) as error:
        compiled(by_text(**change))
    assert "row sums by acme" in str(error.value)


@define_op("acme.scaled")
class Scaled(Operation):
    """x, times an optional factor."""

    def infer(self, x: Shape, factor: Shape | None = None) -> Any:
        return x.as_standard()

    def compute(self, x: Any, factor: Any = None) -> Any:
        return np.full(x.shape, 777, x.dtype)


@pytest.mark.parametrize("absent", ["omitted", "absent", "present"])
def test_the_address_of_an_absent_operand_is_0(absent: str) -> None:
    text = """extern "C" __global__ void scaled(const float* x, const float* factor, float* y, int n) {
      int i = blockIdx.x * blockDim.x + threadIdx.x;
      if (i < n) y[i] = x[i] * (factor ? factor[0] : 5.0f);
    }"""
    seen: list[bool] = []

    def size(shapes: Sequence[Shape | None]) -> list[int]:
        x, factor = shapes
        seen.append(factor is not None)
        assert x is not None
        return [x.elements()]

    def plan(op: Any, inputs: Sequence[Shape], context: Any) -> Kernel:
        return hip_kernel("scaled by acme", op, text, grid=lambda shapes: 1, args=size)

    program = mgx.Program()
    m = program.get_main_module()
    x = m.add_parameter("x", Shape.of(mgx.dtype.float32, [3]))
    if absent == "omitted":
        y = m.add(Scaled(), x)
    else:
        y = m.add(Scaled(), x, m.add_absent() if absent == "absent" else m.add_literal(np.float32([2])))
    m.add_return([y])
    program.compile(target(plan, Scaled))
    wanted = 2 if absent == "present" else 5
    assert program.run({"x": np.float32([1, 2, 3])})[0].tolist() == [wanted, 2 * wanted, 3 * wanted]
    assert set(seen) == {absent == "present"}


def test_a_python_function_is_a_visible_step_on_the_host() -> None:
    x = given(6, 100)
    program = compiled(
        lambda op, inputs, context: HostKernel("numpy by acme", lambda x: x.sum(-1) * np.float32(op.factor))
    )
    np.testing.assert_allclose(program.run({"x": x})[0].to_numpy(), x.sum(0), rtol=1e-5)
    assert (placement(program).place, placement(program).kernel) == ("host", "numpy by acme")
    assert [s.name for s in program.executable.instances()[0].runner.hosted] == ["numpy by acme"]


def test_a_plan_of_another_package_comes_before_ours() -> None:
    plan = lambda op, inputs, context: HostKernel("argmax by acme", lambda x: np.full((4, 1), 7))  # noqa: E731
    program = mgx.Program()
    m = program.get_main_module()
    x = m.add_parameter("x", Shape("float32", [4, 5]))
    m.add_return([m.add(mgx.op("argmax", axis=1), x)])
    program.compile(target(plan, type(mgx.op("argmax"))))
    assert (program.run({"x": given(4, 5)})[0].to_numpy() == 7).all()


def test_a_fault_reports_the_kernel_the_node_and_what_is_lost() -> None:
    wide = TEXT.replace("partial[row] = sum;", "partial[row] = ldv<float, 4>(x + 1).v[0];")
    program = mgx.Program()
    m = program.get_main_module()
    made = m.add(mgx.op("exp"), m.add_parameter("x", Shape("float32", [6, 100])))
    rows = m.add(RowSums(factor=0.5), made)
    rows.sources = ("block.3/sums",)
    m.add_return([rows])
    program.compile(target(by_text(wide)))
    with pytest.raises(mgx.DeviceError) as caught:
        program.run({"x": given(6, 100)})
    text = str(caught.value)
    assert (
        "row sums by acme" in text and "'block.3/sums'" in text and "Misaligned" in text and "context is lost" in text
    )
