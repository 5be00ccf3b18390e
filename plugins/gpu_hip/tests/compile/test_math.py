"""Scalar functions of the prelude, compared with numpy, from the device library and from the prelude itself."""

from __future__ import annotations

import math

import numpy as np
import pytest

SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, math.inf, -math.inf, math.nan]
UNARY = {
    "abs": np.abs, "sign": np.sign, "floor": np.floor, "ceil": np.ceil, "round": np.rint, "trunc": np.trunc, "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x), "exp": np.exp, "exp2": np.exp2, "log": np.log, "log2": np.log2, "expm1": np.expm1,
    "log1p": np.log1p, "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan,
    "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh, "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh,
    "erf": np.vectorize(math.erf),
}  # fmt: skip
BINARY = {
    "min": np.minimum, "max": np.maximum, "mod": np.mod, "fmod": np.fmod, "pow": np.power, "div": np.divide,
    "copysign": np.copysign,
}  # fmt: skip
FAST = {
    "exp": np.exp, "log": np.log, "tanh": np.tanh, "erf": np.vectorize(math.erf), "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "rsqrt": lambda x: 1 / np.sqrt(x), "rcp": lambda x: 1 / x,
}  # fmt: skip


def text(space, unary, binary):
    lines = ["template <class F> DEV void all(const F* x, const F* y, F* o, u32 n) {", "  u32 i = threadIdx.x;"]
    lines += [f"  o[{k} * n + i] = {space}::{name}(x[i]);" for k, name in enumerate(unary)]
    lines += [f"  o[{k + len(unary)} * n + i] = {space}::{name}(x[i], y[i]);" for k, name in enumerate(binary)]
    lines.append("}")
    for type, name in (("float", "f32"), ("double", "f64"))[: 1 if space == "fast" else 2]:
        lines.append(f"KERNEL(1024) {name}(const {type}* x, const {type}* y, {type}* o, u32 n) {{ all(x, y, o, n); }}")
    return "\n".join(lines)


def points(rng, dtype, wide):
    x = rng.uniform(-1, 1, 512)
    x[:170] *= 10
    x[170:256] *= wide
    x[256:300] *= 1e-3
    x[-len(SPECIAL) :] = SPECIAL
    y = rng.uniform(-3, 3, 512)
    y[:40] = np.round(y[:40])
    y[100 : 100 + len(SPECIAL)] = SPECIAL
    return x.astype(dtype), y.astype(dtype)


def close(name, got, want, rtol, atol):
    same = np.isclose(got, want, rtol=rtol, atol=atol, equal_nan=True) | (np.isinf(got) & (got == want))
    assert same.all(), f"{name}: {got[~same][:4]} instead of {want[~same][:4]}"


@pytest.mark.parametrize("flags", [(), ("-DSOFT_MATH",)], ids=["library", "own"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_functions_agree_with_numpy(lanes, rng, flags, dtype):
    kernel = lanes.compile(text("m", UNARY, BINARY), "f32" if dtype == np.float32 else "f64", flags)
    x, y = points(rng, dtype, 80.0)
    out = np.zeros((len(UNARY) + len(BINARY), 512), dtype)
    kernel((1,), (512,), 0, [x, y, out, 512])
    rtol, atol = (1e-6, 3e-7) if dtype == np.float32 else (1e-13, 1e-14)
    with np.errstate(all="ignore"):
        wide = x.astype(np.float64)
        for row, (name, function) in enumerate(UNARY.items()):
            close(name, out[row], function(wide).astype(dtype), rtol, atol)
        for row, (name, function) in enumerate(BINARY.items(), len(UNARY)):
            close(name, out[row], function(x, y), rtol, atol)


def test_fast_functions_are_good_to_a_millionth(lanes, rng):
    kernel = lanes.compile(text("fast", FAST, {"div": None}), "f32")
    x, y = points(rng, np.float32, 20.0)
    x, y = (
        np.nan_to_num(x, nan=1, posinf=30, neginf=-30),
        np.where(y == 0, 1, np.nan_to_num(y, nan=1, posinf=3, neginf=-3)),
    )
    y = y.astype(np.float32)
    out = np.zeros((len(FAST) + 1, 512), np.float32)
    kernel((1,), (512,), 0, [x, y, out, 512])
    with np.errstate(all="ignore"):
        for row, (name, function) in enumerate(FAST.items()):
            close(name, out[row], function(x.astype(np.float64)).astype(np.float32), 5e-6, 1e-6)
        close("div", out[-1], x / y, 2e-6, 0)


@pytest.mark.parametrize(("type", "dtype"), [("i32", np.int32), ("i64", np.int64), ("u8", np.uint8), ("i8", np.int8)])
def test_integer_functions_follow_the_primitives(lanes, rng, type, dtype):
    from mgx_core.ops.scalar import NUMPY

    names = ["div", "mod", "fmod", "pow", "min", "max", "shift_left", "shift_right"]
    body = "\n".join(f"  o[{k} * n + i] = m::{name}(x[i], y[i]);" for k, name in enumerate(names))
    body += f"\n  o[{len(names)} * n + i] = m::abs(x[i]); o[{len(names) + 1} * n + i] = m::sign(x[i]);"
    source = f"KERNEL(1024) k(const {type}* x, const {type}* y, {type}* o, u32 n) {{ u32 i = threadIdx.x;\n{body}\n}}"
    info = np.iinfo(dtype)
    x = rng.integers(max(info.min, -1000), min(info.max, 1000), 256).astype(dtype)
    y = rng.integers(max(info.min, -9), 70, 256).astype(dtype)
    y[:4], x[0] = [0, 1, 2, 3], info.min + 1
    out = np.zeros((len(names) + 2, 256), dtype)
    lanes.compile(source)((1,), (256,), 0, [x, y, out, 256])
    keep = (y >= 0) | (x != 0)  # 0 to a negative power is undefined
    with np.errstate(all="ignore"):
        for row, name in enumerate(names):
            np.testing.assert_array_equal(out[row][keep], NUMPY[name](x, y).astype(dtype)[keep], err_msg=name)
        np.testing.assert_array_equal(out[-2], np.abs(x))
        np.testing.assert_array_equal(out[-1], np.sign(x))


def test_division_of_the_lowest_integer_by_minus_one_wraps(lanes):
    x, y, out = np.array([-(1 << 31)], np.int32), np.array([-1], np.int32), np.zeros(3, np.int32)
    source = """KERNEL(64) k(const i32* x, const i32* y, i32* o) { o[0] = m::div(x[0], y[0]);
      o[1] = m::mod(x[0], y[0]); o[2] = m::fmod(x[0], y[0]); }"""
    lanes.compile(source)((1,), (32,), 0, [x, y, out])
    assert out.tolist() == [-(1 << 31), 0, 0]
