"""The guarded target detects faults inside the arena; programs with odd extents run without any."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core import DeviceError, Kernels, Operation, Shape, define_op
from mgx_gpu_hip.guarded import BackwardsTarget, GuardedTarget
from mgx_gpu_hip.hip_kernels import hip_kernel
from mgx_gpu_hip.target import GpuTarget

NEGATIVES = """KERNEL(64) negatives(const float* x, float* out, int n) {{
  const int i = blockIdx.x * 64 + threadIdx.x;
  if (i < n) {WRITE};
}}"""
RIGHT = "out[i] = -x[i]"


@define_op("guarded_tests.negatives")
class Negatives(Operation):
    """-x, which is not fused.  x: float32 -> the same shape."""

    def infer(self, x: Shape) -> Shape:
        return x.as_standard()

    def compute(self, x: Any) -> Any:
        return -x


def negatives(write: str, more: int = 0) -> Kernels:
    """A kernel for the op that accesses `more` elements than its value has."""
    plans = Kernels("gpu")

    @plans.plan(Negatives)
    def plan(op: Any, inputs: Any, context: Any) -> Any:
        return hip_kernel(
            "negatives", op, NEGATIVES.format(WRITE=write), grid=lambda shapes: 1, block=64,
            args=lambda shapes: [shapes[0].elements() + more],
        )  # fmt: skip

    return plans


def run(target: GpuTarget) -> Any:
    """tanh, then the op on its middle row, then tanh: the op's operand and result are in the arena."""
    program = mgx.Program()
    m = program.get_main_module()
    x = m.add_parameter("x", Shape("float32", [3, 12]))
    y = m.add(mgx.op("contiguous"), m.add(mgx.op("slice", axes=[0], starts=[1], ends=[2]), m.add(mgx.op("tanh"), x)))
    m.add_return([m.add(mgx.op("tanh"), m.add(Negatives(), y))])
    program.compile(target)
    given = np.linspace(-1, 1, 36, dtype=np.float32).reshape(3, 12)
    return given, program.run({"x": given})[0].to_numpy()


def with_kernel(target: GuardedTarget, write: str = RIGHT, more: int = 0) -> GuardedTarget:
    found = negatives(write, more) + target.kernels(None)
    target.kernels = lambda context: found  # type: ignore[method-assign]
    return target


@pytest.mark.parametrize("made", [GuardedTarget, BackwardsTarget])
def test_a_right_kernel_passes(made: type[GuardedTarget]) -> None:
    given, got = run(with_kernel(made()))
    np.testing.assert_allclose(got, np.tanh(-np.tanh(given[1:2])), rtol=1e-5)


@pytest.mark.parametrize(
    ("write", "more", "said"),
    [
        ("out[i] = -x[i]", 1, "out of bounds"),
        ("out[i] = -(i ? x[i] : x[i - 1024])", 0, "out of bounds"),
        ("if (i) out[i] = -x[i]", 0, "result 0 depends on uninitialized memory"),
        ("out[i] = -x[i], const_cast<float*>(x)[i] = 1.f", 0, "that may only be read now"),
    ],
)
def test_a_fault_inside_the_arena_is_found_and_named(write: str, more: int, said: str) -> None:
    """The normal target runs the same kernels without an error: the accesses stay inside its single allocation."""
    with pytest.raises(DeviceError, match=rf"kernel '?negatives.*{said}|{said}.*kernel '?negatives"):
        run(with_kernel(GuardedTarget(1), write, more))


def test_memory_that_the_schedule_does_not_name_may_not_be_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    from mgx_gpu_hip.emitter import GpuEmitter

    add = GpuEmitter.add

    def forgetful(self: Any, step: Any) -> None:
        if step.name.startswith("negatives"):
            step.reads = []
        add(self, step)

    monkeypatch.setattr(GpuEmitter, "add", forgetful)
    with pytest.raises(DeviceError, match="that may not be touched now"):
        run(with_kernel(GuardedTarget(1)))
