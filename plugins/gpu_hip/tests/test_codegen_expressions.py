"""Every primitive and conversion as HIP C++ on the emulated device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernel_trial import generate, run, same, tensor, traits

from mgx_core import dtype as dt
from mgx_core.ops.convert import Convert
from mgx_core.ops.declaration import op
from mgx_core.ops.elementwise import Pointwise
from mgx_core.ops.scalar import PRIMITIVES, Call, Input, call, x0
from mgx_gpu_hip.codegen.primitives import HIP

FLOAT_ONLY = {
    "sqrt", "rsqrt", "exp", "log", "log2", "expm1", "log1p", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh",
    "asinh", "acosh", "atanh", "erf", "floor", "ceil", "round", "trunc", "isnan", "isinf",
}  # fmt: skip
INTEGER_ONLY = {"bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not", "shift_left", "shift_right"}
LOGICAL = {"logical_and", "logical_or", "logical_xor", "logical_not"}
TYPES = ("float32", "float16", "bfloat16", "float64", "int8", "int32", "int64", "uint8", "uint64", "bool")


def kinds(name: str) -> str:
    if name in FLOAT_ONLY:
        return "f"
    if name in INTEGER_ONLY:
        return "iu"
    if name in LOGICAL:
        return "b"
    return "iuf"


def samples(of: Any, seed: int) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(seed)
    if of.kind == "b":
        return np.asarray(rng.random(200) < 0.5)
    if of.kind in "iu":
        edge = np.array([0, 1, 2, 3, 7, of.bits - 1, of.bits])
        low = -5 if of.kind == "i" else 0
        return np.concatenate([edge, rng.integers(low, 6, 193)]).astype(of.numpy)
    out = rng.standard_normal(200) * 2
    out[:8] = [0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 0.5]
    return out.astype(of.numpy)


def large(of: Any) -> np.ndarray[Any, Any]:
    with np.errstate(all="ignore"):
        return np.array([300, -300, 7e4, -7e4, 3e9, -3e9, 1e19, -1e19]).astype(of)


def test_table_covers_the_primitives() -> None:
    assert set(HIP) == set(PRIMITIVES)


@pytest.mark.parametrize("name", [n for n in PRIMITIVES if n != "where"])
def test_primitive(name: str) -> None:
    count, yes_no, _ = PRIMITIVES[name]
    expression = Call(name, tuple(Input(i) for i in range(count)))

    @op(f"test_{name}")
    class Primitive(Pointwise):
        scalar = expression
        arity = count
        accepts = "biuf"

        def result_dtype(self, xs: Any) -> Any:
            return dt.bool_ if yes_no else xs[0].dtype

    for word in TYPES:
        of = dt.of(word)
        if of.kind not in kinds(name) or (name == "neg" and of.kind == "u"):
            continue
        if name in ("mod", "fmod") and of.kind == "f":
            arrays = [
                np.array([5.5, -5.5, 5.5, -5.5, 0, 4]).astype(of.numpy),
                np.array([3, 3, -3, -3, 2, 2]).astype(of.numpy),
            ]
        elif name == "pow" and of.kind != "f":
            arrays = [np.array([2, 3, 1, 5, 7]).astype(of.numpy), np.array([3, 2, 9, 0, 1]).astype(of.numpy)]
        else:
            arrays = [samples(of, i) for i in range(count)]
        if count == 2 and of.kind == "f" and name == "pow":
            arrays[1] = np.clip(np.abs(arrays[1].astype(np.float64)), 0, 3).astype(of.numpy)
        made = Primitive()
        wanted = made.compute(*arrays)
        ins = [tensor(of, a.shape) for a in arrays]
        outs = [tensor(dt.of(wanted.dtype), wanted.shape)]
        same(
            run(generate(made, ins, outs, traits()), arrays, ins, outs),
            wanted,
            tolerance=None if of.bits >= 32 else 2 * of.epsilon,
        )


@pytest.mark.parametrize("source", TYPES)
def test_convert(source: str) -> None:
    x = samples(dt.of(source), 3)
    if x.dtype.kind not in "biu":
        x = np.concatenate([x, large(x.dtype)])
    for target in TYPES:
        made = Convert(target_type=target)
        wanted = made.compute(x)
        ins, outs = [tensor(source, x.shape)], [tensor(target, x.shape)]
        same(run(generate(made, ins, outs, traits()), [x], ins, outs), wanted)


@pytest.mark.parametrize("target", ["float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2fnuz"])
@pytest.mark.parametrize("source", ["float32", "float16", "float64", "int32"])
def test_overflow_of_an_8_bit_float(source: str, target: str) -> None:
    x = np.concatenate([samples(dt.of(source), 3), large(dt.of(source).numpy)])
    for saturate in (True, False):
        made = Convert(target_type=dt.of(target), saturate=saturate)
        ins, outs = [tensor(source, x.shape)], [tensor(target, x.shape)]
        (got,) = run(generate(made, ins, outs, traits()), [x], ins, outs)
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(got.astype(np.float32), made.compute(x).astype(np.float32))


def test_where_constants_and_attributes() -> None:
    @op("test_leaky")
    class Leaky(Pointwise):
        alpha: float = 0.25
        scalar = call("where", x0 < 0, x0 * 0.25 + 1, call("max", x0, 2))
        accepts = "iuf"

    for word in ("float32", "float16", "int32"):
        x = samples(dt.of(word), 5)
        ins = outs = [tensor(word, x.shape)]
        same(run(generate(Leaky(), ins, outs, traits()), [x], ins, outs), Leaky().compute(x))


@pytest.mark.parametrize("divisor", [3.0, 0.1, -0.0371, 0.25, -8.0, 16777215.0, 1e-33, 2e31])
def test_quotients_by_a_number_are_those_of_a_division(divisor: float) -> None:
    @op("test_quotient")
    class Quotient(Pointwise):
        scalar = x0 / np.float32(divisor).item()
        accepts = "f"

    rng = np.random.default_rng(0)
    x = np.concatenate([samples(dt.float32, 1), rng.standard_normal(4000) * 10.0 ** rng.uniform(-30, 30, 4000)])
    x = x.astype(np.float32)
    ins = outs = [tensor("float32", x.shape)]
    (got,) = run(generate(Quotient(), ins, outs, traits()), [x], ins, outs)
    with np.errstate(all="ignore"):
        wanted = x / np.float32(divisor)
    normal = (np.abs(wanted) > 1e-37) | (x == 0) | ~np.isfinite(wanted)
    np.testing.assert_array_equal(got[normal], wanted[normal])
