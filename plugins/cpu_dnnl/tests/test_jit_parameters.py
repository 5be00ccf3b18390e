"""Numbers that are passed to loops as arguments: layers that differ only in them share code."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from run_loops import new_engine, run_numpy

import mgx_core as mgx
from mgx_core import dtype as dt
from mgx_cpu_dnnl.jit.attention import compile_attention
from mgx_cpu_dnnl.jit.engine import Engine
from mgx_cpu_dnnl.jit.kernel import JitKernel
from mgx_cpu_dnnl.jit.pointwise import compile_pointwise
from mgx_cpu_dnnl.jit.reduce import compile_reduce


@pytest.fixture(params=["host", "avx2"])
def engine(request: pytest.FixtureRequest) -> Engine:
    """An engine of one test, which counts what it compiles."""
    return new_engine(request.param)


def repeated(m: mgx.Module, number: float, lens: tuple[int, ...]) -> mgx.Instruction:
    return m.add(mgx.op("multibroadcast", out_lens=lens), m.add_literal(np.array([number], np.float32)))


def scaled(number: float, op: str = "mul") -> mgx.Module:
    m = mgx.Module("score")
    x = m.add_parameter("x", mgx.Shape(dt.float32, [2, 5, 7]))
    m.add_return([m.add(mgx.op(op), x, repeated(m, number, (2, 5, 7)))])
    return m


def test_scales_of_attention(engine: Engine) -> None:
    """Numbers applied to scores are arguments, except those with simpler code, and those that are neither added nor
    multiplied.
    """
    q, k, v = (np.random.default_rng(i).standard_normal((2, n, 8)).astype(np.float32) for i, n in enumerate((5, 7, 7)))
    shapes = [mgx.Shape(dt.float32, x.shape) for x in (q, k, v, q)]
    wide = q.astype(np.float64) @ k.swapaxes(1, 2)
    cases = [("mul", 0.25, 1), ("mul", -3.0, 1), ("mul", 0.1, 1), ("mul", 1.0, 2), ("max", 0.5, 3), ("max", 0.25, 4)]
    for op, number, compiled in cases:
        kernel = compile_attention(*shapes, engine, score=scaled(number, op))
        assert isinstance(kernel, JitKernel)
        out = np.empty_like(q)
        run_numpy(kernel, [q, k, v, out])
        power = np.exp(wide * number if op == "mul" else np.maximum(wide, number))
        np.testing.assert_allclose(out, power @ v / power.sum(-1, keepdims=True), rtol=2e-5, atol=2e-6)
        assert engine.compiled == compiled, (op, number)


def squared(epsilon: float) -> mgx.Module:
    m = mgx.Module("norm")
    x = m.add_parameter("x", mgx.Shape(dt.float32, [3, 72]))
    mean = m.add(mgx.op("reduce_mean", axes=(1,)), m.add(mgx.op("mul"), x, x))
    root = m.add(mgx.op("rsqrt"), m.add(mgx.op("add"), mean, repeated(m, epsilon, (3, 1))))
    m.add_return([m.add(mgx.op("mul"), x, m.add(mgx.op("multibroadcast", out_lens=(3, 72)), root))])
    return m


def test_epsilon_of_norms(engine: Engine) -> None:
    x: Any = np.random.default_rng(0).standard_normal((3, 72)).astype(np.float32)
    shape = mgx.Shape(dt.float32, x.shape)
    for epsilon, compiled in ((0.5, 1), (1e-3, 1), (0.0, 2)):
        kernel = compile_reduce(squared(epsilon), [1], [shape], [shape], engine)
        assert isinstance(kernel, JitKernel)
        out = np.empty_like(x)
        run_numpy(kernel, [x, out])
        wide = x.astype(np.float64)
        exact = wide / np.sqrt((wide * wide).mean(1, keepdims=True) + epsilon)
        np.testing.assert_allclose(out, exact, rtol=1e-5, atol=1e-6)
        assert engine.compiled == compiled, epsilon


@pytest.mark.parametrize("kind", ["float32", "int32", "int64"])
def test_numbers_of_pointwise_groups(engine: Engine, kind: str) -> None:
    """Addends of all types, and float32 factors, divisors and bounds, share code; integer products do not."""
    x = np.arange(-60, 60).reshape(3, 40).astype(kind)
    shape, wide = mgx.Shape(kind, x.shape), kind == "float32"
    small = {"sub": 0.5, "mul": 0.5, "div": 0.5, "greater": 0.5} if wide else {"sub": 7, "mul": 7}
    for op, number in small.items():
        compiled = engine.compiled
        for more, new in ((0, 1), (4, 1), (-9, 1), (1 << 20, 1)):
            body = mgx.Module("body")
            given = body.add_literal(np.array([number + more], kind))
            spread = body.add(mgx.op("multibroadcast", out_lens=x.shape), given)
            made = body.add(mgx.op(op), body.add_parameter("x", shape), spread)
            body.add_return([made])
            out = np.empty(x.shape, np.bool_ if op == "greater" else kind)
            kernel = compile_pointwise(body, [shape], [made.shape], engine)
            assert isinstance(kernel, JitKernel)
            run_numpy(kernel, [x, out])
            by = np.asarray(number + more, kind)
            exact = {"sub": x - by, "mul": x * by, "div": x / by, "greater": x > by}[op]
            np.testing.assert_array_equal(out, exact.astype(out.dtype))
            count = new if wide or op == "sub" else [0, 4, -9, 1 << 20].index(more) + 1
            assert engine.compiled == compiled + count, (op, more)
