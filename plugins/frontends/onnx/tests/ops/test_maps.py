"""Maps."""

from __future__ import annotations

import numpy as np
import pytest

from mgx_core import Argument
from mgx_core import dtype as dt
from mgx_core.errors import ParameterError, ShapeError
from mgx_core.types.shape import SequenceShape, Shape, matches
from mgx_onnx.ops.maps import CastMap, DictVectorizer, ZipMap, map_shape, map_types


def test_zip() -> None:
    x = np.array([[0.25, 0.75], [1, 0]], np.float32)
    op = ZipMap(labels_strings=["a", "b"])
    assert op.evaluate([x]) == [{"a": 0.25, "b": 0.75}, {"a": 1, "b": 0}]
    assert ZipMap(labels_ints=[7, 8]).evaluate([x[0]]) == [{7: 0.25, 8: 0.75}]
    result = op.result([Shape.of(dt.float32, (2, 2))])
    assert isinstance(result, SequenceShape) and map_types(result.element) == (dt.string, dt.float32)
    with pytest.raises(ParameterError, match="labels"):
        ZipMap()
    with pytest.raises(ShapeError, match="one column per label"):
        op.result([Shape.of(dt.float32, (2, 3))])


def test_maps_are_values() -> None:
    argument = Argument({"a": 1.5})
    assert argument.value == {"a": 1.5} and argument == Argument({"a": 1.5}) and argument != Argument({"a": 2.0})
    assert matches(map_shape(dt.string, dt.float32), argument.shape)
    assert not matches(map_shape(dt.int64, dt.float32), argument.shape)
    assert matches(map_shape(dt.int64, dt.string), Argument({3: "x"}).shape)


def test_cast() -> None:
    x = {3: 1.5, 0: -2.0}
    assert CastMap().evaluate([x]).tolist() == [[-2, 1.5]]
    out = CastMap(map_form="SPARSE", max_map=5, cast_to=dt.int64).evaluate([x])
    assert out.dtype == np.int64 and out.tolist() == [[-2, 0, 0, 1, 0]]
    assert CastMap(cast_to=dt.string).evaluate([{1: "x", 0: 0.5}]).tolist() == [["0.5", "x"]]
    assert CastMap().evaluate([{0: "2.5"}]).tolist() == [[2.5]]
    with pytest.raises(ParameterError, match="cannot be cast"):
        CastMap().evaluate([{0: "two"}])
    with pytest.raises(ParameterError, match=r"\[0, 2\]"):
        CastMap(map_form="SPARSE", max_map=3).evaluate([x])
    with pytest.raises(ParameterError, match="max_map"):
        CastMap(map_form="SPARSE", max_map=1 << 50)
    with pytest.raises(ShapeError, match="int64"):
        CastMap().result([map_shape(dt.string, dt.float32)])


def test_dict_vectorizer() -> None:
    op = DictVectorizer(string_vocabulary=["a", "c", "b", "z"])
    out = op.evaluate([{"a": 4.0, "c": 8.0}])
    assert out.dtype == np.float32 and out.tolist() == [[4, 8, 0, 0]]
    assert op.result([map_shape(dt.string, dt.float32)]) == Shape.of(dt.float32, (1, 4))
    texts = DictVectorizer(int64_vocabulary=[1, 2], dtype=dt.string).evaluate([{2: "x"}])
    assert texts.tolist() == [["", "x"]]
    with pytest.raises(ParameterError, match="does not contain the key 'q'"):
        op.evaluate([{"q": 1.0}])
    with pytest.raises(ShapeError, match="type of the map's keys"):
        op.result([map_shape(dt.int64, dt.float32)])
    with pytest.raises(ShapeError, match="a map is required"):
        op.result([Shape.of(dt.float32, (2,))])
