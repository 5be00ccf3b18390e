"""Normalizations in all their forms."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx.parser
import pytest

from mgx_core import MgxError
from mgx_onnx.backend import RefBackend

RNG = np.random.default_rng(13)


def rand(*dims: int, dtype: Any = np.float32) -> Any:
    return RNG.uniform(-1, 1, dims).astype(dtype)


def test_lrn(agree: Any) -> None:
    for size in (1, 3, 5, 9):
        agree("LRN", rand(2, 6, 3, 3), opset=13, size=size, alpha=0.3, beta=0.6, bias=1.5)


@pytest.mark.parametrize("dims", [(2, 3), (2, 3, 4), (2, 3, 4, 5), (1, 3, 2, 3, 4)])
@pytest.mark.parametrize("opset", [7, 9, 14, 15])
def test_batch_norm(agree: Any, dims: Any, opset: int) -> None:
    s, b, m, v = rand(3), rand(3), rand(3), rand(3) + 1.5
    agree("BatchNormalization", rand(*dims), s, b, m, v, opset=opset, epsilon=1e-3)


def test_batch_norm_per_activation(run: Any) -> None:
    x, s, b, m, v = rand(2, 3, 4), rand(3, 4), rand(3, 4), rand(3, 4), rand(3, 4) + 1.5
    (y,) = run("BatchNormalization", x, s, b, m, v, opset=7, spatial=0)
    np.testing.assert_allclose(y, (x - m) / np.sqrt(v + 1e-5) * s + b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("opset", "outputs", "mode"),
    [
        (6, 5, {"is_test": 0}),
        (7, 5, {}),
        (9, 5, {}),
        (13, 5, {}),
        (14, 3, {"training_mode": 1}),
        (15, 3, {"training_mode": 1}),
    ],
)
def test_batch_norm_while_training(run: Any, opset: int, outputs: int, mode: dict[str, int]) -> None:
    """From opset 7 to 13, five results instead of one are the mode."""
    x, s, b, m, v = rand(4, 3, 5), rand(3), rand(3), rand(3), rand(3) + 1.5
    y, mean, var, *_ = run("BatchNormalization", x, s, b, m, v, opset=opset, outputs=outputs, momentum=0.8, **mode)
    now, spread = x.mean((0, 2)), x.var((0, 2))
    wanted = (x - now[:, None]) / np.sqrt(spread[:, None] + 1e-5) * s[:, None] + b[:, None]
    np.testing.assert_allclose(y, wanted, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(mean, m * 0.8 + now * 0.2, rtol=1e-5)
    np.testing.assert_allclose(var, v * 0.8 + spread * 0.2, rtol=1e-5)


def test_batch_norm_in_test_mode_with_five_results(run: Any) -> None:
    x, s, b, m, v = rand(4, 3, 5), rand(3), rand(3), rand(3), rand(3) + 1.5
    y, mean, var, *_ = run("BatchNormalization", x, s, b, m, v, opset=6, outputs=5, is_test=1)
    wanted = (x - m[:, None]) / np.sqrt(v[:, None] + 1e-5) * s[:, None] + b[:, None]
    np.testing.assert_allclose(y, wanted, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal([mean, var], [m, v])


def test_batch_norm_keeps_types(run: Any) -> None:
    half = [rand(2, 3, 4, dtype=np.float16), *(np.abs(rand(3, dtype=np.float16)) for _ in range(4))]
    assert run("BatchNormalization", *half, opset=15)[0].dtype == np.float16
    with pytest.raises(MgxError, match=r"scale must have dims \[3\]"):
        run("BatchNormalization", rand(2, 3), rand(2), rand(3), rand(3), rand(3), opset=15)


@pytest.mark.parametrize("dims", [(2, 3, 4), (2, 3, 4, 5)])
def test_instance_norm(agree: Any, dims: Any) -> None:
    agree("InstanceNormalization", rand(*dims), rand(3), rand(3), opset=6)


@pytest.mark.parametrize("axis", [-1, 1, 0])
@pytest.mark.parametrize("biased", [False, True])
def test_layer_norm(agree: Any, axis: int, biased: bool) -> None:
    dims = (2, 3, 4)[axis:]
    factors = [rand(*dims) for _ in range(2 if biased else 1)]
    agree("LayerNormalization", rand(2, 3, 4), *factors, opset=17, axis=axis)


def test_layer_norm_statistics(run: Any) -> None:
    x = rand(2, 3, 8)
    y, mean, inverse = run("LayerNormalization", x, rand(8), opset=17, outputs=3, axis=-1)
    assert y.shape == x.shape
    np.testing.assert_allclose(mean, x.mean(-1, keepdims=True), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(inverse, 1 / np.sqrt(x.var(-1, keepdims=True) + 1e-5), rtol=1e-5)


def test_layer_norm_of_bfloat16_rounds_once(run: Any) -> None:
    x, s = rand(3, 64, dtype=ml_dtypes.bfloat16), rand(64, dtype=ml_dtypes.bfloat16)
    wide, scale = x.astype(np.float32), s.astype(np.float32)
    wanted = (wide - wide.mean(-1, keepdims=True)) / np.sqrt(wide.var(-1, keepdims=True) + 1e-5) * scale
    out = run("LayerNormalization", x, s, opset=17)[0]
    np.testing.assert_allclose(out.astype(np.float32), wanted, rtol=2**-8, atol=1e-6)


def grouped(x: Any, groups: int) -> Any:
    flat = x.reshape(x.shape[0], groups, -1)
    return ((flat - flat.mean(2, keepdims=True)) / np.sqrt(flat.var(2, keepdims=True) + 1e-5)).reshape(x.shape)


def test_group_norm(run: Any) -> None:
    x, s, b = rand(2, 6, 3, 4), rand(6), rand(6)
    wanted = grouped(x, 2) * s[:, None, None] + b[:, None, None]
    np.testing.assert_allclose(
        run("GroupNormalization", x, s, b, opset=21, num_groups=2)[0], wanted, rtol=1e-4, atol=1e-5
    )
    s, b = rand(2), rand(2)
    each = np.repeat(s, 3)[:, None, None], np.repeat(b, 3)[:, None, None]
    old = run("GroupNormalization", x, s, b, opset=18, num_groups=2)[0]
    np.testing.assert_allclose(old, grouped(x, 2) * each[0] + each[1], rtol=1e-4, atol=1e-5)
    with pytest.raises(MgxError, match="do not divide into 4 groups"):
        run("GroupNormalization", x, rand(6), rand(6), opset=21, num_groups=4)


def test_group_norm_with_scales_of_open_extent(run: Any) -> None:
    """Before opset 21 there is one scale per group, which is assumed for a symbolic extent."""
    x, s, b = rand(2, 6, 3, 4), rand(2), rand(2)
    text = """<ir_version: 8, opset_import: ["": 18]>
        g (float[2, 6, 3, 4] x, float[c] s, float[c] b) => (y) { y = GroupNormalization<num_groups: int = 2>(x, s, b) }"""
    found = RefBackend.prepare(onnx.parser.parse_model(text)).run([x, s, b])[0]
    np.testing.assert_array_equal(found, run("GroupNormalization", x, s, b, opset=18, num_groups=2)[0])


def test_contributed_group_norm(run: Any) -> None:
    x, s, b = rand(2, 3, 4, 6), rand(6), rand(6)
    wanted = grouped(x.transpose(0, 3, 1, 2), 3).transpose(0, 2, 3, 1) * s + b
    given = dict(domain="com.microsoft", groups=3)
    np.testing.assert_allclose(run("GroupNorm", x, s, b, activation=0, **given)[0], wanted, rtol=1e-4, atol=1e-5)
    silu = wanted / (1 + np.exp(-wanted))
    np.testing.assert_allclose(run("GroupNorm", x, s, b, activation=1, **given)[0], silu, rtol=1e-4, atol=1e-5)
    y, total = run("SkipGroupNorm", x, s, b, x, activation=0, outputs=2, **given)
    np.testing.assert_allclose(total, 2 * x, rtol=1e-6)
    assert y.shape == x.shape


def test_rms_norm(run: Any, agree: Any, caplog: Any) -> None:
    x, s = rand(2, 3, 8), rand(8)
    wanted = x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * s
    np.testing.assert_allclose(run("RMSNormalization", x, s, opset=23)[0], wanted, rtol=1e-4, atol=1e-6)
    mixed = run("RMSNormalization", x.astype(np.float16), s, opset=23)[0]
    assert mixed.dtype == np.float32
    np.testing.assert_allclose(mixed, wanted, rtol=5e-3, atol=2e-3)
    agree("SimplifiedLayerNormalization", x, s, opset=17, epsilon=1e-3, stash_type=1)
    assert not caplog.records


@pytest.mark.parametrize("p", [1, 2])
def test_lp_norm(agree: Any, p: int) -> None:
    x = rand(2, 3, 4)
    x[0, 1] = 0
    agree("LpNormalization", x, opset=13, p=p)
    agree("LpNormalization", x, opset=13, p=p, axis=1)


def test_mean_variance_norm(agree: Any) -> None:
    agree("MeanVarianceNormalization", rand(2, 3, 4, 5), opset=13)
    agree("MeanVarianceNormalization", rand(2, 3, 4, 5), opset=9, axes=[0, 1, 2, 3])


@pytest.mark.parametrize("across", [0, 1])
@pytest.mark.parametrize("variance", [0, 1])
def test_mean_variance_norm_before_the_standard_had_it(agree: Any, across: int, variance: int) -> None:
    x = rand(2, 3, 4, 5)
    agree("MeanVarianceNormalization", x, opset=8, across_channels=across, normalize_variance=variance, atol=1e-6)


def test_skip_layer_norm(agree: Any) -> None:
    x, skip, g, b, bias = rand(2, 3, 8), rand(2, 3, 8), rand(8), rand(8), rand(8)
    given = dict(domain="com.microsoft", epsilon=1e-6)
    agree("SkipLayerNormalization", x, skip, g, b, bias, **given)
    agree("SkipLayerNormalization", x, skip, g, **given)
    agree("SkipLayerNormalization", x, rand(1, 3, 8), g, b, **given)
    agree("SkipSimplifiedLayerNormalization", x, skip, g, bias, **given)


def test_skip_layer_norm_gives_the_sum(run: Any) -> None:
    x, skip, g = rand(2, 3, 8), rand(2, 3, 8), rand(8)
    for op_type in ("SkipLayerNormalization", "SkipSimplifiedLayerNormalization"):
        total = run(op_type, x, skip, g, domain="com.microsoft", outputs=4)[3]
        np.testing.assert_allclose(total, x + skip, rtol=1e-6)


def test_embed_layer_norm(agree: Any) -> None:
    ids, segments = RNG.integers(0, 9, (2, 4), dtype=np.int32), RNG.integers(0, 2, (2, 4), dtype=np.int32)
    mask = np.array([[1, 1, 1, 0], [1, 1, 0, 0]], np.int32)
    words, places, kinds, g, b = rand(9, 8), rand(6, 8), rand(2, 8), rand(8), rand(8)
    given = dict(domain="com.microsoft", epsilon=1e-6, outputs=2)
    agree("EmbedLayerNormalization", ids, segments, words, places, kinds, g, b, mask, **given)
    agree("EmbedLayerNormalization", ids, None, words, places, None, g, b, **given)


@pytest.mark.parametrize(
    ("op_type", "dims", "message"),
    [
        ("InstanceNormalization", [(2, 3, 4), (2,), (3,)], "scale and bias must have dims"),
        ("LayerNormalization", [(2, 3, 4), (5,)], "scale and bias must broadcast"),
        ("RMSNormalization", [(2, 3), (2, 2, 3)], "scale and bias must broadcast"),
    ],
)
def test_refusals(run: Any, op_type: str, dims: Any, message: str) -> None:
    with pytest.raises(MgxError, match=message):
        run(op_type, *(rand(*d) for d in dims), opset=23)
