"""Each oneDNN primitive, compared with numpy."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from mgx_core.errors import DeviceError, ParameterError, UnsupportedError
from mgx_cpu_dnnl.native_library import native

n = native()
MD = n.MemoryDesc
RNG = np.random.default_rng(5)


def floats(*dims: int) -> np.ndarray:
    return RNG.standard_normal(dims).astype(np.float32)


def run(primitive: Any, args: Mapping[int, np.ndarray], weights: Mapping[int, Any] | None = None) -> None:
    """Executes a primitive on arrays in place, and on weights packed from row-major arrays."""
    addresses = {arg: a.ctypes.data for arg, a in args.items()}
    kept = []
    for arg, (array, md) in (weights or {}).items():
        kept.append(n.pack(array.ctypes.data, md, primitive.md(arg)))
        addresses[arg] = kept[-1].address
    primitive.execute(addresses)


def convolved(
    x: np.ndarray, w: np.ndarray, strides: Any, dilations: Any, begin: Any, end: Any, groups: int
) -> np.ndarray:
    x = np.pad(x, ((0, 0), (0, 0), *zip(begin, end, strict=True))).astype(np.float64)
    o, per, kh, kw = w.shape
    h = (x.shape[2] - dilations[0] * (kh - 1) - 1) // strides[0] + 1
    v = (x.shape[3] - dilations[1] * (kw - 1) - 1) // strides[1] + 1
    out = np.zeros((x.shape[0], o, h, v))
    for g in range(groups):
        own = slice(g * o // groups, (g + 1) * o // groups)
        part = x[:, g * per : (g + 1) * per]
        for i in range(kh):
            for j in range(kw):
                a, b = i * dilations[0], j * dilations[1]
                window = part[:, :, a : a + h * strides[0] : strides[0], b : b + v * strides[1] : strides[1]]
                out[:, own] += np.einsum("nchw,oc->nohw", window[:, :, :h, :v], w[own, :, i, j])
    return out


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
@pytest.mark.parametrize(
    ("i", "o", "groups", "strides", "dilations", "begin", "end"),
    [
        (8, 16, 1, (1, 1), (1, 1), (1, 1), (1, 1)),
        (3, 16, 1, (2, 2), (1, 1), (0, 0), (1, 1)),
        (16, 16, 16, (1, 2), (1, 1), (1, 0), (1, 2)),
        (8, 12, 4, (1, 1), (2, 2), (2, 2), (2, 2)),
    ],
)
def test_convolution(
    layout: str, i: int, o: int, groups: int, strides: Any, dilations: Any, begin: Any, end: Any
) -> None:
    x, w, b = floats(2, i, 9, 10), floats(o, i // groups, 3, 3), floats(o)
    expected = np.maximum(convolved(x, w, strides, dilations, begin, end, groups) + b[:, None, None], 0)
    wd = (o, i // groups, 3, 3) if groups == 1 else (groups, o // groups, i // groups, 3, 3)
    p = n.convolution(
        MD(x.shape, "float32", layout),
        MD(wd, "float32", "any"),
        MD((o,), "float32"),
        MD(expected.shape, "float32", layout),
        strides=strides,
        dilations=dilations,
        padding_begin=begin,
        padding_end=end,
        post_ops=[("eltwise", "relu")],
    )
    order = (0, 2, 3, 1) if layout == "nhwc" else (0, 1, 2, 3)
    source = np.ascontiguousarray(x.transpose(order))
    got = np.empty([expected.shape[a] for a in order], np.float32)
    run(p, {n.ARG_SRC: source, n.ARG_BIAS: b, n.ARG_DST: got}, {n.ARG_WEIGHTS: (w, MD(wd, "float32"))})
    np.testing.assert_allclose(got, expected.transpose(order), rtol=1e-4, atol=1e-4)
    twin = p.single()
    assert twin is not None and twin.threads == 1 and twin.weights == p.weights
    again = np.empty_like(got)
    run(twin, {n.ARG_SRC: source, n.ARG_BIAS: b, n.ARG_DST: again}, {n.ARG_WEIGHTS: (w, MD(wd, "float32"))})
    np.testing.assert_allclose(again, got, rtol=1e-5, atol=1e-5)


def test_convolution_of_one_and_three_spatial_axes() -> None:
    for rank, layout in ((1, "nwc"), (3, "ndhwc")):
        x, w = np.ones((1, 4, *[5] * rank), np.float32), np.ones((6, 4, *[3] * rank), np.float32)
        ones = [1] * rank
        p = n.convolution(
            MD(x.shape, "float32", layout), MD(w.shape, "float32", "any"), None, MD((1, 6, *[5] * rank), "float32", layout),
            strides=ones, dilations=ones, padding_begin=ones, padding_end=ones,
        )  # fmt: skip
        got = np.empty((1, *[5] * rank, 6), np.float32)
        run(p, {n.ARG_SRC: x, n.ARG_DST: got}, {n.ARG_WEIGHTS: (w, MD(w.shape, "float32"))})
        assert got[(0, *[2] * rank, 0)] == 4 * 3**rank and got[(0, *[0] * rank, 5)] == 4 * 2**rank


def test_deconvolution() -> None:
    x, w = floats(1, 4, 5, 5), floats(4, 6, 3, 3)  # weights in ONNX's order: inputs first
    p = n.deconvolution(
        MD(x.shape, "float32", "nhwc"),
        MD((6, 4, 3, 3), "float32", "any"),
        None,
        MD((1, 6, 9, 9), "float32", "nhwc"),
        strides=(2, 2),
        dilations=(1, 1),
        padding_begin=(1, 1),
        padding_end=(1, 1),
    )
    expected = np.zeros((1, 6, 11, 11))
    for i in range(5):
        for j in range(5):
            expected[0, :, 2 * i : 2 * i + 3, 2 * j : 2 * j + 3] += np.einsum("c,cohw->ohw", x[0, :, i, j], w)
    got = np.empty((1, 9, 9, 6), np.float32)
    weights = {n.ARG_WEIGHTS: (w, MD((4, 6, 3, 3), "float32").permuted((1, 0, 2, 3)))}
    run(p, {n.ARG_SRC: np.ascontiguousarray(x.transpose(0, 2, 3, 1)), n.ARG_DST: got}, weights)
    np.testing.assert_allclose(got, expected[:, :, 1:-1, 1:-1].transpose(0, 2, 3, 1), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("packed", [True, False])
def test_matmul_with_bias_sum_and_gelu(packed: bool) -> None:
    x, w, b, y = floats(7, 33), floats(33, 20), floats(1, 20), floats(7, 20)
    p = n.matmul(
        MD(x.shape, "float32"),
        MD(w.shape, "float32", "any" if packed else None),
        MD(y.shape, "float32"),
        MD(b.shape, "float32"),
        post_ops=[("sum", 0.5), ("eltwise", "gelu_erf")],
    )
    z = x.astype(np.float64) @ w + b + 0.5 * y
    expected = z / 2 * (1 + np.vectorize(math.erf)(z / math.sqrt(2)))
    run(p, {n.ARG_SRC: x, n.ARG_BIAS: b, n.ARG_DST: y}, {n.ARG_WEIGHTS: (w, MD(w.shape, "float32"))})
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-4)


def test_matmul_over_broadcast_batches_with_transposed_strides_and_a_binary_post_op() -> None:
    x, w, mask = floats(2, 3, 5, 8), floats(1, 3, 6, 8), floats(2, 1, 1, 6)
    p = n.matmul(
        MD(x.shape, "float32"),
        MD((1, 3, 8, 6), "float32", (144, 48, 1, 8)),
        MD((2, 3, 5, 6), "float32"),
        post_ops=[("eltwise", "linear", 0.25), ("binary", "add", MD(mask.shape, "float32"))],
    )
    assert p.post_op_args[0] == 0
    y = np.empty((2, 3, 5, 6), np.float32)
    run(p, {n.ARG_SRC: x, n.ARG_WEIGHTS: w, n.ARG_DST: y, p.post_op_args[1]: mask})
    np.testing.assert_allclose(y, 0.25 * x @ w.transpose(0, 1, 3, 2) + mask, rtol=1e-4, atol=1e-4)


def test_matmul_of_bytes_with_scales_and_zero_points() -> None:
    x = RNG.integers(0, 256, (6, 32)).astype(np.uint8)
    w = RNG.integers(-64, 64, (32, 16)).astype(np.int8)  # without VNNI, sums of two products saturate at 16 bits
    x_scale, w_scale, zero = np.array([0.02], np.float32), floats(16) ** 2 / 50, np.array([7], np.int32)
    p = n.matmul(
        MD(x.shape, "uint8"),
        MD(w.shape, "int8", "any"),
        MD((6, 16), "float32"),
        scales={n.ARG_SRC: 0, n.ARG_WEIGHTS: 2},
        zero_points={n.ARG_SRC: 0},
    )
    program = n.NativeProgram("bytes", 0)
    source, out = program.input(np.uint8, x.shape), program.output(np.float32, (6, 16))
    packed = n.pack(w.ctypes.data, MD(w.shape, "int8"), p.weights)

    def literal(a: np.ndarray) -> int:
        return program.literal(a.ctypes.data, a.nbytes, a)

    args = {
        n.ARG_SRC: source,
        n.ARG_WEIGHTS: program.literal(packed.address, packed.nbytes, packed),
        n.ARG_DST: out,
        n.ARG_ATTR_SCALES | n.ARG_SRC: (literal(x_scale), 0, MD((1,), "float32")),
        n.ARG_ATTR_SCALES | n.ARG_WEIGHTS: (literal(w_scale), 0, MD((16,), "float32")),
        n.ARG_ATTR_ZERO_POINTS | n.ARG_SRC: (literal(zero), 0, MD((1,), "int32")),
    }
    program.add_primitive("matmul", p, args)
    program.finish()
    expected = ((x.astype(np.float64) - 7) * 0.02) @ (w * w_scale.astype(np.float64))
    np.testing.assert_allclose(program.run_arrays([x])[0], expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("mode", "corner"),
    [("max", lambda x: x.max()), ("average", lambda x: x.mean()), ("average_with_padding", lambda x: x.sum() / 9)],
)
def test_pooling_at_a_padded_corner(mode: Any, corner: Any) -> None:
    x = floats(1, 6, 6, 16) - 5
    p = n.pooling(
        MD((1, 16, 6, 6), "float32", "nhwc"), MD((1, 16, 3, 3), "float32", "nhwc"), mode=mode,
        kernel=(3, 3), strides=(2, 2), dilations=(1, 1), padding_begin=(1, 1), padding_end=(0, 0),
    )  # fmt: skip
    y = np.empty((1, 3, 3, 16), np.float32)
    run(p, {n.ARG_SRC: x, n.ARG_DST: y})
    assert y[0, 0, 0, 3] == pytest.approx(corner(x[0, :2, :2, 3]), rel=1e-5)
    inner = x[0, 1:4, 1:4, 3]
    assert y[0, 1, 1, 3] == pytest.approx(inner.max() if mode == "max" else inner.mean(), rel=1e-5)


def test_reorder() -> None:
    x, y = floats(1, 4, 3, 5), np.empty((1, 3, 5, 4), np.float32)
    run(n.reorder(MD(x.shape, "float32"), MD(x.shape, "float32", "nhwc")), {n.ARG_SRC: x, n.ARG_DST: y})
    np.testing.assert_array_equal(y, x.transpose(0, 2, 3, 1))


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def test_lstm_over_both_directions() -> None:
    t, b, c, h = 5, 2, 8, 16
    x, wl, wi, bias = floats(t, b, c), floats(1, 2, c, 4, h) / 4, floats(1, 2, h, 4, h) / 4, floats(1, 2, 4, h)
    p = n.lstm(
        MD(x.shape, "float32"), MD(wl.shape, "float32", "any"), MD(wi.shape, "float32", "any"), MD((t, b, 2 * h), "float32"),
        bias=MD(bias.shape, "float32"), direction="bidirectional",
    )  # fmt: skip
    y = np.empty((t, b, 2 * h), np.float32)
    weights = {n.ARG_WEIGHTS_LAYER: (wl, MD(wl.shape, "float32")), n.ARG_WEIGHTS_ITER: (wi, MD(wi.shape, "float32"))}
    run(p, {n.ARG_SRC_LAYER: x, n.ARG_BIAS: bias, n.ARG_DST_LAYER: y}, weights)
    for d in range(2):
        state = cell = np.zeros((b, h))
        for step in range(t) if d == 0 else reversed(range(t)):
            gates = (
                np.einsum("bc,cgh->gbh", x[step], wl[0, d])
                + np.einsum("bk,kgh->gbh", state, wi[0, d])
                + bias[0, d][:, None]
            )
            i, f, g, o = sigmoid(gates[0]), sigmoid(gates[1]), np.tanh(gates[2]), sigmoid(gates[3])
            cell = f * cell + i * g
            state = o * np.tanh(cell)
            np.testing.assert_allclose(y[step, :, d * h : (d + 1) * h], state, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("kind", ["gru", "lbr_gru"])
def test_gru(kind: str) -> None:
    t, b, c, h = 4, 3, 8, 16
    rows = 4 if kind == "lbr_gru" else 3
    x, wl, wi, bias = floats(t, b, c), floats(1, 1, c, 3, h) / 4, floats(1, 1, h, 3, h) / 4, floats(1, 1, rows, h)
    p = getattr(n, kind)(
        MD(x.shape, "float32"), MD(wl.shape, "float32", "any"), MD(wi.shape, "float32", "any"), MD((t, b, h), "float32"),
        bias=MD(bias.shape, "float32"),
    )  # fmt: skip
    y = np.empty((t, b, h), np.float32)
    weights = {n.ARG_WEIGHTS_LAYER: (wl, MD(wl.shape, "float32")), n.ARG_WEIGHTS_ITER: (wi, MD(wi.shape, "float32"))}
    run(p, {n.ARG_SRC_LAYER: x, n.ARG_BIAS: bias, n.ARG_DST_LAYER: y}, weights)
    state = np.zeros((b, h))
    for step in range(t):
        a = np.einsum("bc,cgh->gbh", x[step], wl[0, 0]) + bias[0, 0, :3, None]
        r = np.einsum("bk,kgh->gbh", state, wi[0, 0])
        update, reset = sigmoid(a[0] + r[0]), sigmoid(a[1] + r[1])
        if kind == "gru":
            new = np.tanh(a[2] + (reset * state) @ wi[0, 0, :, 2])
        else:
            new = np.tanh(a[2] + reset * (r[2] + bias[0, 0, 3]))
        state = update * state + (1 - update) * new
        np.testing.assert_allclose(y[step], state, rtol=1e-3, atol=1e-4)


def test_missing_onednn_features_and_wrong_calls_are_distinguished() -> None:
    with pytest.raises(UnsupportedError, match="element type int64"):
        MD((2,), "int64")
    with pytest.raises(UnsupportedError, match="unimplemented"):
        n.matmul(MD((2, 3), "float64"), MD((3, 5), "float64"), MD((2, 5), "float64"))
    with pytest.raises(ParameterError, match="2 values are needed"):
        n.pooling(
            MD((1, 8, 4, 4), "float32"), MD((1, 8, 2, 2), "float32"), mode="max",
            kernel=(2,), strides=(2, 2), dilations=(1, 1), padding_begin=(0, 0), padding_end=(0, 0),
        )  # fmt: skip
    with pytest.raises(DeviceError, match="invalid arguments"):
        n.matmul(MD((2, 3), "float32"), MD((4, 5), "float32"), MD((2, 5), "float32"))
    with pytest.raises(ParameterError, match="no attribute beta"):
        n.matmul(MD((2, 3), "float32"), MD((3, 5), "float32"), MD((2, 5), "float32"), beta=1)
    with pytest.raises(UnsupportedError, match="post-op magic"):
        n.matmul(MD((2, 3), "float32"), MD((3, 5), "float32"), MD((2, 5), "float32"), post_ops=[("magic",)])


def test_memory_descriptors_describe_themselves() -> None:
    d = MD((1, 8, 3, 4), "bf16", "nhwc")
    assert (d.layout, d.strides, d.dtype, d.nbytes) == ("acdb", (96, 1, 32, 8), "bfloat16", 192)
    assert d == MD((1, 8, 3, 4), "bfloat16", (96, 1, 32, 8)) and hash(d) == hash(MD((1, 8, 3, 4), "bfloat16", "nhwc"))
    assert d != MD((1, 8, 3, 4), "bfloat16") and d != "acdb"
    blocked = MD((1, 20, 3, 4), "float32", "nChw16c")
    assert blocked.strides is None and not blocked.is_plain and blocked.padded_dims == (1, 32, 3, 4)
    assert blocked.layout == "aBcd16b" and blocked.nbytes == 32 * 12 * 4
    part = MD((1, 8, 3, 4), "float32").part((1, 2, 3, 4), (0, 3, 0, 0))
    assert part.dims == (1, 2, 3, 4) and part.offset == 36
    assert MD((2, 3), "float32").permuted((1, 0)).strides == (1, 3)
    assert MD((2, 6), "float32").reshaped((2, 2, 3)).dims == (2, 2, 3)
    assert MD.absent().is_absent and MD((2,), "float32", "any").is_any


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: MD((2, 3), "float32", "aa"), "layout aa must be a permutation of the letters of 2 axes"),
        (lambda: MD((2, 3), "float32", "abc"), "layout abc must name 2 axes, got 3"),
        (lambda: MD((2, 3), "float32", "aB4b"), "unknown blocked layout aB4b; use one such as nChw16c"),
        (lambda: MD((2, 3), "float32", (1,)), "a stride is needed for each of 2 axes, got 1"),
        (lambda: n.peak_gflops("float16", 1), "float32, bfloat16 and int8, got float16"),
        (
            lambda: n.matmul(MD((2, 3), "float32"), MD((3, 5), "float32"), MD((2, 5), "float32"), fpmath="fast"),
            "fpmath must be strict, bf16, f16, tf32 or any, got fast",
        ),
        (
            lambda: n.matmul(MD((2, 3), "float32"), MD((3, 5), "float32"), MD((2, 5), "float32"), scale=1),
            "no attribute scale; it has post_ops, scales, zero_points, fpmath and deferred",
        ),
    ],
)
def test_wrong_parameters_are_reported_with_what_is_valid(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        call()


def test_the_machine_is_described() -> None:
    features = n.cpu_features()
    assert "avx2" in features and "fma" in features
    assert n.cache_sizes()["line"] in (0, 64, 128)
    assert n.peak_gflops("float32", 1) > 1 and n.read_gbps(1 << 20, 1) > 0.1
    assert n.dnnl_version() >= (3, 2, 0)


def test_primitives_are_planned_for_the_threads_of_the_process() -> None:
    """Not for the machine's processors, of which a control group or the option `threads` may allow only a few."""
    code = (
        "from mgx_cpu_dnnl.native_library import native as n\n"
        "n = n(); n.set_threads(2); d = n.MemoryDesc([64, 64], 'float32')\n"
        "print(n.matmul(d, d, d).threads)"
    )
    env = {**os.environ, "OMP_NUM_THREADS": "7"}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "2"


@pytest.mark.parametrize("pixels", [(6, 6), (3, 11), (12, 4), (5, 5), (7, 7)])
def test_convolutions_of_bytes_write_their_result_alone(pixels: tuple[int, int]):
    """oneDNN's convolution of one element with tile registers wrote past results of 33 to 48 pixels.

    Weights are even and small: without VNNI oneDNN halves them, and sums of two products must fit 16 bits.
    """
    rows, columns = pixels
    x = RNG.integers(-128, 128, (1, rows, columns, 64)).astype(np.int8)
    w = (2 * RNG.integers(-31, 32, (64, 64, 1, 1))).astype(np.int8)
    md = MD([1, 64, rows, columns], "s8", [rows * columns * 64, 1, columns * 64, 64])
    out_md = MD([1, 64, rows, columns], "f32", [rows * columns * 64, 1, columns * 64, 64])
    plain = MD([64, 64, 1, 1], "s8", "oihw")
    made = n.convolution(
        md, MD([64, 64, 1, 1], "s8", "any"), None, out_md,
        strides=[1, 1], dilations=[1, 1], padding_begin=[0, 0], padding_end=[0, 0], zero_points={n.ARG_SRC: 0},
    )  # fmt: skip
    held = np.full(3 * x.size, 7.0, np.float32)
    zero = np.array([-128], np.int32)
    run(
        made,
        {n.ARG_SRC: x, n.ARG_DST: held[x.size :], n.ARG_ATTR_ZERO_POINTS | n.ARG_SRC: zero},
        {n.ARG_WEIGHTS: (w, plain)},
    )
    wanted = (x.astype(np.int64) + 128).reshape(-1, 64) @ w.reshape(64, 64).T.astype(np.int64)
    np.testing.assert_array_equal(held[x.size : 2 * x.size], wanted.reshape(-1))
    np.testing.assert_array_equal(held[2 * x.size :], 7.0)
    np.testing.assert_array_equal(held[: x.size], 7.0)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["spread rows first", "close rows first"])
def test_products_that_differ_only_in_the_step_of_one_row_each_run_their_own_code(order: tuple[int, int]) -> None:
    """oneDNN's cache treats the two as equal, though it may choose different implementations with different packed weights."""
    k = 9 + order[0]
    a, b = floats(4, 1, k), floats(4, k, 32)
    plain = MD([4, k, 32], "float32")
    weights, result = MD([4, k, 32], "float32", "any"), MD([4, 1, 32], "float32")
    made = [n.matmul(MD([4, 1, k], "float32", [k, step, 1]), weights, result) for step in (4 * k, k)]
    for i in order:
        out = np.zeros((4, 1, 32), np.float32)
        run(made[i], {n.ARG_SRC: a, n.ARG_DST: out}, {n.ARG_WEIGHTS: (b, plain)})
        np.testing.assert_allclose(out, a @ b, rtol=1e-5, atol=1e-5)
