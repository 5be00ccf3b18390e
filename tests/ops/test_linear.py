"""Matrix products, determinants, inverses, diagonals and einsum."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from mgx_core.errors import MgxError
from mgx_core.ir.interpreter import Interpreter
from mgx_core.ir.module import Module
from mgx_core.ops.convert import Convert
from mgx_core.ops.einsum import Einsum
from mgx_core.ops.linear import Det, Diagonal, Dot, Inverse
from mgx_core.types.dim import symbol
from mgx_core.types.shape import Shape

RNG = np.random.default_rng(3)


def rand(*dims: int) -> Any:
    return RNG.uniform(-1, 1, dims)


def test_dot() -> None:
    a, b = rand(2, 3, 4), rand(2, 4, 5)
    np.testing.assert_allclose(Dot().evaluate([a, b]), a @ b, rtol=1e-12)
    n, m = symbol("n", 1, 9), symbol("m", 1, 9)
    out = Dot().result([Shape("float", (n, m, 4)), Shape("float", (n, 4, 5))])
    assert out == Shape("float", (n, m, 5))


def test_dot_sums_narrow_floats_in_float32() -> None:
    for kind in (np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn):
        a, b = rand(3, 2000).astype(kind), rand(2000, 2).astype(kind)
        wide = a.astype(np.float32) @ b.astype(np.float32)
        np.testing.assert_array_equal(Dot().evaluate([a, b]), wide.astype(kind))


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        (("float", (3, 4)), ("float", (5, 2)), "the last extent of a"),
        (("float", (3, 4)), ("double", (4, 2)), "the same number type"),
        (("float", (4,)), ("float", (4,)), "rank of at least 2"),
        (("float", (2, 3, 4)), ("float", (3, 4, 2)), "batch axis 0"),
        (("bool", (3, 4)), ("bool", (4, 2)), "number type"),
    ],
)
def test_dot_refuses(a: Any, b: Any, message: str) -> None:
    with pytest.raises(MgxError, match=message):
        Dot().result([Shape(*a), Shape(*b)])


def test_determinant_and_inverse() -> None:
    x = rand(4, 3, 3)
    np.testing.assert_allclose(Det().evaluate([x]), np.linalg.det(x), rtol=1e-12)
    np.testing.assert_allclose(Inverse().evaluate([x]) @ x, np.broadcast_to(np.eye(3), x.shape), atol=1e-9)
    assert Det().evaluate([np.ones((2, 2), np.float32)]).tolist() == 0
    with pytest.raises(MgxError, match="singular"):
        Inverse().evaluate([np.ones((2, 2), np.float32)])
    with pytest.raises(MgxError, match="square"):
        Det().result([Shape("float", (2, 3))])


@pytest.mark.parametrize(("axis1", "axis2"), [(0, 2), (2, 0), (-1, 0)])
def test_diagonal_is_a_view(axis1: int, axis2: int) -> None:
    x = rand(3, 2, 3)
    op = Diagonal(axis1=axis1, axis2=axis2)
    out = op.evaluate([x])
    assert tuple(op.result([Shape("double", x.shape)])) == out.shape
    plain = np.einsum("iji->ij" if axis2 != 0 else "iji->ji", x)
    np.testing.assert_array_equal(out, plain)
    offset, shape = op.view(Shape("double", x.shape))
    steps = [s * 8 for s in shape.strides()]
    window = np.lib.stride_tricks.as_strided(x.reshape(-1)[offset:], shape.lens(), steps)
    np.testing.assert_array_equal(window, out)


EQUATIONS = [
    ("ij,jk->ik", [(3, 4), (4, 5)]),
    ("bhqd,bhkd->bhqk", [(2, 3, 4, 5), (2, 3, 6, 5)]),
    ("ab,bc,cd,de->ae", [(2, 3), (3, 4), (4, 5), (5, 2)]),
    ("iji,jk->ki", [(3, 2, 3), (2, 5)]),
    ("iii->i", [(3, 3, 3)]),
    ("...ii->...", [(2, 4, 4)]),
    ("b...i,...i->b...", [(2, 3, 4), (3, 4)]),
    ("...ij,...jk->...ik", [(2, 1, 3, 4), (5, 4, 2)]),
    ("i,j,k->kji", [(2,), (3,), (4,)]),
    ("ij,ij->", [(3, 4), (3, 4)]),
    ("ij,ik", [(3, 4), (3, 5)]),
    ("a,ab,abc->abc", [(2,), (2, 3), (2, 3, 4)]),
]


@pytest.mark.parametrize(("equation", "dims"), EQUATIONS)
def test_einsum_and_its_composition(equation: str, dims: Any) -> None:
    xs = [rand(*d) for d in dims]
    op = Einsum(equation=equation)
    wanted = np.einsum(equation, *xs)
    assert tuple(op.result([Shape("double", d) for d in dims])) == wanted.shape
    np.testing.assert_allclose(op.evaluate(xs), wanted, rtol=1e-9)
    module = Module()
    params = [module.add_parameter(f"x{i}", Shape("double", d)) for i, d in enumerate(dims)]
    module.add_return([op.decompose(module, *params)])
    assert all(i.op.name != "einsum" for i in module)
    np.testing.assert_allclose(Interpreter().run(module, xs)[0], wanted, rtol=1e-9)


@pytest.mark.parametrize(
    ("equation", "dims", "wide"),
    [
        ("ij,jk->ik", [(3, 100), (100, 5)], False),
        ("ij,k->k", [(9, 200), (4,)], True),
        ("ij,jk->ik", [(1000, 2000), (1, 3)], True),  # one row for all columns
        ("ij,jk,kl->il", [(3, 1000), (1000, 900), (900, 2)], True),
    ],
)
def test_composition_of_an_einsum_of_narrow_floats_rounds_once(equation: str, dims: Any, wide: bool) -> None:
    xs = [np.full(d, v, np.float16) for d, v in zip(dims, (100, 0.01, 0.01), strict=False)]
    module = Module()
    params = [module.add_parameter(f"x{i}", Shape("half", d)) for i, d in enumerate(dims)]
    module.add_return([Einsum(equation=equation).decompose(module, *params)])
    assert any(isinstance(i.op, Convert) for i in module) == wide
    np.testing.assert_array_equal(Interpreter().run(module, xs)[0], Einsum(equation=equation).evaluate(xs))


def test_einsum_of_symbolic_extents() -> None:
    b, n = symbol("b", 1, 9), symbol("n", 1, 99)
    x = Shape("float", (b, 8, n, 64))
    op = Einsum(equation="bhqd,bhkd->bhqk")
    assert op.result([x, x]) == Shape("float", (b, 8, n, n))
    module = Module()
    p = module.add_parameter("x", x)
    assert op.decompose(module, p, p).shape == Shape("float", (b, 8, n, n))
    assert [i.op.name for i in module if not i.is_param] == ["transpose", "dot"]


@pytest.mark.parametrize("equation", ["ij,jk->k", "ji,kj->k", "ij,jk,k->k"])
def test_composition_of_einsum_does_not_round_parts(equation: str) -> None:
    """Sums of one operand exceed the range of float16; those of products do not."""
    left, *rest = equation.partition("->")[0].split(",")
    extent = {"i": 1024, "j": 4, "k": 3}
    xs = [np.full([extent[c] for c in left], 100, np.float16)]
    xs += [np.full([extent[c] for c in term], 0.015625, np.float16) for term in rest]
    module = Module()
    params = [module.add_parameter(f"x{i}", Shape("half", x.shape)) for i, x in enumerate(xs)]
    op = Einsum(equation=equation)
    module.add_return([op.decompose(module, *params)])
    (found,) = Interpreter().run(module, xs)
    assert found.dtype == np.float16
    assert found.tolist() == op.evaluate(xs).tolist() == [409_600 * 0.015625 ** len(rest)] * 3


def test_einsum_keeps_integers_exact() -> None:
    x = np.array([[2**62, 1], [3, 4]])
    assert Einsum(equation="ij->i").evaluate([x]).tolist() == [2**62 + 1, 7]
