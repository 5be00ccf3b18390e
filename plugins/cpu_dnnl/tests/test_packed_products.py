"""Matrix products of whole programs: constant weights in panels, float32 and bfloat16, with fused epilogues."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core import dtype as dt
from mgx_cpu_dnnl.native_library import native
from mgx_cpu_dnnl.shared import shared

BF16 = dt.bfloat16.numpy
FEATURES = set(native().cpu_features())
PAIRED = "avx512_bf16" in FEATURES and "amx_bf16" not in FEATURES
SIZES = [(1, 5, 3), (2, 64, 1), (3, 40, 17), (4, 7, 16), (7, 33, 50), (12, 130, 8), (50, 300, 64), (131, 64, 100)]


def numbers(seed: int, *lens: int, kind: Any = np.float32) -> Any:
    return np.random.default_rng(seed).standard_normal(lens).astype(kind)


def nearest(exact: Any, got: Any, slack: Any) -> bool:
    """Returns whether bfloat16 results are the rounded values of `exact`, allowing for a prior error of at most `slack`."""
    low, high = ((exact + s * slack).astype(np.float32).astype(BF16).astype(np.float32) for s in (-1, 1))
    return bool(((got >= low) & (got <= high)).all())


@pytest.mark.skipif(not shared().engine.wide, reason="with AVX2, all are loops of our own")
@pytest.mark.parametrize(("m", "k", "loop"), [(4096, 64, True), (4097, 191, False), (4097, 192, True)])
def test_products_of_many_rows_are_loops_if_deep(compiled: Any, m: int, k: int, loop: bool) -> None:
    a, b = numbers(3, m, k), numbers(4, k, 32)

    def build(module: mgx.Module) -> mgx.Instruction:
        x = module.add_parameter("x", mgx.shape(type="float32", lens=[m, k]))
        return module.add(mgx.op("dot"), x, module.add_literal(b))

    program, steps = compiled(build)
    assert any(s.startswith("gemm") for s in steps) == loop, steps
    exact = a.astype(np.float64) @ b.astype(np.float64)
    slack = 2.0**-24 * (k + 2) * (np.abs(a).astype(np.float64) @ np.abs(b).astype(np.float64))
    assert (np.abs(program.run({"x": a})[0].to_numpy() - exact) <= slack).all()


@pytest.mark.parametrize("kind", [np.float32, BF16])
@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize(("m", "k", "n"), SIZES)
def test_products_of_all_sizes(compiled: Any, m: int, k: int, n: int, constant: bool, kind: Any) -> None:
    a, b = numbers(1, m, k, kind=kind), numbers(2, k, n, kind=kind)

    def build(module: mgx.Module) -> mgx.Instruction:
        x = module.add_parameter("x", mgx.shape(type=dt.of(kind).name, lens=[m, k]))
        y = (
            module.add_literal(b)
            if constant
            else module.add_parameter("y", mgx.shape(type=dt.of(kind).name, lens=[k, n]))
        )
        return module.add(mgx.op("dot"), x, y)

    program, steps = compiled(build)
    ours = m <= 3 or (m >= 8 and kind is not BF16) or (not shared().engine.wide and 2 * n >= 16)
    if kind is BF16 and "avx512_bf16" in FEATURES:
        ours &= not PAIRED
    if constant and (ours or (kind is BF16 and "avx512_bf16" not in FEATURES)):
        rows = n == 1 and k >= 16 and (kind is not BF16 or not shared().engine.wide)  # one column: sums of rows
        assert any(s.startswith("reduce" if rows else "gemm") for s in steps), steps
    (got,) = program.run({"x": a} if constant else {"x": a, "y": b})
    exact = a.astype(np.float64) @ b.astype(np.float64)
    slack = 2.0**-24 * (k + 2) * (np.abs(a).astype(np.float64) @ np.abs(b).astype(np.float64))
    found = got.to_numpy()
    assert found.dtype == kind
    if kind is BF16:
        assert nearest(exact, found.astype(np.float32), slack)
    else:
        assert (np.abs(found - exact) <= slack).all()


PAIRS = [
    (8, 2, 1), (8, 64, 33), (13, 30, 31), (50, 300, 64), (131, 64, 100), (30, 1026, 45), (16, 4100, 40), (7, 64, 64), (9, 65, 64),
]  # fmt: skip


@pytest.mark.parametrize(("m", "k", "n"), PAIRS)
@pytest.mark.parametrize("image", [False, True])
def test_pairs_of_bfloat16(compiled: Any, m: int, k: int, n: int, image: bool) -> None:
    """Products, and convolutions of one pixel, whose epilogue oneDNN computes slowly; few rows and odd depths are oneDNN's."""
    a, b, bias = numbers(1, m, k, kind=BF16), numbers(2, k, n, kind=BF16), numbers(3, n, kind=BF16)
    b = (b.astype(np.float64) / k**0.5).astype(BF16)

    def build(module: mgx.Module) -> mgx.Instruction:
        lens = [1, n, m, 1] if image else [m, n]
        if image:
            x = module.add_parameter("x", mgx.Shape("bfloat16", [1, m, 1, k]))
            x = module.add(mgx.op("transpose", permutation=(0, 3, 1, 2)), x)
            y = module.add(mgx.op("convolution"), x, module.add_literal(np.ascontiguousarray(b.T)[:, :, None, None]))
        else:
            x = module.add_parameter("x", mgx.Shape("bfloat16", [m, k]))
            y = module.add(mgx.op("dot"), x, module.add_literal(b))
        wide = mgx.op("broadcast", axis=1, out_lens=lens)
        y = module.add(mgx.op("add"), y, module.add(wide, module.add_literal(bias)))
        return module.add(mgx.op("mul"), y, module.add(mgx.op("sigmoid"), y))

    program, steps = compiled(build)
    if "avx512_bf16" in FEATURES:
        assert any(s.startswith("gemm") for s in steps) == (PAIRED and m >= 8 and k % 2 == 0), steps
    (got,) = program.run({"x": a.reshape(1, m, 1, k) if image else a})
    found = got.to_numpy().astype(np.float64)
    a, b, bias = (x.astype(np.float64) for x in (a, b, bias))
    exact = a @ b + bias
    slack = 2.0**-24 * (k + 32) * (np.abs(a) @ np.abs(b) + np.abs(bias))
    assert nearest(
        exact / (1 + np.exp(-exact)), (found[0, :, :, 0].T if image else found).astype(np.float32), 2 * slack
    )


@pytest.mark.skipif(not PAIRED, reason="the processor has no AVX512-BF16, or it has AMX")
@pytest.mark.parametrize(("m", "k", "n", "ours"), [(16, 64, 64, False), (16, 1024, 2048, True), (4, 1024, 2048, False)])
def test_weights_of_bfloat16_that_exceed_the_cache(compiled: Any, m: int, k: int, n: int, ours: bool) -> None:
    """Our loop prefetches weights; small ones and those of few rows are read as fast by oneDNN."""
    a, b = numbers(1, m, k, kind=BF16), numbers(2, k, n, kind=BF16)
    large = 2 * k * n > native().cache_sizes()["l2"]

    def build(module: mgx.Module) -> mgx.Instruction:
        x = module.add_parameter("x", mgx.Shape("bfloat16", [m, k]))
        return module.add(mgx.op("dot"), x, module.add_literal(b))

    program, steps = compiled(build)
    assert any(s.startswith("gemm") for s in steps) == (ours and large), steps
    (got,) = program.run({"x": a})
    a, b = a.astype(np.float64), b.astype(np.float64)
    slack = 2.0**-24 * (k + 2) * (np.abs(a) @ np.abs(b))
    assert nearest(a @ b, got.to_numpy().astype(np.float32), slack)


@pytest.mark.parametrize("kind", [np.float32, BF16])
@pytest.mark.parametrize("batch", [1, 3])
def test_batches_of_products(compiled: Any, batch: int, kind: Any) -> None:
    """The same weights for all matrices of a batch, and weights for each."""
    a, b, c = numbers(1, batch, 9, 30, kind=kind), numbers(2, 30, 45, kind=kind), numbers(3, batch, 45, 20, kind=kind)

    def build(module: mgx.Module) -> mgx.Instruction:
        x = module.add_parameter("x", mgx.shape(type=dt.of(kind).name, lens=[batch, 9, 30]))
        wide = module.add(mgx.op("multibroadcast", out_lens=[batch, 30, 45]), module.add_literal(b))
        return module.add(mgx.op("dot"), module.add(mgx.op("dot"), x, wide), module.add_literal(c))

    program, steps = compiled(build)
    if not shared().engine.wide:
        assert steps[0 if kind is np.float32 else 1].startswith("gemm"), steps
    (got,) = program.run({"x": a})
    f64 = np.float64
    middle = (a.astype(f64) @ b.astype(f64)).astype(kind).astype(f64)
    exact = middle @ c.astype(f64)
    unit = 2.0**-8 if kind is BF16 else 2.0**-23
    size = (np.abs(a).astype(f64) @ np.abs(b).astype(f64)) @ np.abs(c).astype(f64)
    assert (np.abs(got.to_numpy().astype(f64) - exact) <= unit * size * 2).all()


def activated(x: mgx.Instruction, m: mgx.Module, word: str) -> mgx.Instruction:
    if word != "gelu":
        return m.add(mgx.op(word), x)
    wide = lambda v: m.add(mgx.op("multibroadcast", out_lens=x.shape.lens()), m.add_literal(np.float32([v])))  # noqa: E731
    erf = m.add(mgx.op("erf"), m.add(mgx.op("mul"), x, wide(0.7071067811865476)))
    return m.add(mgx.op("mul"), m.add(mgx.op("mul"), x, m.add(mgx.op("add"), erf, wide(1.0))), wide(0.5))


@pytest.mark.parametrize("word", ["relu", "gelu", "tanh"])
@pytest.mark.parametrize("reshaped", [False, True])
@pytest.mark.parametrize("rows", [1, 4, 14])
def test_fused_bias_activation_and_residual(compiled: Any, rows: int, reshaped: bool, word: str) -> None:
    a, b, bias = numbers(1, rows, 24), numbers(2, 24, 40), numbers(3, 40)
    rest = numbers(4, 1, rows, 40) if reshaped else numbers(4, rows, 40)

    def build(m: mgx.Module) -> mgx.Instruction:
        x = m.add_parameter("x", mgx.shape(type="float32", lens=[rows, 24]))
        r = m.add_parameter("r", mgx.shape(type="float32", lens=rest.shape))
        y = m.add(mgx.op("dot"), x, m.add_literal(b))
        if reshaped:
            y = m.add(mgx.op("reshape", dims=[1, rows, 40]), y)
        y = m.add(mgx.op("add"), y, m.add(mgx.op("multibroadcast", out_lens=y.shape.lens()), m.add_literal(bias)))
        return m.add(mgx.op("add"), activated(y, m, word), m.add(mgx.op("relu"), r))

    program, steps = compiled(build)
    (got,) = program.run({"x": a, "r": rest})
    y = (a.astype(np.float64) @ b).reshape(rest.shape) + bias
    if word == "gelu":
        from math import erf

        y = y * 0.5 * (1 + np.vectorize(erf)(y / np.sqrt(2)))
    else:
        y = np.maximum(y, 0) if word == "relu" else np.tanh(y)
    np.testing.assert_allclose(got.to_numpy(), y + np.maximum(rest, 0), rtol=1e-5, atol=1e-5)
    if rows <= 3 or rows >= 8 or word != "relu" or not shared().engine.wide:
        assert len(steps) == 1 and steps[0].startswith("gemm"), steps


def test_strided_rows(compiled: Any) -> None:
    """A transposed left operand is copied once; a slice of columns is read in place."""
    a, b = numbers(1, 8, 48), numbers(2, 16, 32)

    def build(m: mgx.Module) -> mgx.Instruction:
        x = m.add_parameter("x", mgx.shape(type="float32", lens=[8, 48]))
        part = m.add(mgx.op("slice", axes=[1], starts=[16], ends=[32]), x)
        turned = m.add(
            mgx.op("transpose", permutation=[1, 0]), m.add(mgx.op("slice", axes=[1], starts=[0], ends=[16]), x)
        )
        first = m.add(mgx.op("dot"), part, m.add_literal(b))
        second = m.add(mgx.op("dot"), turned, m.add_literal(b[:8]))
        return m.add(mgx.op("concat", axis=0), first, second)

    program, _ = compiled(build)
    (got,) = program.run({"x": a})
    wanted = np.concatenate([a[:, 16:32] @ b, a[:, :16].T @ b[:8]])
    np.testing.assert_allclose(got.to_numpy(), wanted, rtol=1e-5, atol=1e-5)


def steps_of_turned(compiled: Any, lens: list[int], permutation: list[int]) -> Any:
    """Returns the steps of a product whose left operand has permuted axes, after checking its results."""
    a, b = numbers(1, *lens), numbers(2, lens[permutation[2]], 50)

    def build(m: mgx.Module) -> mgx.Instruction:
        x = m.add(mgx.op("relu"), m.add_parameter("x", mgx.shape(type="float32", lens=lens)))
        turned = m.add(mgx.op("transpose", permutation=permutation), x)
        wide = m.add(mgx.op("multibroadcast", out_lens=[lens[permutation[0]], *b.shape]), m.add_literal(b))
        return m.add(mgx.op("tanh"), m.add(mgx.op("dot"), turned, wide))

    program, steps = compiled(build)
    (got,) = program.run({"x": a})
    wanted = np.tanh(np.maximum(a, 0).transpose(permutation) @ b)
    np.testing.assert_allclose(got.to_numpy(), wanted, rtol=1e-5, atol=1e-5)
    return steps


def test_a_transposed_left_operand_is_not_copied_for_our_own_loop(compiled: Any) -> None:
    steps = steps_of_turned(compiled, [3, 40, 96], [0, 2, 1])
    if shared().engine.wide:
        assert not any("copy" in s or s.startswith("gemm") for s in steps), steps


def test_rows_that_are_whole_but_in_another_order_are_copied_for_our_own_loop(compiled: Any) -> None:
    """States of recurrent layers, steps before sequences: oneDNN multiplies each sequence separately, without blocking."""
    steps = steps_of_turned(compiled, [43, 3, 96], [1, 0, 2])
    assert any(s.startswith("gemm") for s in steps), steps


def test_weights_that_are_views(compiled: Any) -> None:
    """A transposed constant and a slice of one, both packed directly from their source."""
    a, b = numbers(1, 20, 24), numbers(2, 70, 24)

    def build(m: mgx.Module) -> mgx.Instruction:
        x = m.add_parameter("x", mgx.shape(type="float32", lens=[20, 24]))
        w = m.add_literal(b)
        turned = m.add(
            mgx.op("transpose", permutation=[1, 0]), m.add(mgx.op("slice", axes=[0], starts=[3], ends=[53]), w)
        )
        return m.add(mgx.op("dot"), x, turned)

    program, _ = compiled(build)
    (got,) = program.run({"x": a})
    np.testing.assert_allclose(got.to_numpy(), a @ b[3:53].T, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("lens", [[1, 1], [40, 1], [1, 33]])
@pytest.mark.parametrize("rows", [1, 2, 20])
@pytest.mark.parametrize("kind", [np.float32, BF16])
def test_weights_in_which_numbers_repeat(compiled: Any, kind: Any, rows: int, lens: list[int]) -> None:
    x, w = numbers(1, rows, 40, kind=kind), numbers(2, *lens, kind=kind)

    def build(module: mgx.Module) -> mgx.Instruction:
        given = module.add_parameter("x", mgx.shape(type=dt.of(kind).name, lens=[rows, 40]))
        many = module.add(mgx.op("multibroadcast", out_lens=[40, 33]), module.add_literal(w))
        return module.add(mgx.op("relu"), module.add(mgx.op("dot"), given, many))

    program, _ = compiled(build)
    (got,) = program.run({"x": x})
    exact = np.maximum(x.astype(np.float64) @ np.broadcast_to(w.astype(np.float64), (40, 33)), 0)
    slack = 1e-5 if kind is np.float32 else 2.0**-8 * np.abs(exact) + 1e-4
    assert (np.abs(np.asarray(got).astype(np.float64) - exact) <= slack).all()


@pytest.mark.parametrize("rows", [1, 9])
@pytest.mark.parametrize("batch", [0, 2])
@pytest.mark.parametrize("grouped", [False, True])
def test_transposed_weights_are_packed_in_place(compiled: Any, rows: int, grouped: bool, batch: int) -> None:
    lead = [batch] if batch else []
    a, weights, bias = numbers(1, *lead, rows, 40), numbers(2, 50, 40), numbers(3, 50)

    def build(module: mgx.Module) -> mgx.Instruction:
        turned = module.add(mgx.op("transpose", permutation=(1, 0)), module.add_literal(weights))
        if batch:
            turned = module.add(mgx.op("multibroadcast", out_lens=[batch, 40, 50]), turned)
        y = module.add(
            mgx.op("dot"), module.add_parameter("x", mgx.shape(type="float32", lens=[*lead, rows, 40])), turned
        )
        if not grouped:
            return y
        wide = module.add(mgx.op("multibroadcast", out_lens=[*lead, rows, 50]), module.add_literal(bias))
        return module.add(mgx.op("relu"), module.add(mgx.op("add"), y, wide))

    program, _ = compiled(build)
    exact = a.astype(np.float64) @ weights.T.astype(np.float64)
    wanted = np.maximum(exact + bias, 0) if grouped else exact
    np.testing.assert_allclose(program.run({"x": a})[0].to_numpy(), wanted, rtol=1e-5, atol=1e-5)
    held = [b.owner.sources[0] if b.array is None else b.array for b in program.executable.instances()[0].plan.literals]
    assert any(np.shares_memory(array, weights) for array in held)
    assert not any(array.shape == (40, 50) for array in held)
