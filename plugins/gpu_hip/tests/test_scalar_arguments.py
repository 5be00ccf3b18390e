"""Scalars as kernel arguments: layers that differ in scales share a kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mgx_core as mgx
from mgx_gpu_hip.codegen.scalar_arguments import scalar_arguments
from mgx_gpu_hip.target import GpuTarget

TEXT = """DEV float f(float x) {
  return x * 0.3f;
}
KERNEL(64) one(const float* p0, u32 chained) {
  p0[0] * 0.3f + (-0.7f) * 1.5f + 0.3f + 448.0f + 0.125f + 1e-05f + 0.7 + x0.3f;
}
KERNEL(64, 2) CLUSTER(8) other(u32 chained) {
  m::max(0.1f, 1e+38f);
}
"""


def test_numbers_of_a_kernel_become_its_parameters() -> None:
    """Numbers that layers have in common stay: whole ones, halves, powers of two; functions take no arguments."""
    text, values = scalar_arguments(TEXT)
    assert values == {"one": [*map(float32, (0.3, 0.7, 1e-5))], "other": [float32(0.1)]}
    first, one, other = text.split("KERNEL")
    assert first == TEXT.split("KERNEL", maxsplit=1)[0]
    assert one.splitlines()[:2] == [
        "(64) one(const float* p0, u32 chained, float scalar0, float scalar1, float scalar2) {",
        "  p0[0] * scalar0 + (-scalar1) * 1.5f + scalar0 + 448.0f + 0.125f + scalar2 + 0.7 + x0.3f;",
    ]
    assert other.splitlines()[:2] == [
        "(64, 2) CLUSTER(8) other(u32 chained, float scalar0) {",
        "  m::max(scalar0, 1e+38f);",
    ]


def float32(value: float) -> float:
    return float(np.float32(value))


@pytest.mark.parametrize("of", ["int8", "float8_e4m3fn"])
def test_products_that_differ_in_scales_share_a_kernel(of: str) -> None:
    rng = np.random.default_rng(0)
    a, w = (rng.integers(-3, 4, s).astype(mgx.dtype.of(of).numpy) for s in ((40, 64), (64, 48)))
    texts, results = set(), []
    for factor, step in ((0.37, 0.21), (0.013, 0.0034)):
        program = mgx.Program()
        m = program.get_main_module()
        x = m.add_parameter("x", mgx.Shape(of, [40, 64]))
        total: Any = m.add(mgx.op("quant_dot"), x, m.add_literal(w))
        total = m.add(mgx.op("convert", target_type="float32"), total)
        scale = m.add(mgx.op("multibroadcast", out_lens=(40, 48)), m.add_literal(np.float32(factor)))
        made = m.add(mgx.op("mul"), total, scale)
        m.add_return([m.add(mgx.op("quantizelinear", out_type=of), made, m.add_literal(np.float32(step)))])
        wanted = program.clone()
        wanted.compile(mgx.get_target("ref"))
        program.compile(GpuTarget("host", 1))
        assert program.executable is not None
        (kernel,) = program.executable.instances()[0].runner.schedule.steps
        texts.add(kernel.source.text)
        got, expected = (p.run({"x": a})[0].to_numpy().astype(np.float32) for p in (program, wanted))
        np.testing.assert_array_equal(got, expected)
        results.append(got)
    assert len(texts) == 1
    assert not np.array_equal(*results)
