"""Declared traits of ops agree with their reference implementations."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest

from mgx_conformance.cases import all_cases
from mgx_conformance.cases.case import Case
from mgx_conformance.known import OPS
from mgx_core import Operation, dtype
from mgx_core.errors import MgxError, ParameterError
from mgx_core.ops.declaration import op
from mgx_core.ops.reduce import ReduceMean
from mgx_core.ops.scalar import NUMPY


@cache
def runs() -> tuple[tuple[Case, list[Any], Any], ...]:
    """Returns cases of ops without modules, with generated operands and the result."""
    found = []
    for case in all_cases():
        if case.op.takes_modules or case.error is not None or case.op.random or case.shapes:
            continue
        rng = np.random.default_rng(0)
        xs = [o.draw(rng) if hasattr(o, "draw") else o for o in case.operands]
        try:
            found.append((case, xs, case.op.evaluate(xs)))
        except MgxError:
            continue  # a case that must be rejected
    return tuple(found)


def stating(trait: str) -> Iterator[tuple[Case, list[Any], Any]]:
    found = [run for run in runs() if getattr(run[0].op, trait)]
    assert found, f"no op declares {trait}"
    yield from found


def is_float(x: Any) -> bool:
    return isinstance(x, np.ndarray) and x.dtype != object and dtype.of(x.dtype).kind == "f"


def floats(value: Any) -> Iterator[Any]:
    """Returns the float arrays of a result."""
    if isinstance(value, (tuple, list)):
        for item in value:
            yield from floats(item)
    elif is_float(value):
        yield value


def test_exact_ops_give_the_same_in_a_wider_type():
    tried = set()
    for case, xs, out in stating("exact"):
        if not any(is_float(x) and x.dtype.itemsize < 8 and x.size for x in xs) or "dtype" in case.op.attributes():
            continue
        wide = [x.astype(np.float64) if is_float(x) else x for x in xs]
        try:
            result = case.op.evaluate(wide)
        except MgxError:
            continue  # of one type only
        for narrow, same in zip(floats(out), floats(result), strict=True):
            tried.add(case.op.name)
            np.testing.assert_array_equal(narrow.astype(np.float64), same, err_msg=case.id)
    assert len(tried) > 60


def test_ops_that_compute_are_not_exact():
    def make(name: str, **attributes: Any) -> Operation:
        return OPS.make(name, **attributes)

    for name in ("exp", "add", "div", "reduce_sum", "dot", "softmax", "convert", "resize", "pooling", "gelu_tanh"):
        extra = {
            "convert": {"target_type": dtype.float16},
            "resize": {"mode": "linear"},
            "pooling": {"mode": "average"},
        }
        assert not make(name, **extra.get(name, {})).exact, name
    assert make("relu").exact and make("where").exact and make("pooling", mode="max").exact


def test_linear_ops_are_sums_of_products():
    """Each operand occurs to the first power, and no term exceeds its value for all-positive operands."""
    tried = set()
    for case, xs, _ in stating("linear"):
        wide = [x.astype(np.float64) if is_float(x) else x for x in xs]
        for at in case.op.linear:
            if at >= len(xs) or not is_float(xs[at]) or not xs[at].size:
                continue
            one, other = (np.random.default_rng(n).normal(size=xs[at].shape) for n in (1, 2))
            try:
                got, first, second, none = (
                    np.asarray(case.op.evaluate([*wide[:at], x, *wide[at + 1 :]]))
                    for x in (2 * one - 3 * other, one, other, 0 * one)
                )
                positive = [abs(x) if n in case.op.linear and is_float(x) else x for n, x in enumerate(wide)]
                most, out = case.op.evaluate(positive), case.op.evaluate(wide)
            except MgxError:
                continue  # of narrow types only
            tried.add(case.op.name)
            np.testing.assert_allclose(got, 2 * first - 3 * second + 2 * none, 1e-6, 1e-6, err_msg=case.id)
            assert np.all(abs(np.asarray(out)) <= np.asarray(most) + 1e-6), case.id
    assert len(tried) >= 10


def test_reshapes_return_all_elements_in_order():
    for case, xs, out in stating("reshapes"):
        assert np.array_equal(out.reshape(-1), xs[0].reshape(-1)), case.id


def test_aligned_tilings_cover_each_element_equally_often_and_in_order():
    for case, xs, out in stating("aligns"):
        kept = xs[0].reshape(-1)
        if not kept.size or not out.size:
            continue
        numbered = np.arange(kept.size).reshape(xs[0].shape)
        where = case.op.evaluate([numbered, *xs[1:]])
        assert np.array_equal(np.bincount(where.reshape(-1)), np.full(kept.size, out.size // kept.size)), case.id
        _, first = np.unique(where, return_index=True)
        assert list(first) == sorted(first), case.id


def test_selecting_ops_read_the_positions_in_their_second_operand():
    """On numbered elements, the result's elements show the positions they were taken from."""
    for case, xs, _ in stating("picks"):
        assert case.op.moves and xs[1].dtype.kind in "iu", case.id
        numbered = np.arange(xs[0].size).reshape(xs[0].shape)
        where = case.op.evaluate([numbered, *xs[1:]])
        assert np.isin(where, numbered).all(), case.id
        assert np.array_equal(case.op.evaluate(xs[:2]), xs[0].reshape(-1)[where]), case.id
    for cls in OPS:
        assert cls.picks == (cls.moves is True and [i.name for i in cls.inputs[1:2]] == ["indices"]), cls.name


def test_ops_that_replace_along_an_axis_write_elements_at_the_positions_in_their_second_operand():
    for case, (data, indices, updates), out in stating("replaces_along_axis"):
        axis = case.op.attributes()["axis"]
        expected, positions = data.copy(), np.where(indices < 0, indices + data.shape[axis], indices)
        for place in np.ndindex(indices.shape):
            at = list(place)
            at[axis] = positions[place]
            if 0 <= at[axis] < data.shape[axis]:  # cases of ops that skip others include some
                expected[tuple(at)] = updates[place]
        np.testing.assert_array_equal(out, expected, case.id)


def test_replacing_ops_write_slices_at_the_positions_in_their_second_operand():
    for case, (data, indices, updates), out in stating("replaces"):
        expected, axes = data.copy(), indices.shape[-1]
        slices = updates.reshape(-1, *data.shape[axes:])
        for row, update in zip(indices.reshape(len(slices), axes), slices, strict=True):
            expected[tuple(row)] = update
        np.testing.assert_array_equal(out, expected, case.id)


def test_products_are_sums_of_products_of_their_first_two_operands():
    for case, xs, _ in stating("product"):
        assert case.op.linear == (0, 1)
        zero = [np.zeros_like(x) if n == 0 else x for n, x in enumerate(xs)]
        if len(xs) == 2:
            assert not np.any(np.asarray(case.op.evaluate(zero), np.float64)), case.id


def test_reductions_combine_elements_by_the_primitive_that_they_state():
    for cls in OPS:
        if cls.combine:
            for a, b in ((3.0, 4.0), (-2.0, 0.5)):
                got = cls(axes=(0,)).evaluate([np.array([a, b], np.float32)])[0]
                assert got * (2 if issubclass(cls, ReduceMean) else 1) == NUMPY[cls.combine](a, b), cls.name
    assert not OPS.get("reduce_any").combine  # with other element values than in the case


def test_reductions_read_only_along_their_axes():
    for case, xs, out in runs():
        x = xs[0] if xs else None
        if not isinstance(x, np.ndarray) or not x.size or case.op.reduced_axes(x.ndim) == () or len(xs) > 1:
            continue
        reduced = case.op.reduced_axes(x.ndim)
        assert list(reduced) == sorted(set(reduced)) and all(0 <= a < x.ndim for a in reduced)
        for axis in set(range(x.ndim)) - set(reduced):
            one = case.op.evaluate([np.take(x, [0], axis)])
            same = np.testing.assert_array_equal if case.op.exact else np.testing.assert_allclose
            wide = (np.asarray(v, np.float64) for v in (one, np.take(out, [0], axis)))
            same(*wide, **({} if case.op.exact else {"rtol": 1e-2, "atol": 1e-2}), err_msg=case.id)


def test_control_flow_and_groups_require_modules():
    for cls in OPS:
        assert not (cls.control and cls.fused), cls.name
        assert cls.takes_modules or not (cls.control or cls.fused), cls.name


def test_a_trait_that_there_is_not_and_an_attribute_of_its_name_are_refused():
    with pytest.raises(ParameterError, match="exakt is not a trait"):
        op("mine", exakt=True)(type("Mine", (Operation,), {}))
    with pytest.raises(ParameterError, match="attribute 'product' has the name of a trait"):
        op("mine")(type("Mine", (Operation,), {"__annotations__": {"product": "int"}, "infer": lambda self, x: x}))
