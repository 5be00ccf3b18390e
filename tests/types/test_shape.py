from __future__ import annotations

import numpy as np
import pytest

from mgx_core import dim
from mgx_core import dtype as dt
from mgx_core.errors import ShapeError, UnrankedError
from mgx_core.types.dynamic_dimension import DynamicDimension
from mgx_core.types.shape import OptionalShape, SequenceShape, Shape, TupleShape, matches

n = dim.symbol("n", 1, 8)


def test_a_plain_shape():
    s = Shape("float", [2, 3, 4])
    assert s.dtype is dt.float32
    assert (s.lens(), s.strides(), s.rank, s.ndim()) == ([2, 3, 4], [12, 4, 1], 3, 3)
    assert (s.elements(), s.element_space(), s.bytes()) == (24, 24, 96)
    assert s.standard()
    assert s.packed()
    assert not (s.transposed() or s.broadcasted() or s.scalar() or s.dynamic())
    assert list(s) == [2, 3, 4]
    assert (len(s), s[1]) == (3, 3)
    assert s.type_string() == "float_type"
    assert str(s) == "float32[2, 3, 4]"


def test_defaults_are_one_float():
    assert Shape() == Shape("float32", [1])
    assert Shape("int64", []).elements() == 1


def test_lens_from_any_integer_type():
    assert Shape("int8", np.array([2, 3])) == Shape("int8", (np.int64(2), True + 2))


def test_row_major_strides_are_the_same_shape():
    assert Shape("int8", [2, 3], [3, 1]) == Shape("int8", [2, 3])
    assert hash(Shape("int8", [2, 3], [3, 1])) == hash(Shape("int8", [2, 3]))
    assert Shape("int8", [2, 3], [1, 2]) != Shape("int8", [2, 3])


def test_transposed_memory():
    s = Shape("float", [2, 3, 4], permutation=[0, 2, 1])
    assert s.strides() == [12, 1, 3]
    assert s.transposed()
    assert s.packed()
    assert not s.standard()
    assert s.as_standard() == Shape("float", [2, 3, 4])
    assert str(s) == "float32[2, 3, 4]{12, 1, 3}"
    with pytest.raises(ShapeError, match="does not order the 3 axes"):
        Shape("float", [2, 3, 4], permutation=[0, 1, 1])


def test_broadcast_memory():
    s = Shape("float", [2, 3], [0, 1])
    assert s.broadcasted()
    assert not s.packed()
    assert (s.element_space(), s.bytes(), s.elements()) == (3, 12, 6)
    assert Shape("float", [4, 5], [0, 0]).scalar()
    assert not s.scalar()


@pytest.mark.parametrize(
    ("lens", "strides"),
    [([2, 2], [0, 3]), ([3, 3], [2, 2]), ([2, 3], [4, 1]), ([4], [2])],
)
def test_gaps_and_overlaps_are_not_packed(lens, strides):
    assert not Shape("float", lens, strides).packed()


def test_packed_agrees_with_counting_addresses():
    for strides in np.ndindex(7, 7):
        s = Shape("int8", [2, 3], strides)
        addresses = sorted(i * strides[0] + j * strides[1] for i in range(2) for j in range(3))
        assert s.packed() is (addresses == list(range(6)))


def test_empty_tensors():
    s = Shape("float", [2, 0, 3])
    assert (s.elements(), s.element_space(), s.bytes()) == (0, 0, 0)
    assert s.packed()


def test_narrow_types_occupy_a_byte_on_the_host():
    assert Shape("int4", [3, 5]).bytes() == 15
    assert Shape("bf16", [3, 5]).bytes() == 30


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("float", [2, -1]), "must not be negative, got -1"),
        (("float", [2.5]), "must be an integer, got 2.5"),
        (("float", ["n"]), "must be an integer, got 'n'"),
        (("floot", [2]), "'floot' is not an element type"),
        (("float", [2, 3], [1]), "1 strides given for 2 extents"),
        (("float", [1 << 30, 1 << 30]), "more than any tensor may"),
        (("float", 3), "must be a list of extents, got 3"),
        (("float", [2], ["a"]), "strides must be ints"),
    ],
)
def test_bad_shapes(arguments, message):
    with pytest.raises(ShapeError, match=message):
        Shape(*arguments)


def test_symbolic_extents():
    s = Shape("float", [n, 3, n * 2])
    assert s.dynamic()
    assert s.elements() == 8 * 3 * 16
    assert s.bytes() == 4 * 8 * 3 * 16
    assert s.sym_elements() == 6 * n * n
    assert s.substitute({"n": 4}) == Shape("float", [4, 3, 8])
    assert s.dyn_dims() == [DynamicDimension(1, 8), DynamicDimension(3, 3), DynamicDimension(2, 16)]
    assert str(s) == "float32[n, 3, 2*n]"
    for ask in (s.lens, s.strides, s.element_space):
        with pytest.raises(ShapeError, match="no static extents"):
            ask()


def test_ranges_become_separate_symbols():
    for s in (
        Shape("float", dyn_dims=[DynamicDimension(1, 4), (1, 4), {"min": 3, "max": 3}]),
        Shape("float", [DynamicDimension(1, 4), DynamicDimension(1, 4), 3]),
    ):
        assert s.dims[0] != s.dims[1]
        assert s.dims[2] == 3
        assert s.dyn_dims()[1] == DynamicDimension(1, 4)


@pytest.mark.parametrize("given", [[{"min": 1}], ["x"], [(1,)], [None]])
def test_invalid_ranges_are_rejected(given):
    with pytest.raises(ShapeError, match="dyn_dims must be a list of ranges, got"):
        Shape("float", dyn_dims=given)
    with pytest.raises(ShapeError, match="bounds must satisfy"):
        Shape("float", dyn_dims=[(4, 1)])


def test_unknown_rank():
    s = Shape.unranked(dt.float32)
    assert s.dynamic()
    assert not s.ranked
    assert str(s) == "float32[*]"
    assert s.with_dtype(dt.int8) == Shape.unranked(dt.int8)
    with pytest.raises(UnrankedError, match="rank of a float32 tensor"):
        _ = s.dims


def test_others_like_it():
    s = Shape("float", [2, 3], [1, 2])
    assert s.with_dims([6]) == Shape("float", [6])
    assert s.with_dtype(dt.int8) == Shape("int8", [2, 3])
    with pytest.raises(ShapeError, match="must not be negative"):
        s.with_dims([2, -3])


def test_composite_types():
    pair = TupleShape([Shape("float", [n]), Shape("int64", [2])])
    assert pair.substitute({"n": 3}) == TupleShape([Shape("float", [3]), Shape("int64", [2])])
    assert pair.dynamic()
    assert str(pair) == "(float32[n], int64[2])"
    many, maybe = SequenceShape(Shape("float", [n])), OptionalShape(Shape("float", [n]))
    assert many != maybe
    assert len({many, maybe, many.substitute({}), SequenceShape(Shape("float", [n]))}) == 2
    assert (str(many), str(maybe)) == ("sequence<float32[n]>", "optional<float32[n]>")


@pytest.mark.parametrize(
    ("declared", "actual", "fits"),
    [
        (Shape("float", [n, 3]), Shape("float", [8, 3]), True),
        (Shape("float", [n, 3]), Shape("float", [9, 3]), False),
        (Shape("float", [n, 3]), Shape("double", [2, 3]), False),
        (Shape("float", [n]), Shape("float", [2, 3]), False),
        (Shape("float", [2, 3]), Shape("float", [2, 3], [1, 2]), True),
        (Shape.unranked(dt.float32), Shape("float", [2, 3]), True),
        (TupleShape([Shape("float", [n])]), TupleShape([Shape("float", [4])]), True),
        (TupleShape([Shape("float", [n])]), TupleShape([]), False),
        (SequenceShape(Shape("float", [n])), SequenceShape(Shape("float", [3])), True),
        (SequenceShape(Shape("float", [n])), Shape("float", [3]), False),
        (OptionalShape(Shape("float", [n])), Shape("float", [3]), True),
        (OptionalShape(Shape("float", [n])), OptionalShape(Shape("float", [30])), False),
    ],
)
def test_matching_values_to_declarations(declared, actual, fits):
    assert matches(declared, actual) is fits


def test_names_of_migraphx():
    assert Shape.type_t.float_type is dt.float32
    assert Shape(type=Shape.type_t.bf16_type, lens=[2]) == Shape("bfloat16", [2])
    assert {f"{t.alias}_type" for t in dt.ALL} == set(vars(Shape.type_t))
    ranged = Shape("float", dyn_dims=[Shape.dynamic_dimension(1, 4, {2}), Shape.dynamic_dimension(3, 3)])
    assert [(d.min, d.max, set(d.optimals)) for d in ranged.dyn_dims()] == [(1, 4, {2}), (3, 3, set())]
