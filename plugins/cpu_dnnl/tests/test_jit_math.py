"""Every primitive over its range, compared with float64 numpy."""

from __future__ import annotations

import numpy as np
import pytest
from run_loops import run_numpy

from mgx_core import dtype as dt
from mgx_core.ops.scalar import NUMPY, PRIMITIVES
from mgx_cpu_dnnl.jit.code import Code, V
from mgx_cpu_dnnl.jit.element import MEMORY, convert, from_memory, to_memory
from mgx_cpu_dnnl.jit.engine import Engine
from mgx_cpu_dnnl.jit.graph import Graph, walk
from mgx_cpu_dnnl.jit.kernel import JitKernel
from mgx_cpu_dnnl.jit.primitive import apply

AVX2 = "x86-64-v3"
INTEGERS = (dt.int8, dt.uint8, dt.int16, dt.int32, dt.uint32, dt.int64, dt.uint64)


@pytest.fixture(scope="module", params=["host", "avx2", "other"])
def engine(request):
    """An engine; other: divides where the host's code uses an estimate, and vice versa."""
    made = Engine(AVX2, cache=None) if request.param == "avx2" else Engine(cache=None)
    made.divides ^= request.param == "other"
    return made


def run(engine, name, dtype, arrays, lanes=None):
    """Runs a primitive on arrays of equal length (a multiple of 16 elements)."""
    arity, flag, _ = PRIMITIVES.get(name, (1, False, None))  # sigmoids are composed in graphs
    types = [dt.bool_, dtype, dtype] if name == "where" else [dtype] * arity
    result = dt.bool_ if flag else dtype
    n = lanes if lanes is not None else engine.lanes

    def build(c: Code) -> None:
        bases = [c.load(c.gep(V("%buffers", "ptr", 0), i, "ptr"), "ptr", 0) for i in range(arity + 1)]

        def step(i, _):
            args = []
            for base, t in zip(bases, types, strict=False):
                args.append(from_memory(c, c.load(c.gep(base, i, MEMORY[t]), MEMORY[t], n), t))
            out = apply(c, name, dtype, args)
            c.store(c.gep(bases[-1], i, MEMORY[result]), to_memory(c, out, result))
            return []

        c.loop(V("%begin", "i64", 0), V("%end", "i64", 0), max(n, 1), step)

    code = engine.function(f"test {name} {dtype} {n}", build)
    size = arrays[0].size
    assert size % 16 == 0
    out = np.empty(size, result.numpy)
    run_numpy(JitKernel(name, code, size, 1, (), 0, arity, 1), [*arrays, out])
    return out


SPECIAL = [
    0.0,
    -0.0,
    np.inf,
    -np.inf,
    np.nan,
    1.0,
    -1.0,
    1e-45,
    -1e-45,
    1e-38,
    1.1754944e-38,
    3.4028235e38,
    -3.4028235e38,
    0.5,
]


def floats(low, high, n=1 << 15, log=False, seed=0):
    r = np.random.default_rng(seed)
    if log:
        x = np.exp(r.uniform(np.log(low), np.log(high), n))
    else:
        x = r.uniform(low, high, n)
    return np.concatenate([x, SPECIAL, np.ones(2)]).astype(np.float32)


def bits(n=1 << 15, seed=0):
    """Returns floats of all magnitudes and signs."""
    x = np.random.default_rng(seed).integers(0, 1 << 32, n, dtype=np.uint64).astype(np.uint32).view(np.float32)
    return np.concatenate([x, np.array([*SPECIAL, 2.0, 3.0], np.float32)])


def ulps(out, exact):
    """Returns the distance in units in the last place of the exact result (at least of the smallest denormal)."""
    with np.errstate(all="ignore"):
        near = exact.astype(np.float32)
    assert np.array_equal(np.isnan(out), np.isnan(near)), out[np.isnan(out) != np.isnan(near)]
    whole = np.isfinite(near)
    edge = ~whole & ~np.isnan(near)
    over = edge & np.isfinite(out)  # the largest finite float is close enough
    assert np.all(np.abs(out[over]) > 3.4028e38)
    assert np.array_equal(np.sign(out[edge]), np.sign(near[edge]))
    size = np.clip(np.abs(near[whole]), np.float32(1.1754944e-38), np.float32(3.4e38))
    unit = np.spacing(size).astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        away = np.abs(out[whole].astype(np.float64) - exact[whole]) / unit
    away[~np.isfinite(out[whole])] = np.where(np.abs(near[whole][~np.isfinite(out[whole])]) > 3.4028e38, 0, 1e9)
    return away.max(initial=0)


RANGES = {
    "exp": (-104, 89), "expm1": (-30, 89), "log": (1e-38, 1e38), "log2": (1e-38, 1e38), "log1p": (-0.9999, 10),
    "erf": (-5, 5), "tanh": (-11, 11), "sin": (-1000, 1000), "cos": (-1000, 1000), "tan": (-1000, 1000),
    "asin": (-1, 1), "acos": (-1, 1), "atan": (-100, 100), "sinh": (-80, 80), "cosh": (-80, 80), "asinh": (-100, 100),
    "acosh": (1, 100), "atanh": (-1, 1), "sqrt": (0, 100), "rsqrt": (1e-10, 100), "floor": (-100, 100),
    "ceil": (-100, 100), "round": (-100, 100), "trunc": (-100, 100), "abs": (-10, 10), "neg": (-10, 10), "sign": (-10, 10),
}  # fmt: skip
ULPS = {
    "erf": 3,
    "tanh": 6,
    "log1p": 3,
    "rsqrt": 2,
    "exp": 1.5,
    "expm1": 2.5,
    "log": 1.5,
    "log2": 2,
    "sinh": 2,
    "asinh": 2,
    "acosh": 2,
    "atanh": 2,
}


@pytest.mark.parametrize("name", RANGES)
def test_unary_float(engine, name):
    low, high = RANGES[name]
    for x in (
        floats(low, high, log=name in ("log", "log2")),
        floats(1e-12, 1, log=True),
        -floats(1e-12, 1, log=True),
        bits(),
    ):
        with np.errstate(all="ignore"):
            exact = NUMPY[name](x.astype(np.float64))
        out = run(engine, name, dt.float32, [x])
        assert ulps(out, exact) <= ULPS.get(name, 1.01)


def test_sigmoid(engine):
    for x in (floats(-87, 100), floats(1e-12, 1, log=True), -floats(1e-12, 1, log=True)):
        with np.errstate(all="ignore"):
            exact = 1 / (1 + np.exp(-x.astype(np.float64)))
        assert ulps(run(engine, "sigmoid", dt.float32, [x]), exact) <= 3
    out = run(engine, "sigmoid", dt.float32, [x := bits()])
    assert np.array_equal(np.isnan(out), np.isnan(x)) and (out[x < -87] == 0).all() and (out[x > 87] == 1).all()


def test_erf_is_one_where_it_rounds_to_one(engine):
    x = np.concatenate([floats(4, 8), -floats(4, 8)])
    x = x[np.abs(x) >= 4][: 1 << 15]
    assert np.array_equal(run(engine, "erf", dt.float32, [x]), np.sign(x))


@pytest.mark.parametrize("name", ["exp", "log", "erf", "tanh", "sin", "expm1"])
def test_scalar_form(engine, name):
    low, high = RANGES[name]
    x = floats(low, high, 1 << 10)
    with np.errstate(all="ignore"):
        exact = NUMPY[name](x.astype(np.float64))
    assert ulps(run(engine, name, dt.float32, [x], lanes=0), exact) <= ULPS.get(name, 1.01)


@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "min", "max", "pow", "mod", "fmod"])
def test_binary_float(engine, name):
    for seed, (a, b) in enumerate(
        [(floats(-10, 10), floats(-3, 3, seed=1)[::-1].copy()), (bits(), bits(seed=5)[::-1].copy())]
    ):
        with np.errstate(all="ignore"):
            kind = np.float32 if name in ("mod", "fmod") else np.float64
            exact = NUMPY[name](a.astype(kind), b.astype(kind)).astype(np.float64)
        if name == "pow" and seed == 0:
            a = np.abs(a)
            with np.errstate(all="ignore"):
                exact = np.power(a.astype(np.float64), b.astype(np.float64))
        assert ulps(run(engine, name, dt.float32, [a, b]), exact) <= 1.01


def test_pow_cases(engine):
    values = np.array(
        [0.0, -0.0, 1, -1, 2, -2, 0.5, -0.5, 3, -3, np.inf, -np.inf, np.nan, 1e30, 1e-30, -7.5], np.float32
    )
    a, b = (x.ravel().copy() for x in np.meshgrid(values, values))
    with np.errstate(all="ignore"):
        exact = np.power(a, b)
    out = run(engine, "pow", dt.float32, [a, b])
    assert ulps(out, exact.astype(np.float64)) <= 1.01
    whole = ~np.isnan(exact)
    assert np.array_equal(np.signbit(out[whole]), np.signbit(exact[whole]))


@pytest.mark.parametrize(
    "name", [n for n, (arity, _, _) in PRIMITIVES.items() if not n.startswith(("bitwise", "shift"))]
)
def test_float64(engine, name):
    arity = PRIMITIVES[name][0]
    x = [floats(-3, 3, 1 << 8, seed=i).astype(np.float64) for i in range(arity)]
    if name == "where":
        x[0] = x[0] > 0
    with np.errstate(all="ignore"):
        exact = NUMPY[name](*x)
    out = run(engine, name, dt.float64, x)
    if out.dtype == np.bool_:
        assert np.array_equal(out, exact)
    else:
        np.testing.assert_allclose(out, exact, rtol=1e-14, atol=1e-300)


WIDE = {"exp": (-760, 720), "tanh": (-25, 25), "sigmoid": (-708, 60), "sin": (-1e4, 1e4), "cos": (-1e4, 1e4)}


def wide_exact(name, x):
    wide = x.astype(np.longdouble)
    with np.errstate(all="ignore"):
        return 1 / (1 + np.exp(-wide)) if name == "sigmoid" else getattr(np, name)(wide)


@pytest.mark.skipif(np.finfo(np.longdouble).nmant < 60, reason="there is no wider float type to compare with")
@pytest.mark.parametrize("name", WIDE)
def test_float64_over_all_of_its_range(engine, name):
    low, high = WIDE[name]
    r = np.random.default_rng(2)
    special = [
        0.0,
        -0.0,
        np.inf,
        -np.inf,
        np.nan,
        1e-320,
        -1e-320,
        2.2250738585072014e-308,
        1.7e308,
        -1.7e308,
        709.78,
        -745.1,
    ]
    near = np.array([k * np.pi / 2 for k in range(1, 500)])  # next to the zeros of angles
    places = [r.uniform(low, high, 1 << 14), np.exp(r.uniform(-80, 0, 1 << 12)), -np.exp(r.uniform(-80, 0, 1 << 12))]
    x = np.concatenate([*places, special, near, r.uniform(-1e9, 1e9, 1 << 12), r.uniform(-1e12, 1e12, 64)])
    if name == "sigmoid":
        x = x[(x > -708) | (x < -800)]  # in between, e^-x overflows, and 0 is close enough
    x = np.concatenate([x, np.zeros(-x.size % 16)])
    out, exact = run(engine, name, dt.float64, [x]), wide_exact(name, x)
    with np.errstate(all="ignore"):
        rounded = exact.astype(np.float64)
        assert np.array_equal(np.isnan(out), np.isnan(rounded))
        assert np.array_equal(np.isinf(out), np.isinf(rounded))
        finite = np.isfinite(rounded)
        unit = np.spacing(np.maximum(np.abs(rounded[finite]), np.finfo(np.float64).smallest_normal))
        assert (np.abs(out[finite] - exact[finite]) / unit).max() <= {"sin": 1, "cos": 1, "exp": 1.5}.get(name, 3)
    if name in ("tanh", "sin"):
        assert np.array_equal(np.signbit(out[x == 0]), np.signbit(x[x == 0]))


@pytest.mark.pairs
@pytest.mark.parametrize(
    "name",
    [
        "lt",
        "le",
        "gt",
        "ge",
        "eq",
        "ne",
        "logical_and",
        "logical_or",
        "logical_xor",
        "isnan",
        "isinf",
        "logical_not",
        "where",
    ],
)
@pytest.mark.parametrize("dtype", [dt.float32, dt.int32, dt.uint8, dt.int64, dt.bool_], ids=str)
def test_tests(engine, name, dtype):
    if name in ("isnan", "isinf") and not dtype.is_float:
        pytest.skip("floats only")
    r = np.random.default_rng(3)
    raw = [
        bits(1 << 8, seed=i) if dtype.is_float else r.integers(0, 3, 256).astype(dtype.numpy)
        for i in range(PRIMITIVES[name][0])
    ]
    if name == "where":
        raw[0] = r.integers(0, 2, raw[1].size).astype(bool)
    with np.errstate(all="ignore"):
        expected = NUMPY[name](*raw)
    out = run(engine, name, dtype, raw)
    assert np.array_equal(out, expected, equal_nan=dtype.is_float)


INTEGER = ["add", "sub", "mul", "div", "neg", "abs", "sign", "min", "max", "mod", "fmod", "bitwise_and", "bitwise_or",
           "bitwise_xor", "bitwise_not", "shift_left", "shift_right", "pow"]  # fmt: skip


@pytest.mark.pairs
@pytest.mark.parametrize("name", INTEGER)
@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integers(engine, name, dtype):
    r = np.random.default_rng(7)
    low, high = int(dtype.lowest), int(dtype.highest)
    edge = np.array([low, high, 0, 1, low + 1, high - 1, 2, 3], dtype.numpy)
    wide = r.integers(low, high, 448, dtype=dtype.numpy, endpoint=True)
    a = np.concatenate([np.repeat(edge, 8), wide])
    b = np.concatenate([np.tile(edge, 8), r.integers(max(low, -9), 9, 448).astype(dtype.numpy)])
    if dtype.kind == "i":
        b[7] = b[15] = -1
    if name == "pow":
        b = np.clip(b, 0, 70).astype(dtype.numpy)
    args = [a, b][: PRIMITIVES[name][0]]
    with np.errstate(all="ignore"):
        expected = NUMPY[name](*args).astype(dtype.numpy)
    assert np.array_equal(run(engine, name, dtype, args), expected)


@pytest.mark.parametrize("name", ["asin", "acos", "atan"])
def test_inverse_angles_are_vectors(name):
    """They contain no scalar calls of libm."""
    c = Code(16, True)
    apply(c, name, dt.float32, [V("%x", "float", 16)])
    assert not c.extra and not any(f"@{name}f" in line for line in c.declared.values())


def test_whole_numbers_of_floats_are_vectors():
    """LLVM's saturating conversion is scalarized and therefore not used."""
    c = Code(16, True)
    for target in (dt.int32, dt.uint32, dt.int64, dt.uint64):
        convert(c, V("%x", "float", 16), dt.float32, target)
    assert not any(".sat." in name for name in c.declared)


@pytest.mark.parametrize("name", ["sigmoid", "tanh"])
@pytest.mark.parametrize("divides", [False, True])
def test_a_division_or_an_estimate(name, divides):
    c = Code(16, True, divides)
    apply(c, name, dt.float32, [V("%x", "float", 16)])
    assert any("fdiv" in line for line in c.lines) == divides
    assert any("rcp14" in name for name in c.declared) != divides


def test_processors_of_amd_divide():
    assert Engine("znver5", cache=None).divides and not Engine("sapphirerapids", cache=None).divides


@pytest.mark.parametrize("power", [3.0, 4.0])
def test_small_whole_powers_are_products(power):
    graph = Graph((16,), frozenset())
    x = graph.load(0, dt.float32, (1,))
    made = graph.prim("pow", dt.float32, (x, graph.const(power, dt.float32)))
    assert {n.word for n in walk([made]) if n.kind == "prim"} == {"mul"}


@pytest.mark.parametrize("name", ["fmod", "mod"])
def test_remainders_are_exact(engine, name):
    r = np.random.default_rng(7)
    b = np.concatenate([r.integers(1, 50, 800) / 7, 10.0 ** r.uniform(-20, 20, 800)]).astype(np.float32)
    a = (b * np.concatenate([r.integers(-(10**6), 10**6, 800), 10.0 ** r.uniform(-3, 12, 800)])).astype(np.float32)
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 1e-40], np.float32)
    pairs = np.array(np.meshgrid(special, special), np.float32).reshape(2, -1)
    a, b = np.concatenate([a, pairs[0]]), np.concatenate([b, pairs[1]])
    with np.errstate(all="ignore"):
        exact = {"fmod": np.fmod, "mod": np.mod}[name](a, b)
    out = run(engine, name, dt.float32, [a, b])
    np.testing.assert_array_equal(out, exact)
    assert np.array_equal(np.signbit(out)[~np.isnan(exact)], np.signbit(exact)[~np.isnan(exact)])
