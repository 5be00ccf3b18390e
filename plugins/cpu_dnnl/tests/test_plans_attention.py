"""The ops attention and rotary_embedding: one step each, with all kinds of masks, lengths and grouped heads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core import dtype as dt
from mgx_core.ir.interpreter import Interpreter
from mgx_cpu_dnnl.target import CpuTarget

rng = np.random.default_rng(5)
B, H, G, S, T, D, E = 2, 6, 2, 5, 37, 12, 20
MASK = rng.random((B, 1, S, T)) < 0.6
MASK[0, 0, 2] = False  # a query without keys


def floats(*lens: int, dtype: Any = np.float32) -> Any:
    return rng.standard_normal(lens).astype(dtype)


def steps(op: Any, operands: list[Any], tolerance: float, finite: bool = True) -> list[str]:
    """Returns the names of the native steps of a program of one op, after checking its results against the op's own."""
    program = mgx.Program()
    m = program.get_main_module()
    inputs, given = [], {}
    for n, value in enumerate(operands):
        if value is None:
            inputs.append(m.add_absent())
        else:
            given[f"x{n}"] = value
            inputs.append(m.add_parameter(f"x{n}", mgx.Shape(dt.of(value.dtype), list(value.shape))))
    m.add_return([m.add(op, *inputs)])
    (wanted,) = Interpreter().run(m, list(given.values()))
    program.compile(CpuTarget())
    (found,) = program.run(given)
    assert np.isfinite(np.asarray(wanted, np.float64)).all() == finite
    np.testing.assert_allclose(
        np.asarray(found, np.float64), np.asarray(wanted, np.float64), rtol=tolerance, atol=tolerance
    )
    return [p.kernel for p in program.executable.instances()[0].placements]


@pytest.mark.parametrize(
    ("attributes", "mask", "lengths", "offsets"),
    [
        ({}, None, None, None),
        ({"scale": 0.5, "softcap": 2.0}, None, None, None),
        ({"causal": True}, None, None, None),
        ({"causal": True, "offset": 9}, None, None, None),
        ({}, MASK, None, None),
        ({}, np.where(MASK, 0.0, -np.inf).astype(np.float32)[:1, 0], None, None),
        ({}, floats(H, 1, T), None, None),
        ({}, None, np.array([37, 0]), None),
        ({}, None, np.array([37, 0]), np.array([3, 9])),  # without a limit by position
        ({"causal": True, "left_window_size": 4}, None, np.array([20, 30], np.int32), np.array([15, 25])),
        ({"left_window_size": 3, "right_window_size": 2, "offset": 11}, MASK, None, None),
    ],
)
def test_attention(attributes: dict[str, Any], mask: Any, lengths: Any, offsets: Any) -> None:
    operands = [floats(B, H, S, D), floats(B, G, T, D), floats(B, G, T, E), mask, lengths, offsets]
    assert steps(mgx.op("attention", **attributes), operands, 2e-6) == ["attention-op attention"]


@pytest.mark.parametrize("queries", [1, 5, 70])
@pytest.mark.parametrize(
    ("attributes", "mask", "lengths"),
    [
        ({}, None, None),
        ({"causal": True, "left_window_size": 4}, None, None),
        ({}, "closed", None),
        ({}, None, [37, 0]),
    ],
)
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_sinks(queries: int, attributes: dict[str, Any], mask: Any, lengths: Any, dtype: Any) -> None:
    """A score per head that has no key; queries without keys then have zeros as results, too."""
    q, k, v = floats(B, H, queries, D, dtype=dtype), floats(B, G, T, D, dtype=dtype), floats(B, G, T, E, dtype=dtype)
    sink = np.array([-np.inf, -30, -1, 0, 2, 40], dtype)
    closed = np.zeros((B, 1, queries, T), np.bool_) if mask else None
    given = None if lengths is None else np.array(lengths)
    made = steps(
        mgx.op("attention", **attributes), [q, k, v, closed, given, None, sink], 1e-5 if dtype == np.float32 else 2e-3
    )
    assert made == ["attention-op attention"]


def test_masked_attention_keeps_scores_that_are_nan() -> None:
    keys = floats(B, G, T, D)
    keys[0, 0, 7, 2] = np.nan
    operands = [floats(B, H, S, D), keys, floats(B, G, T, E), MASK]
    assert steps(mgx.op("attention"), operands, 2e-6, finite=False) == ["attention-op attention"]


def test_a_float_mask_that_is_nan_closes_nothing() -> None:
    mask = np.zeros((S, T), np.float32)
    mask[1, 7], mask[1, 3], mask[2] = np.nan, -np.inf, np.nan
    operands = [floats(B, H, S, D), floats(B, G, T, D), floats(B, G, T, E), mask]
    assert steps(mgx.op("attention"), operands, 2e-6, finite=False) == ["attention-op attention"]


@pytest.mark.parametrize("mask", [None, np.zeros((S, T), np.float32)])
def test_queries_whose_scores_are_all_minus_infinity_give_zeros(mask: Any) -> None:
    queries, keys = floats(B, H, S, D), np.abs(floats(B, G, T, D)) + 0.01
    queries[:, :, 2] = -np.inf
    operands = [queries, keys, floats(B, G, T, E), mask]
    assert steps(mgx.op("attention"), operands, 2e-6) == ["attention-op attention"]
    double = [x if x is None else x.astype(np.float64) for x in operands]
    assert "attention-op attention" not in steps(mgx.op("attention"), double, 1e-12)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_keys_that_a_float_mask_closes_may_have_any_scores(bad: float) -> None:
    keys, mask = np.abs(floats(B, G, T, D)), np.zeros((S, T), np.float32)
    keys[:, :, 7], mask[:, 7] = bad, -np.inf
    mask[1] = -np.inf  # a query without keys
    operands = [np.abs(floats(B, H, S, D)), keys, floats(B, G, T, E), mask]
    assert steps(mgx.op("attention"), operands, 2e-6) == ["attention-op attention"]
    double = [x.astype(np.float64) for x in operands]
    assert "attention-op attention" not in steps(mgx.op("attention"), double, 1e-12)


def test_scores_near_1e30() -> None:
    queries = floats(B, H, S, D)
    queries[:, :, 1] *= 1e30
    for mask in (None, MASK, np.where(MASK, 0, -1e30).astype(np.float32)):
        operands = [queries, floats(B, G, T, D), floats(B, G, T, E), mask]
        assert steps(mgx.op("attention"), operands, 2e-6) == ["attention-op attention"]


@pytest.mark.parametrize("kind", [np.int64, np.int32, np.uint8])
@pytest.mark.parametrize("queries", [1, 3, 30])
@pytest.mark.parametrize("causal", [False, True])
def test_entries_after_the_length_of_a_cache_are_not_read(queries: int, kind: Any, causal: bool) -> None:
    keys, values = floats(3, G, 300, D), floats(3, G, 300, E)
    lengths = np.array([250, 0, 131], kind)
    for n, length in enumerate(lengths):
        keys[n, :, length:], values[n, :, length:] = np.nan, np.inf
    operands = [floats(3, H, queries, D), keys, values, None, lengths]
    assert steps(mgx.op("attention", causal=causal, offset=200), operands, 2e-6) == ["attention-op attention"]


@pytest.mark.parametrize("queries", [1, 2, 300])
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 2e-6), (np.float16, 2e-3), (dt.bfloat16.numpy, 1.6e-2)])
def test_attention_of_other_types_and_lengths(queries: int, dtype: Any, tolerance: float) -> None:
    operands = [floats(1, 4, queries, 64, dtype=dtype), *(floats(1, 4, 130, 64, dtype=dtype) for _ in range(2))]
    assert steps(mgx.op("attention", causal=True, offset=3), operands, tolerance) == ["attention-op attention"]


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("turned", [3, 6])
@pytest.mark.parametrize("positions", [None, np.array([[4, 0, 7], [1, 1, 2]]), np.array([5]), np.array([2], np.int32)])
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 1e-6), (np.float16, 2e-3)])
def test_rotary(interleaved: bool, turned: int, positions: Any, dtype: Any, tolerance: float) -> None:
    lens = (2, 3, turned) if positions is None else (8, turned)
    operands = [floats(2, 4, 3, 12, dtype=dtype), floats(*lens, dtype=dtype), floats(*lens, dtype=dtype), positions]
    op = mgx.op("rotary_embedding", interleaved=interleaved)
    assert steps(op, operands, tolerance) == ["rotary-loop rotary_embedding"]


def test_masks_shorter_than_the_keys_use_the_decomposition() -> None:
    operands = [floats(B, H, S, D), floats(B, H, T, D), floats(B, H, T, E), MASK[..., :30]]
    assert "norm-loop softmax" in steps(mgx.op("attention"), operands, 2e-6)


@pytest.mark.parametrize("positions", [[[0, -1, 2], [3, 4, 5]], [[0, 1, 2], [3, 4, 9]], [-1], [7]], ids=str)
def test_positions_outside_of_caches_are_refused(fails: Callable[..., None], positions: Any) -> None:
    """Negative ones do not count from the end, as in the definition."""
    x, cache = floats(2, 4, 3, 8), floats(9, 4)
    good, bad = np.zeros(np.shape(positions), np.int64), np.array(positions, np.int64)
    op = mgx.op("rotary_embedding")
    with pytest.raises(mgx.ShapeError, match=r"positions must lie in 0\.\.8"):
        op.evaluate([x, cache, cache, bad])
    fails(
        r"positions in a cache of 9: index (-1|9) is out of bounds", op, (x, cache, cache, bad), (x, cache, cache, good)
    )


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("tokens", [[4, 9], [0, 1], [9, -1]])
@pytest.mark.parametrize("new", [1, 3])
@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_rotary_of_the_last_tokens(new: int, tokens: list[int], interleaved: bool, kind: Any) -> None:
    r = np.random.default_rng(0)
    x, *tables = (r.standard_normal(dims).astype(np.float32) for dims in ((2, 3, new, 6), (10, 2), (10, 2)))
    op = mgx.op("gqa_rotary_embedding", interleaved=interleaved)
    assert steps(op, [x, np.array(tokens, kind), *tables], 1e-6) == ["rotary-loop gqa_rotary_embedding"]


@pytest.mark.parametrize("tokens", [10, -2])
@pytest.mark.parametrize("new", [1, 3])
def test_rotary_of_tokens_outside_the_table(fails: Any, new: int, tokens: int) -> None:
    x, table = np.ones((1, 1, new, 4), np.float32), np.ones((10, 2), np.float32)
    op = mgx.op("gqa_rotary_embedding")
    given = [[x, np.array([n]), table, table] for n in (tokens, 5)]
    fails("positions in a cache of 10: index", op, *given)
