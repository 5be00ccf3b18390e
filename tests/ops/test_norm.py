"""Normalizations: reference implementations, decompositions, narrow types and errors."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import mgx_core as mgx
from mgx_core import dtype as dt
from mgx_core.errors import MgxError
from mgx_core.ir.interpreter import Interpreter
from mgx_core.ir.module import Module
from mgx_core.ops.local_response import Lrn
from mgx_core.ops.norm import GroupNorm, InstanceNorm, LayerNorm, RmsNorm
from mgx_core.types.dim import symbol
from mgx_core.types.shape import Shape

RNG = np.random.default_rng(6)
X = RNG.uniform(-1, 1, (2, 6, 3, 4))
C = RNG.uniform(0.5, 1.5, 6), RNG.uniform(-1, 1, 6)


def normal(x: Any, axes: Any, epsilon: float = 1e-5) -> Any:
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + epsilon)


def column(v: Any) -> Any:
    return v[:, None, None]


CASES = [
    (LayerNorm(), [X], normal(X, 3)),
    (LayerNorm(axis=2), [X, X[0, 0], X[1, 1]], normal(X, (2, 3)) * X[0, 0] + X[1, 1]),
    (LayerNorm(axis=1, epsilon=0.1), [X, X[0, 0, 0]], normal(X, (1, 2, 3), 0.1) * X[0, 0, 0]),
    (RmsNorm(axis=-2), [X], X / np.sqrt((X * X).mean((2, 3), keepdims=True) + 1e-5)),
    (RmsNorm(), [X, X[0, 0, 0]], X / np.sqrt((X * X).mean(3, keepdims=True) + 1e-5) * X[0, 0, 0]),
    (InstanceNorm(), [X, *C], normal(X, (2, 3)) * column(C[0]) + column(C[1])),
    (
        GroupNorm(num_groups=3),
        [X, *C],
        normal(X.reshape(2, 3, -1), 2).reshape(X.shape) * column(C[0]) + column(C[1]),
    ),
    (GroupNorm(num_groups=1), [X], normal(X, (1, 2, 3))),
]


@pytest.mark.parametrize(("op", "inputs", "expected"), CASES)
@pytest.mark.parametrize("kind", [np.float64, np.float32, np.float16, ml_dtypes.bfloat16])
def test_definition_and_composition(op: Any, inputs: Any, expected: Any, kind: Any) -> None:
    xs = [x.astype(kind) for x in inputs]
    shapes = [Shape(dt.of(x.dtype), x.shape) for x in xs]
    out = op.evaluate(xs)
    assert op.result(shapes) == Shape(dt.of(kind), out.shape)
    close = {np.float64: 1e-9, np.float32: 1e-4, np.float16: 5e-3}.get(kind, 4e-2)
    np.testing.assert_allclose(out.astype(np.float64), expected, rtol=close, atol=close)
    module = Module()
    params = [module.add_parameter(f"x{i}", s) for i, s in enumerate(shapes)]

    class Adder:
        add = staticmethod(module.add)
        literal = staticmethod(module.add_literal)

    module.add_return([op.decompose(Adder, *params)])
    parts = Interpreter().run(module, xs)[0]
    assert parts.dtype == out.dtype
    eps = {np.float64: 1e-12, np.float32: 1e-5, np.float16: 2**-10}.get(kind, 2**-7)
    np.testing.assert_allclose(parts.astype(np.float64), out.astype(np.float64), rtol=2 * eps, atol=eps)


def test_neighboring_channels() -> None:
    for size in (1, 2, 3, 4, 13):
        wanted = np.empty_like(X)
        for c in range(6):
            around = X[:, max(0, c - (size - 1) // 2) : c + size // 2 + 1]
            wanted[:, c] = X[:, c] / (2 + 0.3 / size * np.square(around).sum(1)) ** 0.6
        np.testing.assert_allclose(Lrn(size=size, alpha=0.3, beta=0.6, bias=2.0).evaluate([X]), wanted, rtol=1e-9)


def test_symbolic_and_empty() -> None:
    n, s = symbol("n", 1, 9), symbol("s", 1, 99)
    x = Shape("float", (n, s, 64))
    assert LayerNorm().result([x, Shape("float", (64,))]) == x
    assert GroupNorm(num_groups=8).result([Shape("float", (n, 64, s))]) == Shape("float", (n, 64, s))
    empty = np.zeros((0, 6, 2), np.float32)
    for op in (InstanceNorm(), GroupNorm(num_groups=2), LayerNorm(), Lrn(size=3)):
        assert op.evaluate([empty]).shape == empty.shape


@pytest.mark.parametrize("op", [InstanceNorm(), GroupNorm(num_groups=2)])
@pytest.mark.parametrize("target", ["ref", "cpu"])
def test_a_factor_of_one_number_is_refused_when_run(op: Any, target: str) -> None:
    program = mgx.Program()
    main = program.get_main_module()
    given = [Shape("float", (2, 6, 3)), Shape("float", (6,)), Shape("float", (symbol("k", 0, 99),))]
    main.add_return([main.add(op, *(main.add_parameter(f"x{i}", s) for i, s in enumerate(given)))])
    program.compile(mgx.get_target(target))
    x, factor = X[..., 0].astype(np.float32), C[0].astype(np.float32)
    assert program.run({"x0": x, "x1": factor, "x2": factor})[0].to_numpy().shape == (2, 6, 3)
    with pytest.raises(MgxError, match=r"\[6"):
        program.run({"x0": x, "x1": factor, "x2": factor[:1]})


@pytest.mark.parametrize(
    ("make", "shapes", "message"),
    [
        (lambda: LayerNorm(axis=3), [(2, 3, 4)], "axis must lie"),
        (lambda: LayerNorm(), [(2, 3), (4,)], "must broadcast to the last 1 axes"),
        (lambda: RmsNorm(), [(2, 3), (1, 2, 3)], "must broadcast"),
        (lambda: GroupNorm(num_groups=4), [(2, 6, 3)], "do not divide into 4 groups"),
        (lambda: GroupNorm(num_groups=0), [], "num_groups must be at least 1"),
        (lambda: InstanceNorm(), [(2, 6, 3), (5,), (6,)], r"must have dims \[6\]"),
        (lambda: Lrn(size=0), [], "size must be at least 1"),
        (lambda: Lrn(), [(3,)], "rank 2"),
    ],
)
def test_refusals(make: Any, shapes: Any, message: str) -> None:
    with pytest.raises(MgxError, match=message):
        make().result([Shape("float", s) for s in shapes])
    with pytest.raises(MgxError, match="float type"):
        LayerNorm().result([Shape("int32", (2, 3))])


@pytest.mark.parametrize("norm", [LayerNorm(), RmsNorm(), InstanceNorm(), GroupNorm(num_groups=1)])
def test_norms_of_no_elements(norm: Any) -> None:
    assert norm.evaluate([np.zeros((2, 3, 0), np.float32)]).shape == (2, 3, 0)
