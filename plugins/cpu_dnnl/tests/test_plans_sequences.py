"""Steps of sequences shifted by each sequence's length, caches, and views of the same elements, compared with the reference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core import dtype as dt
from mgx_cpu_dnnl.target import CpuTarget

rng = np.random.default_rng(5)
Check = Callable[..., None]
TYPES = ["float32", "float64", "float16", "int8", "int64", "bool"]


def numbers(name: str, *lens: int) -> Any:
    return (rng.standard_normal(lens) * 9).astype(dt.of(name).numpy)


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("axes", [(0,), (1, 2), (-1, 0), ()])
def test_reverse(agrees: Check, name: str, axes: tuple[int, ...]) -> None:
    agrees(mgx.op("reverse", axes=axes), numbers(name, 3, 4, 5))


@pytest.mark.pairs
@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize(("batch", "time"), [(1, 0), (0, 1), (0, 3), (2, 1)])
@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_reverse_sequence(agrees: Check, fails: Check, name: str, batch: int, time: int, kind: Any) -> None:
    x = numbers(name, 4, 5, 3, 6)
    lens = rng.integers(0, x.shape[time], x.shape[batch], endpoint=True).astype(kind)
    op = mgx.op("reverse_sequence", batch_axis=batch, time_axis=time)
    agrees(op, x, lens)
    fails("reverse_sequence: index 9 is out of bounds", op, [x, np.full_like(lens, 9)], [x, lens])


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_states_of_sequences(agrees: Check, direction: str) -> None:
    states = numbers("float32", 5, 2 if direction == "bidirectional" else 1, 4, 7)
    lens = np.array([5, 0, 3, 1], np.int32)
    agrees(mgx.op("rnn_var_sl_shift_output", direction=direction), states, lens)
    agrees(mgx.op("rnn_var_sl_last_output", direction=direction), states, lens)
    agrees(mgx.op("rnn_last_hs_output", direction=direction), states, lens)
    agrees(mgx.op("rnn_var_sl_shift_sequence"), states[:, 0], lens)


@pytest.mark.pairs
@pytest.mark.parametrize("mode", ["linear", "circular"])
@pytest.mark.parametrize("name", ["float32", "float16"])
@pytest.mark.parametrize("axis", [1, 2, -1])
def test_caches(agrees: Check, fails: Check, mode: str, name: str, axis: int) -> None:
    cache = numbers(name, 3, 8, 9, 10)
    lens = [2 if a == axis % 4 else n for a, n in enumerate(cache.shape)]
    update, op = numbers(name, *lens), mgx.op("tensor_scatter", mode=mode, axis=axis)
    agrees(op, cache, update, np.array([0, 6, 3]))
    agrees(op, cache, update, None)
    if mode == "circular":
        agrees(op, cache, update, np.array([7, -3, 123], np.int32))
    else:
        bad = np.array([0, 1, 12])
        fails("tensor_scatter: index 12 is out of bounds", op, [cache, update, bad], [cache, update, bad * 0])


@pytest.mark.pairs
@pytest.mark.parametrize("name", ["float32", "float16"])
@pytest.mark.parametrize("last", [[0, 8], [-1, 3], [5, 5]])
@pytest.mark.parametrize("new", [1, 3])
@pytest.mark.parametrize("length", [None, 9, 13])
def test_caches_of_several_lengths(agrees: Check, name: str, last: list[int], new: int, length: int | None) -> None:
    """Rows before and behind the new ones are those of the past, and zero beyond it."""
    op = mgx.op("concat_past_present", length=length)
    operands = [numbers(name, 2, 3, new, 6), np.array(last, np.int32), numbers(name, 2, 3, 10, 6)]
    agrees(op, *operands)
    operands[1] = np.array(last)
    agrees(op, *operands)


def test_appending_to_a_cache_is_one_step() -> None:
    operands = [numbers("float32", 2, 3, 2, 6), np.array([4, 6]), numbers("float32", 2, 3, 10, 6)]
    program = mgx.Program()
    m = program.get_main_module()
    given = [m.add_parameter(f"x{i}", mgx.Shape(dt.of(x.dtype), x.shape)) for i, x in enumerate(operands)]
    m.add_return([m.add(mgx.op("concat_past_present"), *given)])
    program.compile(CpuTarget())
    program.run({f"x{i}": x for i, x in enumerate(operands)})
    (instance,) = program.executable.instances()  # type: ignore[union-attr]
    assert [p.kernel for p in instance.placements] == ["native concat_past_present"]


def test_a_cache_without_room(fails: Check) -> None:
    new, past = numbers("float32", 1, 2, 1, 6), numbers("float32", 1, 2, 4, 6)
    op = mgx.op("concat_past_present")
    fails("concat_past_present: index 4 is out of bounds", op, [new, np.array([4]), past], [new, np.array([3]), past])


def test_numbers_of_tokens_do_not_overflow(agrees: Check, fails: Check) -> None:
    op, least, most = mgx.op("concat_past_present"), *(np.array([n]) for n in (-(2**63), 2**63 - 1))
    new, past = numbers("float32", 1, 2, 3, 6), numbers("float32", 1, 2, 5, 6)
    agrees(op, new, least, past)
    np.testing.assert_array_equal(op.evaluate([new, least, past]), op.evaluate([new, np.array([-1]), past]))
    fails("is out of bounds", op, [new, most, past], [new, least, past])


@pytest.mark.parametrize("length", [0, None])
def test_an_empty_cache_holds_no_token(fails: Check, length: int | None) -> None:
    new, past = numbers("float32", 1, 2, 1, 6), numbers("float32", 1, 2, 0, 6)
    op = mgx.op("concat_past_present", length=length)
    fails("a sample has 1 tokens, the cache holds 0", op, [new, np.array([0]), past], [new, np.array([-1]), past])


def test_more_caches_than_one(agrees: Check) -> None:
    agrees(
        mgx.op("tensor_scatter"),
        numbers("float32", 2, 4, 300, 64),
        numbers("float32", 2, 4, 30, 64),
        np.array([9, 270]),
    )


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("kind", [np.int8, np.uint8])
def test_halves_of_bytes(agrees: Check, axis: int, kind: Any) -> None:
    x = rng.integers(0, 256, (4, 6, 8)).astype(np.uint8).view(kind)
    agrees(mgx.op("unpack_int4", axis=axis), x)
    agrees(mgx.op("pack_int4", axis=axis), x)


@pytest.mark.pairs
@pytest.mark.parametrize("k", [-20, -1, 0, 2, 20])
@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("name", ["float32", "int8", "bool", "float16"])
def test_triangles(agrees: Check, k: int, upper: bool, name: str) -> None:
    x = numbers(name, 2, 5, 7)
    agrees(mgx.op("trilu", upper=upper), x, np.array(k))
    agrees(mgx.op("eye_like", k=k), x[0])
    agrees(mgx.op("eye_like", k=k, dtype=dt.bfloat16), x[0])


def test_the_same_elements(agrees: Check) -> None:
    x = numbers("float32", 3, 4, 5)
    agrees(mgx.op("identity"), x)
    agrees(mgx.op("layout", permutation=(2, 0, 1)), x)
    for kind in (dt.int32, dt.uint32):
        agrees(mgx.op("bit_cast", target_type=kind), x)
    agrees(mgx.op("bit_cast", target_type=dt.bfloat16), numbers("float16", 3, 4))
    bits = np.array([[0, 1, 2], [255, 128, 0]], np.uint8)
    agrees(mgx.op("bit_cast", target_type=dt.bool_), bits)
    agrees(mgx.op("bit_cast", target_type=dt.int8), bits > 1)
