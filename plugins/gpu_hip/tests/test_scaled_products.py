"""Products of 8-bit floats passed to a BLAS library: what it is asked for, and what it is not."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core import Shape
from mgx_core import dtype as dt
from mgx_core.errors import Refused
from mgx_core.ops.control import Group
from mgx_core.ops.quantized_product import QuantDot
from mgx_gpu_hip.emitter import GpuEmitter
from mgx_gpu_hip.kernel import GpuKernel
from mgx_gpu_hip.plans import PLANS, scaled_products
from mgx_gpu_hip.target import GpuTarget
from mgx_gpu_hip.tuning import TimedPlan

ROWS, TERMS, COLUMNS = 20, 32, 48


class Tuner:
    """Has a plan for every product."""

    budget = 1

    def gemm(self, problem: Any, compiled: bool, exhaustive: bool) -> TimedPlan:
        assert not compiled
        plan = SimpleNamespace(name=str(problem), problem=problem, workspace=0, choice={"library": "stand-in"})
        return TimedPlan.of(plan, 1.0)


def emitter(measured: bool = True) -> GpuEmitter:
    context = GpuTarget().get_context()
    context.compile_for("sm_90")
    vars(context).update(libraries=object(), tuner=Tuner())
    return GpuEmitter(PLANS, context, measured=measured)


def group(scale: Any, *steps: str, to: Any = dt.float16, of: Any = dt.float8_e4m3fn) -> Any:
    """Returns the group that a program of a product, its scale and these steps becomes."""
    program = mgx.Program()
    m = program.get_main_module()

    def wide(values: Any) -> Any:
        return m.add(mgx.op("multibroadcast", out_lens=[2, ROWS, COLUMNS]), m.add_literal(values))

    x = m.add_parameter("x", Shape(of, [2, ROWS, TERMS]))
    sums = m.add(QuantDot(), x, m.add_literal(np.ones((TERMS, COLUMNS), of.numpy)))
    if of.is_integer:
        sums = m.add(mgx.op("convert", target_type=dt.float32), sums)
    y = m.add(mgx.op("convert", target_type=to), m.add(mgx.op("mul"), sums, wide(scale)))
    for n, step in enumerate(steps):
        if step == "bias":
            y = m.add(mgx.op("add"), y, wide(np.arange(COLUMNS, dtype=np.float32).astype(to.numpy)))
        elif step == "residual":
            y = m.add(mgx.op("add"), y, m.add_parameter(f"r{n}", Shape(to, [2, ROWS, COLUMNS])))
        else:
            y = m.add(mgx.op(step), y)
    m.add_return([y])
    program.compile(GpuTarget("host", 1))
    return next(i for i in program.executable.module if isinstance(i.op, Group) or i.modules)


def emitted(ins: Any, e: GpuEmitter) -> Any:
    """Returns the only step."""
    values = [
        e.literal(i.get_literal().to_numpy()) if i.is_literal else e.input(i.shape, n) for n, i in enumerate(ins.inputs)
    ]
    made = scaled_products.emit_group(e, ins.op, ins.modules, values)
    assert made.lens == [2, ROWS, COLUMNS]
    (step,) = e.steps
    return step


FACTORS = np.linspace(0.5, 2.0, COLUMNS, dtype=np.float32)


@pytest.mark.parametrize("to", [dt.float16, dt.bfloat16], ids=str)
def test_factors_per_column_are_vectors_of_the_library(to: Any) -> None:
    """Its vectors are per row and per column: those of rows are ones."""
    step = emitted(group(FACTORS, "bias", "residual", "relu", to=to), emitter())
    p = step.plan.problem
    assert (p.m, p.n, p.k, p.scaled, p.alpha) == (2 * ROWS, COLUMNS, TERMS, True, 1.0)
    assert (p.a.transposed, p.b.transposed, p.d.dtype) == (False, True, to)
    assert [str(s) for s in p.epilogue] == ["bias", "residual", "relu"]
    assert p.bias_dtype is to and p.residual.dtype is to
    np.testing.assert_array_equal(step.operands["b_scale"].buffer.array, FACTORS)
    np.testing.assert_array_equal(step.operands["a_scale"].buffer.array, np.ones(2 * ROWS, np.float32))
    assert step.operands["bias"].lens == [COLUMNS]


def test_one_factor_is_the_scale_of_the_product() -> None:
    step = emitted(group(np.float32(0.25), "bias"), emitter())
    p = step.plan.problem
    assert (p.scaled, p.alpha) == (False, 0.25)
    assert set(step.operands) == {"a", "b", "d", "bias"}


def test_it_is_only_tried_where_kernels_are_timed() -> None:
    made = group(FACTORS, "bias")
    with pytest.raises(Refused, match="timed"):
        emitted(made, emitter(measured=False))
    spent = emitter()
    spent.context.tuner.budget = 0
    with pytest.raises(Refused, match="timed"):
        emitted(made, spent)


def test_weights_with_more_batches_than_the_left_operand_are_declined() -> None:
    e = emitter()
    x = e.input(Shape(dt.float8_e4m3fn, [1, ROWS, TERMS]), 0)
    w = e.literal(np.ones((TERMS, COLUMNS), dt.float8_e4m3fn.numpy))
    repeated = w.view_at(0, Shape(dt.float8_e4m3fn, [3, TERMS, COLUMNS], [0, COLUMNS, 1]))
    with pytest.raises(Refused, match="broadcast"):
        scaled_products.emit_single(e, QuantDot(), (), [x, repeated])


def test_bytes_are_declined() -> None:
    for of, offered in ((dt.float8_e4m3fn, True), (dt.int8, False)):
        shapes = [Shape(of, [ROWS, TERMS]), Shape(of, [TERMS, COLUMNS])]
        kernels = [k for _, k in scaled_products.PLANS.offers(QuantDot(), shapes, None)]
        assert any(isinstance(k, GpuKernel) for k in kernels) is offered
