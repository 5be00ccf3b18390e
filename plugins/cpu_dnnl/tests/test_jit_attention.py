"""Attention loops, compared with float64 numpy: masks, causality, layouts, heads that share keys, odd extents."""

from __future__ import annotations

import numpy as np
import pytest
from run_loops import run_numpy, shape_of

from mgx_core import dtype as dt
from mgx_core.errors import No
from mgx_core.ir.module import Module
from mgx_core.ops import pointwise
from mgx_core.ops.broadcast import Multibroadcast
from mgx_core.types.shape import Shape
from mgx_cpu_dnnl.jit.attention import compile_attention
from mgx_cpu_dnnl.jit.engine import Engine


def score(dims, scale, mask=None, flag=None):
    """Returns scores * scale (+ mask), or -inf where a flag is false."""
    body = Module("score")
    wide = lambda v: v if v.shape.dims == tuple(dims) else body.add(Multibroadcast(out_lens=tuple(dims)), v)  # noqa: E731
    s = body.add_parameter("s", Shape("float32", dims))
    y = body.add(pointwise.Mul(), s, wide(body.add_literal(np.array([scale], np.float32))))
    if mask is not None:
        y = body.add(pointwise.Add(), y, wide(body.add_parameter("mask", Shape("float32", mask))))
    if flag is not None:
        given = wide(body.add_parameter("flag", Shape("bool", flag)))
        y = body.add(pointwise.Where(), given, y, wide(body.add_literal(np.array([-np.inf], np.float32))))
    body.add_return([y])
    return body


def expected(q, k, v, scale, mask=None, flag=None, causal=None):
    s = np.einsum("...md,...nd->...mn", q.astype(np.float64), k.astype(np.float64)) * scale
    if mask is not None:
        s = s + mask
    if flag is not None:
        s = np.where(flag, s, -np.inf)
    if causal is not None:
        m, n = s.shape[-2:]
        s = np.where(np.arange(n)[None, :] <= np.arange(m)[:, None] + causal, s, -np.inf)
    with np.errstate(invalid="ignore"):
        w = np.exp(s - s.max(-1, keepdims=True))
        return (w / w.sum(-1, keepdims=True)) @ v.astype(np.float64)


def operands(batch, m, n, d, e, dtype=np.float32, heads_last=True, seed=0):
    """Returns q, k, v [b, h, ..]; stored as [b, .., h, ..] if `heads_last`."""
    r = np.random.default_rng(seed)
    out = []
    for rows, width in ((m, d), (n, d), (n, e)):
        if heads_last and len(batch) == 2:
            x = r.standard_normal((batch[0], rows, batch[1], width)).astype(dtype).transpose(0, 2, 1, 3)
        else:
            x = r.standard_normal((*batch, rows, width)).astype(dtype)
        out.append(x)
    return out


def run(engine, q, k, v, out, body=None, extra=(), chunks=1, **options):
    kernel = compile_attention(
        *(shape_of(x) for x in (q, k, v, out)), engine, body, [shape_of(x) for x in extra], **options
    )
    assert not isinstance(kernel, No), kernel
    run_numpy(kernel, [q, k, v, *extra, out], chunks)
    return kernel


@pytest.mark.pairs
@pytest.mark.parametrize(("batch", "m", "n", "d", "e"), [
    ((1, 2), 5, 7, 3, 4), ((2, 3), 33, 70, 64, 64), ((1, 2), 128, 128, 64, 64),
    ((1, 1), 200, 300, 40, 72), ((1, 2), 1, 130, 64, 64),
    ((1, 2), 2, 5, 16, 16), ((3,), 17, 17, 8, 100), ((), 9, 257, 33, 5), ((2, 2), 400, 129, 20, 20),
])  # fmt: skip
@pytest.mark.parametrize("heads_last", [True, False])
def test_extents(engine, batch, m, n, d, e, heads_last):
    q, k, v = operands(batch, m, n, d, e, heads_last=heads_last)
    if heads_last and len(batch) == 2:
        out = np.zeros((batch[0], m, batch[1], e), np.float32).transpose(0, 2, 1, 3)
    else:
        out = np.zeros((*batch, m, e), np.float32)
    run(engine, q, k, v, out, score([*batch, m, n], 0.3), chunks=2)
    np.testing.assert_allclose(out, expected(q, k, v, 0.3), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("n", [9, 15, 16, 17, 24, 25, 31, 33, 47, 48, 49, 63, 65, 97, 127, 129, 145, 176])
@pytest.mark.parametrize(("m", "turned"), [(7, False), (8, True), (13, False)])
def test_keys_that_fill_no_tile(engine, m, n, turned):
    """Tiles with some or no vectors of keys next to full ones, with a mask that is allocated up to the last key only."""
    q, k, v = operands((1, 2), m, n, 20, 24)
    if turned:
        k = np.ascontiguousarray(k.swapaxes(-1, -2)).swapaxes(-1, -2)
    x = np.random.default_rng(n).standard_normal((1, 2, m, n)).astype(np.float32)
    out = np.full((1, 2, m, 24), np.nan, np.float32)
    run(engine, q, k, v, out, score([1, 2, m, n], 0.3, x.shape), [x])
    np.testing.assert_allclose(out, expected(q, k, v, 0.3, x), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("mask", [(2, 1, 1, 90), (1, 1, 40, 90), (2, 3, 40, 90), (2, 3, 40, 1), (90,)])
def test_masks(engine, mask):
    q, k, v = operands((2, 3), 40, 90, 32, 32)
    x = np.random.default_rng(5).standard_normal(mask).astype(np.float32)
    x[..., -3:] = -np.inf if mask[-1] > 3 else x[..., -3:]
    out = np.zeros((2, 3, 40, 32), np.float32)
    run(engine, q, k, v, out, score([2, 3, 40, 90], 0.2, mask), [x], 3)
    np.testing.assert_allclose(out, expected(q, k, v, 0.2, x), rtol=2e-5, atol=2e-5)


def test_operands_that_the_score_does_not_read(engine):
    q, k, v = operands((1, 2), 5, 9, 16, 16)
    x = np.zeros((1, 2, 5, 9), np.float32)
    for unread in (1, 0, 2):
        body = score([1, 2, 5, 9], 0.3)
        for n in range(unread):
            body.add_parameter(f"x{n}", Shape("float32", x.shape))
        out = np.zeros((1, 2, 5, 16), np.float32)
        run(engine, q, k, v, out, body, [x] * unread)
        np.testing.assert_allclose(out, expected(q, k, v, 0.3), rtol=2e-5, atol=2e-5)
    assert not x.any()


def test_flags_and_rows_without_keys(engine):
    q, k, v = operands((1, 2), 30, 200, 16, 16)
    flag = np.random.default_rng(1).integers(0, 2, (30, 200)).astype(bool)
    flag[4] = False
    flag[7, :150] = False
    out = np.zeros((1, 2, 30, 16), np.float32)
    run(engine, q, k, v, out, score([1, 2, 30, 200], 0.25, flag=(30, 200)), [flag])
    wanted = expected(q, k, v, 0.25, flag=flag)
    assert np.isnan(wanted[:, :, 4]).all()
    np.testing.assert_allclose(out, wanted, rtol=2e-5, atol=2e-5)


def test_guarded_rows(engine):
    """With guards, rows that see no key give zeros instead of NaN."""
    q, k, v = operands((1, 1), 9, 20, 16, 16)
    flag = np.ones((9, 20), bool)
    flag[4] = False
    out = np.ones((1, 1, 9, 16), np.float32)
    run(engine, q, k, v, out, score([1, 1, 9, 20], 0.25, flag=(9, 20)), [flag], guarded=True)
    wanted = np.nan_to_num(expected(q, k, v, 0.25, flag=flag))
    np.testing.assert_allclose(out, wanted, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("m", [1, 9])
def test_rows_without_keys_next_to_nan_scores(engine, m):
    """With guards, a NaN in a key affects the rows that see it and no others."""
    q, k, v = operands((1, 1), m, 20, 16, 16)
    k[:, :, 3, 5] = np.nan
    for seen in (True, False):
        flag = np.ones((m, 20), bool)
        flag[0, 3] = seen
        flag[m // 2] &= m == 1
        out = np.ones((1, 1, m, 16), np.float32)
        run(engine, q, k, v, out, score([1, 1, m, 20], 0.25, flag=(m, 20)), [flag], closes=True)
        wanted = expected(q, k, v, 0.25, flag=flag)
        if m > 1:
            wanted[:, :, m // 2] = 0
        assert np.isnan(wanted[0, 0, 0]).all() == seen
        np.testing.assert_allclose(out, wanted, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize(("m", "n"), [(50, 50), (200, 200), (7, 150), (1, 40)])
def test_causal(engine, m, n):
    q, k, v = operands((1, 3), m, n, 24, 24)
    out = np.zeros((1, 3, m, 24), np.float32)
    run(engine, q, k, v, out, score([1, 3, m, n], 0.2), causal=True, chunks=2)
    np.testing.assert_allclose(out, expected(q, k, v, 0.2, causal=n - m), rtol=2e-5, atol=2e-5)


def test_turned_keys_and_shared_heads(engine):
    """Keys stored as [b, d, n], and two heads that read the same keys and values."""
    q, k, v = operands((1, 4), 20, 150, 32, 32, heads_last=False)
    kt = np.ascontiguousarray(k[:, ::2].swapaxes(-1, -2)).swapaxes(-1, -2)
    few = np.ascontiguousarray(v[:, ::2])
    spread = lambda x: np.broadcast_to(x[:, :, None], (1, 2, 2, *x.shape[2:]))  # noqa: E731
    out = np.zeros((1, 2, 2, 20, 32), np.float32)
    q5 = q.reshape(1, 2, 2, 20, 32)
    run(engine, q5, spread(kt), spread(few), out, score([1, 2, 2, 20, 150], 0.2))
    np.testing.assert_allclose(out, expected(q5, spread(kt), spread(few), 0.2), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("dtype", [dt.float16, dt.bfloat16], ids=str)
def test_narrow_types(engine, dtype):
    q, k, v = operands((1, 2), 40, 140, 64, 64, dtype.numpy)
    out = np.zeros((1, 2, 40, 64), dtype.numpy)
    run(engine, q, k, v, out, score([1, 2, 40, 140], 0.125))
    wide = [x.astype(np.float32) for x in (q, k, v)]
    np.testing.assert_allclose(
        out.astype(np.float32), expected(*wide, 0.125), rtol=2 * float(dtype.epsilon), atol=2 * float(dtype.epsilon)
    )


def unit(q, k, v, scale):
    """Returns a unit in the last place of bfloat16 for each result: weights and results are rounded once."""
    eps = float(dt.bfloat16.epsilon)
    return eps * (1 + expected(q, k, np.abs(v), scale))


@pytest.mark.pairs
@pytest.mark.parametrize("n", [2, 15, 16, 17, 33, 64, 127, 128, 129, 301])
@pytest.mark.parametrize(("m", "d", "e"), [(7, 64, 64), (8, 20, 24), (13, 6, 40), (40, 34, 16), (9, 33, 32)])
@pytest.mark.parametrize("turned", [False, True])
def test_pairs_of_bfloat16(engine, n, m, d, e, turned):
    """Odd numbers of keys, heads that fill no vector, and heads of odd extent, whose products are those of float32."""
    q, k, v = operands((1, 2), m, n, d, e, dt.bfloat16.numpy)
    if turned:
        k = np.ascontiguousarray(k.swapaxes(-1, -2)).swapaxes(-1, -2)
    out = np.zeros((1, 2, m, e), dt.bfloat16.numpy)
    run(engine, q, k, v, out, score([1, 2, m, n], 0.3), chunks=2)
    wide = [x.astype(np.float64) for x in (q, k, v)]
    assert (np.abs(out.astype(np.float64) - expected(*wide, 0.3)) <= unit(*wide, 0.3)).all()


@pytest.mark.parametrize("d", [32, 33])
def test_the_processors_bfloat16_products_are_used(d):
    """One instruction sums the products of two elements; heads of odd extent have no pairs."""
    engine = Engine(cache=None)
    if not engine.bfloat16:
        pytest.skip("the processor has no AVX512-BF16")
    texts = []
    engine.function = lambda key, build: texts.append(engine._text("f", build))
    shape = Shape("bfloat16", (1, 16, d))
    assert not isinstance(compile_attention(shape, shape, shape, shape, engine), No)
    assert ("dpbf16ps" in texts[0]) == (d == 32)


def test_infinite_values_of_an_odd_last_key(engine):
    """The neighbor that completes the last pair must not turn infinities into NaN."""
    q, k, v = operands((1, 1), 9, 17, 32, 32, dt.bfloat16.numpy)
    v[:, :, 16, 3] = np.inf
    out = np.zeros((1, 1, 9, 32), dt.bfloat16.numpy)
    run(engine, q, k, v, out, score([1, 1, 9, 17], 0.2))
    assert np.isinf(out[..., 3].astype(np.float32)).all()
    assert np.isfinite(out[..., 4:].astype(np.float32)).all()


def test_refusals(engine):
    q, k, v = (Shape("float32", (2, 8, 16)) for _ in range(3))
    assert isinstance(compile_attention(q, k, v, Shape("float32", (2, 8, 16), (128, 1, 8)), engine), No)
    assert isinstance(compile_attention(q, Shape("float32", (2, 9, 16)), v, q, engine), No)
    assert isinstance(compile_attention(q, Shape("float64", (2, 8, 16)), v, q, engine), No)
