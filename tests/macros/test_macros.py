"""Macros, compared with the equivalent numpy expressions."""

from __future__ import annotations

import math

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core.errors import ParameterError, ShapeError, UnsupportedError
from mgx_core.macros.macro import MACROS

RNG = np.random.default_rng(7)


def floats(*lens):
    return RNG.standard_normal(lens).astype(np.float32)


A, B, C = floats(2, 3), floats(3, 4), floats(4)
X, W = floats(2, 4, 5, 5), floats(6, 2, 3, 3)
V = np.linspace(-3, 3, 12, dtype=np.float32).reshape(3, 4)
PER_CHANNEL = [floats(4), floats(4), floats(4), np.abs(floats(4)) + 0.5]
BYTES = RNG.integers(0, 256, (3, 4)).astype(np.uint8)
TRUE, FALSE = np.array([[True], [False]]), np.array([True, False])
erf = np.vectorize(math.erf)


def gelu(x):
    return x / 2 * (1 + erf(x / math.sqrt(2)))


def channels(p):
    return p.reshape(1, -1, 1, 1)


def normal(x, scale, bias, mean, variance, epsilon):
    return (x - channels(mean)) / np.sqrt(channels(variance) + epsilon) * channels(scale) + channels(bias)


def convolved(x, w, stride, pad, groups):
    x = np.pad(x, [(0, 0), (0, 0), (pad, pad), (pad, pad)])
    windows = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], (2, 3))[:, :, ::stride, ::stride]
    parts = zip(np.split(windows, groups, 1), np.split(w, groups, 0), strict=True)
    return np.concatenate([np.einsum("nchwij,ocij->nohw", p, q) for p, q in parts], 1)


def turned(x, cos, sin, positions):
    half = cos.shape[1]
    c, s = cos[positions][:, None], sin[positions][:, None]
    one, other = x[..., :half], x[..., half:]
    return np.concatenate([c * one - s * other, s * one + c * other], -1)


Q, COS, SIN = floats(2, 3, 4, 6), floats(9, 3), floats(9, 3)
CASES = [
    ("gemm", {}, [A, B], A @ B),
    ("gemm", {"alpha": 2.0, "beta": 0.5}, [A, B, C], 2 * (A @ B) + C / 2),
    ("gemm", {"transA": True, "transB": True}, [A.T.copy(), B.T.copy()], A @ B),
    ("gemm", {"beta": 0.0}, [A, B, C], A @ B),
    ("dot", {}, [floats(1, 2, 3), B], None),
    ("quant_dot", {}, [np.ones((2, 3), np.int8), np.full((3, 4), 2, np.int8)], np.full((2, 4), 6, np.int32)),
    ("einsum", {"equation": "ij,jk->ik"}, [A, B], A @ B),
    ("einsum", {"equation": "ii->"}, [np.diag([1, 2, 3]).astype(np.float32)], np.float32(6)),
    ("tile", {"repeats": [2, 1]}, [A], np.tile(A, (2, 1))),
    ("convolution", {"group": 2, "paddings": [1, 1]}, [X, W], convolved(X, W, 1, 1, 2)),
    ("convolution", {"group": 2, "strides": [2, 2]}, [X, W, floats(6)], None),
    (
        "quant_convolution", {"paddings": [1, 1, 1, 1]}, [np.ones((1, 1, 3, 3), np.int8), np.ones((1, 1, 3, 3), np.int8)],
        np.array([[[[4, 6, 4], [6, 9, 6], [4, 6, 4]]]], np.int32),
    ),
    ("batchnorm", {}, [X, *PER_CHANNEL], normal(X, *PER_CHANNEL, 1e-5)),
    ("batchnorm", {"epsilon": 0.01}, [X, *PER_CHANNEL], normal(X, *PER_CHANNEL, 0.01)),
    ("celu", {"alpha": 2.0}, [V], np.maximum(V, 0) + np.minimum(0, 2 * np.expm1(V / 2))),
    ("clip", {}, [V, np.float32(-1), np.float32(1)], np.clip(V, -1, 1)),
    ("clip", {}, [V, np.float32(-1)], np.maximum(V, -1)),
    ("clip", {}, [V], V),
    ("gelu_quick", {"alpha": 1.702}, [V], V / (1 + np.exp(-1.702 * V))),
    ("gelu_erf", {}, [V], gelu(V)),
    ("gelu_tanh", {}, [V], V / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (V + 0.044715 * V**3)))),
    ("gelu_tanh", {"fast": True}, [V], V / 2 * (1 + np.tanh(0.797885 * V + 0.035677 * V**3))),
    ("gelu_split", {}, [V], V[:, :2] * gelu(V[:, 2:])),
    ("mean_variance_normalization", {}, [X], (X - X.mean((0, 2, 3), keepdims=True)) / X.std((0, 2, 3), keepdims=True)),
    ("quantizelinear", {}, [V, np.array([0.1], np.float32), np.array([3], np.int8)], np.rint(V / np.float32(0.1)).astype(np.int8) + 3),
    ("quantizelinear", {"axis": 1}, [V, np.array([1, 2, 4, 8], np.float32)], None),
    ("dequantizelinear", {"axis": 0}, [BYTES, np.array([1, 2, 4], np.float32)], BYTES * np.array([[1], [2], [4]], np.float32)),
    ("bias_uint8", {}, [BYTES, BYTES], (BYTES.astype(np.int16) - 128).astype(np.int8)),
    ("rotary_embedding", {}, [Q, np.array([[0, 1, 2, 3], [5, 6, 7, 8]]), COS, SIN],
     turned(Q, COS, SIN, np.array([[0, 1, 2, 3], [5, 6, 7, 8]]))),
    ("rotary_embedding", {}, [Q, np.array([[2], [4]]), COS, SIN], turned(Q, COS, SIN, np.array([[2, 3, 4, 5], [4, 5, 6, 7]]))),
    ("rotary_embedding", {}, [Q, np.array([3]), COS, SIN], turned(Q, COS, SIN, np.array([[3, 4, 5, 6]] * 2))),
    ("add", {}, [A, floats(3)], None),
    ("add", {}, [A, np.arange(3)], A + np.arange(3, dtype=np.float32)),
    ("sub", {}, [A, A[:1]], A - A[:1]),
    ("mul", {}, [A, np.float32(3)], A * 3),
    ("div", {}, [A, np.float32(4)], A / 4),
    ("pow", {}, [np.abs(A), np.float32(2)], A * A),
    ("sqdiff", {}, [A, A[:1]], (A - A[:1]) ** 2),
    ("prelu", {}, [V, np.float32(0.5)], np.where(V < 0, V / 2, V)),
    ("bitwise_and", {}, [BYTES, np.uint8(12)], BYTES & 12),
    ("logical_and", {}, [TRUE, FALSE], TRUE & FALSE),
    ("logical_or", {}, [TRUE, FALSE], TRUE | FALSE),
    ("logical_xor", {}, [TRUE, FALSE], TRUE ^ FALSE),
    ("add", {"broadcasted": 1, "axis": 1, "is_broadcasted": True}, [X, C], X + channels(C)),
]  # fmt: skip


def wanted(name, options, inputs):
    """Returns the expected results of macros that are not listed above."""
    if name == "convolution":
        return convolved(inputs[0], inputs[1], 2, 0, 2) + channels(inputs[2])
    if name == "quantizelinear":
        return np.clip(np.rint(inputs[0] / inputs[1]), 0, 255).astype(np.uint8)
    return {"dot": np.matmul, "add": np.add}[name](*inputs)


def results(name, options, inputs):
    program = mgx.Program()
    main = program.get_main_module()
    args = [main.add_literal(np.asarray(x)) for x in inputs]
    main.add_return(main.add_macro(mgx.Macro(name, **options), args))
    program.compile(mgx.get_target("ref"))
    return [r.to_numpy() for r in program.run({})]


@pytest.mark.parametrize(("name", "options", "inputs", "value"), CASES, ids=lambda v: v if isinstance(v, str) else "")
def test_its_results(name, options, inputs, value) -> None:
    value = wanted(name, options, inputs) if value is None else value
    got = results(name, options, inputs)[0]
    assert (got.dtype, got.shape) == (np.asarray(value).dtype if got.dtype.kind != "f" else got.dtype, np.shape(value))
    np.testing.assert_allclose(got, value, rtol=2e-5, atol=1e-5)


def test_every_macro_has_a_case() -> None:
    assert set(MACROS) - {name for name, *_ in CASES} == {"convolution_integer"}


def test_names_options_and_places() -> None:
    macro = mgx.Macro("gemm", alpha=2.0, transB=True)
    assert (macro.name(), macro.options()) == ("gemm", {"alpha": 2.0, "transB": True})
    program = mgx.Program()
    main = program.get_main_module()
    a, b = main.add_literal(A), main.add_literal(B)
    last = main.add_macro(mgx.Macro("gemm"), [a, b])
    (first,) = main.insert_macro(last[0], mgx.Macro("clip"), [a, main.add_absent()])
    assert list(main).index(first) < list(main).index(last[0])
    inserted = main.insert_macro(first, mgx.Macro("gemm", alpha=3.0), [a, b])
    order = list(main)
    assert all(order.index(i) < order.index(first) for i in inserted)
    assert all(order.index(i) < order.index(u) for u in order for i in u.inputs if not i.is_absent)


def test_errors_of_invalid_input() -> None:
    with pytest.raises(UnsupportedError, match="there is no macro 'gem'; did you mean 'gemm'"):
        mgx.Macro("gem")
    with pytest.raises(ParameterError, match="takes no option 'trans'"):
        mgx.Macro("gemm", trans=True)
    with pytest.raises(ShapeError, match="macro 'gemm': matrices are required"):
        results("gemm", {}, [C, C])
    with pytest.raises(ShapeError, match="macro 'gemm': missing a required argument: 'y'"):
        results("gemm", {}, [A])
    with pytest.raises(ParameterError, match="strides must be 2 numbers"):
        results("convolution", {"strides": [1]}, [X, W])
