"""Matrix products, einsum and their fused variants."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

from mgx_core import MgxError, parse_onnx

RNG = np.random.default_rng(12)


def rand(*dims: int, dtype: Any = np.float32) -> Any:
    return RNG.uniform(-1, 1, dims).astype(dtype)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((3, 4), (4, 2)),
        ((4,), (4,)),
        ((4,), (3, 4, 2)),
        ((2, 3, 4), (4,)),
        ((2, 1, 3, 4), (5, 4, 2)),
        ((3, 4), (2, 4, 5)),
        ((2, 0, 4), (4, 2)),
        ((3, 0), (0, 2)),
    ],
)
def test_matmul(agree: Any, a: Any, b: Any) -> None:
    agree("MatMul", rand(*a), rand(*b), opset=13)


def test_matmul_of_integers(agree: Any) -> None:
    a, b = (RNG.integers(-9, 9, d, dtype=np.int32) for d in ((2, 3, 4), (4, 5)))
    agree("MatMul", a, b, opset=13)


@pytest.mark.parametrize("opset", [7, 9, 11, 13])
@pytest.mark.parametrize("c", [(), (1,), (5,), (3, 1), (3, 5)])
def test_gemm(agree: Any, opset: int, c: Any) -> None:
    agree("Gemm", rand(3, 4), rand(4, 5), rand(*c), opset=opset)
    agree("Gemm", rand(4, 3), rand(5, 4), rand(*c), opset=opset, transA=1, transB=1, alpha=0.5, beta=-2.0)


def test_gemm_before_opset_7(run: Any) -> None:
    a, b, c = rand(3, 4), rand(4, 5), rand(5)
    np.testing.assert_allclose(run("Gemm", a, b, c, opset=6, broadcast=1)[0], a @ b + c, rtol=1e-5)


def test_gemm_without_c(agree: Any) -> None:
    agree("Gemm", rand(3, 4), rand(4, 5), opset=11, alpha=3.0)


@pytest.mark.parametrize("dims", [((2, 3, 4), (4, 5), (5,)), ((3, 4), (5, 4), (5,)), ((3, 4), (4, 5), (2, 3, 5))])
def test_gemm_refuses(run: Any, dims: Any) -> None:
    with pytest.raises(MgxError):
        run("Gemm", *(rand(*d) for d in dims))


@pytest.mark.parametrize(
    ("equation", "dims"),
    [
        ("ij,jk->ik", [(3, 4), (4, 5)]),
        ("bhqd,bhkd->bhqk", [(2, 3, 4, 5), (2, 3, 6, 5)]),
        ("bij,bjk,bkl", [(2, 3, 4), (2, 4, 5), (2, 5, 2)]),
        ("i,j->ij", [(3,), (4,)]),
        ("i,i", [(4,), (4,)]),
        ("ii->i", [(4, 4)]),
        ("ii", [(4, 4)]),
        ("...ii->...i", [(2, 3, 4, 4)]),
        ("iji,jk->ki", [(3, 2, 3), (2, 5)]),
        ("...ij,...jk->...ik", [(2, 1, 3, 4), (5, 4, 2)]),
        ("...,...->...", [(2, 3), (3,)]),
        ("ij->ji", [(3, 4)]),
        ("ij->", [(3, 4)]),
        ("ab,cd,ef->facebd", [(2, 3), (4, 5), (6, 7)]),
        ("bs,bd,d->s", [(2, 3), (2, 4), (4,)]),
        ("ab , b -> a", [(2, 3), (3,)]),
        ("...a,a", [(2, 3, 4), (4,)]),
        (",ij->ij", [(), (2, 3)]),
    ],
)
def test_einsum(run: Any, equation: str, dims: Any) -> None:
    xs = [rand(*d) for d in dims]
    (out,) = run("Einsum", *xs, opset=12, equation=equation)
    wanted = np.einsum(equation.replace(" ", ""), *xs)
    assert out.shape == wanted.shape
    np.testing.assert_allclose(out, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("equation", "dims", "message"),
    [
        ("ij,jk->ik", [(3, 4), (5, 6)], "extents 4 and 5"),
        ("ij->ik", [(3, 4)], "is in no term"),
        ("ij->ii", [(3, 4)], "names an axis twice"),
        ("ijk->i", [(3, 4)], "does not fit"),
        ("ij,jk->ik", [(3, 4)], "is for 2 operands"),
        ("i->i->i", [(3,)], "one '->'"),
        ("...i->i", [(2, 3)], "must keep"),
        ("i...j...->i", [(2, 3)], "consists of letters"),
        ("i1->i", [(2, 3)], "consists of letters"),
    ],
)
def test_einsum_refuses(run: Any, equation: str, dims: Any, message: str) -> None:
    with pytest.raises(MgxError, match=message):
        run("Einsum", *(rand(*d) for d in dims), opset=12, equation=equation)


def test_einsum_in_half_precision_rounds_once(run: Any) -> None:
    a, b = rand(4, 400, dtype=np.float16), rand(400, 3, dtype=np.float16)
    (out,) = run("Einsum", a, b, opset=12, equation="ij,jk->ik")
    assert out.dtype == np.float16
    np.testing.assert_array_equal(out, (a.astype(np.float32) @ b.astype(np.float32)).astype(np.float16))


def test_det_and_inverse(run: Any, agree: Any) -> None:
    x = rand(2, 3, 3) + 2 * np.eye(3, dtype=np.float32)
    agree("Det", x, opset=11)
    agree("Inverse", x, domain="com.microsoft", rtol=1e-3)
    with pytest.raises(MgxError, match="singular"):
        run("Inverse", np.zeros((2, 2), np.float32), domain="com.microsoft")
    with pytest.raises(MgxError, match="square"):
        run("Det", rand(2, 3), opset=11)


@pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean"])
def test_cdist(agree: Any, metric: str) -> None:
    agree("CDist", rand(4, 3), rand(5, 3), domain="com.microsoft", metric=metric, atol=1e-4)


def test_distances_are_summed_over_an_axis_that_is_not_the_last() -> None:
    """Loops over the few elements of a row are not vectorized: 500 x 500 distances of 100 elements took 34 times as long."""
    values = [helper.make_tensor_value_info(name, 1, [n, 3]) for name, n in (("a", 4), ("b", 5))]
    node = helper.make_node("CDist", ["a", "b"], ["y"], domain="com.microsoft")
    graph = helper.make_graph([node], "g", values, [helper.make_empty_tensor_value_info("y")])
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    program = parse_onnx(helper.make_model(graph, opset_imports=imports).SerializeToString())
    (total,) = (i for i in program.get_main_module() if i.name == "reduce_sum")
    assert (total.inputs[0].shape.lens(), total.op.axes) == ([4, 3, 5], (1,))


@pytest.mark.parametrize(
    ("a", "b", "attributes"),
    [
        ((4, 3), (4, 5), dict(transA=1)),
        ((2, 3, 4), (2, 5, 4), dict(transB=1, alpha=0.5)),
        ((3, 2, 4), (2, 4, 5), dict(transBatchA=1)),
    ],
)
def test_fused_matmul(agree: Any, a: Any, b: Any, attributes: Any) -> None:
    agree("FusedMatMul", rand(*a), rand(*b), domain="com.microsoft", **attributes)


def test_fused_gemm(agree: Any) -> None:
    x = rand(3, 4), rand(4, 5), rand(5)
    agree("FusedGemm", *x, domain="com.microsoft", activation="Relu")
    agree("FusedGemm", *x, domain="com.microsoft", activation="LeakyRelu", activation_alpha=0.3)
