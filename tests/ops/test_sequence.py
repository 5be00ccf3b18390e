"""Sequences and optionals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mgx_core import dtype as dt
from mgx_core.errors import ParameterError, ShapeError
from mgx_core.ops import optional as o
from mgx_core.ops import sequence as s
from mgx_core.types.dim import symbol
from mgx_core.types.shape import OptionalShape, SequenceShape, Shape

A = np.arange(6, dtype=np.float32).reshape(2, 3)
FLOATS = Shape.of(dt.float32, (2, 3))
SCALAR = Shape.of(dt.int64, ())


def at(value: int) -> Any:
    return np.asarray(value)


def test_construct_joins_types() -> None:
    assert s.SequenceConstruct().result([FLOATS, FLOATS]) == SequenceShape(FLOATS)
    mixed = s.SequenceConstruct().result([FLOATS, Shape.of(dt.float32, (4, 3))])
    assert isinstance(mixed, SequenceShape) and isinstance(mixed.element, Shape)
    assert mixed.element[1] == 3 and not isinstance(mixed.element[0], int)
    ranks = s.SequenceConstruct().result([FLOATS, SCALAR.with_dtype(dt.float32)])
    assert ranks == SequenceShape(Shape.unranked(dt.float32))
    with pytest.raises(ShapeError, match="float32 and int64"):
        s.SequenceConstruct().result([FLOATS, SCALAR])
    with pytest.raises(ShapeError, match="sequence_empty"):
        s.SequenceConstruct().result([])


def test_extents_of_items_are_their_own() -> None:
    n = symbol("n")
    element = s.SequenceAt().result([SequenceShape(Shape.of(dt.int8, (n, 2))), SCALAR])
    assert isinstance(element, Shape) and element[1] == 2 and element[0] != n


@pytest.mark.parametrize(
    ("position", "expected"), [(None, [0, 1, 2, 9]), (1, [0, 9, 1, 2]), (3, [0, 1, 2, 9]), (-3, [9, 0, 1, 2])]
)
def test_insert(position: int | None, expected: list[int]) -> None:
    items: list[Any] = [at(i) for i in range(3)]
    args = [items, at(9)] + ([] if position is None else [at(position)])
    assert [int(v) for v in s.SequenceInsert().evaluate(args)] == expected
    assert len(items) == 3


@pytest.mark.parametrize(("position", "expected"), [(None, [0, 1]), (0, [1, 2]), (-2, [0, 2])])
def test_erase(position: int | None, expected: list[int]) -> None:
    args: list[Any] = [[at(i) for i in range(3)]] + ([] if position is None else [at(position)])
    assert [int(v) for v in s.SequenceErase().evaluate(args)] == expected


def test_at_and_length() -> None:
    items = [at(5), at(6)]
    assert int(s.SequenceAt().evaluate([items, at(-2)])) == 5
    assert int(s.SequenceLength().evaluate([items])) == 2
    assert int(s.SequenceLength().evaluate([s.SequenceEmpty().evaluate([])])) == 0


@pytest.mark.parametrize("position", [2, -3])
def test_positions_outside(position: int) -> None:
    with pytest.raises(ParameterError, match=r"\[-2, 1\]"):
        s.SequenceAt().evaluate([[at(0), at(1)], at(position)])
    with pytest.raises(ParameterError, match=r"\[-2, 1\]"):
        s.SequenceErase().evaluate([[at(0), at(1)], at(position)])
    with pytest.raises(ParameterError, match=r"\[0, -1\]"):
        s.SequenceErase().evaluate([[]])


def test_invalid_sequences_and_positions() -> None:
    with pytest.raises(ShapeError, match="a sequence is required"):
        s.SequenceLength().result([FLOATS])
    with pytest.raises(ShapeError, match="int32 or int64 scalar"):
        s.SequenceAt().result([SequenceShape(FLOATS), FLOATS])
    with pytest.raises(ShapeError, match="must be a scalar"):
        s.SequenceAt().result([SequenceShape(FLOATS), Shape.of(dt.int64, (2,))])


def test_split() -> None:
    assert [v.shape for v in s.SplitToSequence(axis=1).evaluate([A])] == [(2, 1)] * 3
    assert [v.tolist() for v in s.SplitToSequence(axis=-1, keepdims=False).evaluate([A])] == [[0, 3], [1, 4], [2, 5]]
    assert [v.shape for v in s.SplitToSequence(axis=1).evaluate([A, at(2)])] == [(2, 2), (2, 1)]
    assert [v.shape for v in s.SplitToSequence(axis=1).evaluate([A, np.array([1, 0, 2])])] == [(2, 1), (2, 0), (2, 2)]
    assert s.SplitToSequence(axis=1, keepdims=False).result([FLOATS]) == SequenceShape(Shape.of(dt.float32, (2,)))
    for bad in (at(0), np.array([1, 1]), np.array([4, -1])):
        with pytest.raises(ShapeError, match="split"):
            s.SplitToSequence(axis=1).evaluate([A, bad])
    with pytest.raises(ShapeError, match="axis must lie"):
        s.SplitToSequence(axis=2).result([FLOATS])


def test_concat() -> None:
    np.testing.assert_array_equal(
        s.ConcatFromSequence(axis=1).evaluate([[A, A[:, :1]]]), np.concatenate([A, A[:, :1]], 1)
    )
    stacked = s.ConcatFromSequence(axis=-1, new_axis=True)
    np.testing.assert_array_equal(stacked.evaluate([[A, A]]), np.stack([A, A], -1))
    shape = stacked.result([SequenceShape(FLOATS)])
    assert isinstance(shape, Shape) and shape.rank == 3 and shape.dims[:2] == (2, 3)
    with pytest.raises(ShapeError, match="cannot be stacked"):
        stacked.evaluate([[A, A[:1]]])
    with pytest.raises(ShapeError, match="empty sequence"):
        stacked.evaluate([[]])


def test_optionals() -> None:
    assert o.Optional().result([FLOATS]) == OptionalShape(FLOATS)
    absent = o.Optional(type=SequenceShape(FLOATS))
    assert absent.result([]) == OptionalShape(SequenceShape(FLOATS))
    assert absent.evaluate([]) is None
    with pytest.raises(ShapeError, match="'type'"):
        o.Optional().result([])
    has, get = o.OptionalHasElement(), o.OptionalGetElement()
    assert [bool(has.evaluate([v])) for v in (A, None, [])] == [True, False, True]
    assert not has.evaluate([])
    assert get.result([OptionalShape(FLOATS)]) == FLOATS == get.result([FLOATS])
    assert get.evaluate([A]) is A
    with pytest.raises(ParameterError, match="no value"):
        get.evaluate([None])
