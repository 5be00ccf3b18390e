"""Feature preparation and labels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mgx_core import Module, No
from mgx_core import dtype as dt
from mgx_core.errors import ParameterError, ShapeError
from mgx_core.ir.interpreter import Interpreter
from mgx_core.rules.decomposition import decomposed
from mgx_core.types.argument import shape_of
from mgx_core.types.shape import Shape
from mgx_onnx.ops.classical import (
    ArrayFeatureExtractor,
    Binarizer,
    FeatureVectorizer,
    Imputer,
    Normalizer,
    OneHotEncoder,
    Scaler,
)
from mgx_onnx.ops.labels import LabelEncoder

NUMBERS = [np.float32, np.float64, np.int64, np.int32]
X = np.array([[1, -2, 3], [0, 4, -4]])


def strings(*values: Any) -> Any:
    return np.array(values, object)


def test_feature_extractor() -> None:
    op = ArrayFeatureExtractor()
    assert op.evaluate([X, np.array([[2, 0]])]).tolist() == [[3, 1], [-4, 0]]
    assert op.evaluate([strings("a", "b"), np.array(1)]).tolist() == [["b"]]
    assert op.result([Shape.of(dt.int32, (5, 2, 3)), Shape.of(dt.int64, (4,))]) == Shape.of(dt.int32, (5, 2, 4))
    assert op.result([Shape.of(dt.int32, (3,)), Shape.of(dt.int64, (4,))]) == Shape.of(dt.int32, (1, 4))
    for bad in (3, -1):
        with pytest.raises(ShapeError, match=r"\[0, 2\]"):
            op.evaluate([X, np.array([bad])])


@pytest.mark.parametrize("dtype", NUMBERS)
def test_numbers_of_all_types(dtype: Any) -> None:
    x = X.astype(dtype)
    out = Binarizer(threshold=0.5).evaluate([x])
    assert out.dtype == dtype and out.tolist() == [[1, 0, 1], [0, 1, 0]]
    out = Scaler(offset=[1, 2, 3], scale=[2.0]).evaluate([x])
    assert out.dtype == np.float32 and out.tolist() == [[0, -8, 0], [-2, 4, -14]]
    out = FeatureVectorizer().evaluate([x, x[:, :1]])
    assert out.dtype == np.float32 and out.tolist() == [[1, -2, 3, 1], [0, 4, -4, 0]]
    out = OneHotEncoder(cats_int64s=[4, 1]).evaluate([x])
    assert out.dtype == np.float32 and out.tolist() == [[[0, 1], [0, 0], [0, 0]], [[0, 0], [1, 0], [0, 0]]]


@pytest.mark.parametrize("dtype", NUMBERS)
def test_scaling_needs_no_kernel_of_its_own(dtype: Any) -> None:
    x = X.astype(dtype)
    for op in (Scaler(offset=[1, 2, 0.1], scale=[2.0]), Scaler(scale=[0.1, 3, 1e-3]), Scaler(offset=[0.5]), Scaler()):
        parts = decomposed(op, [shape_of(x)])
        assert isinstance(parts, Module)
        (made,) = Interpreter().run(parts, [x])
        np.testing.assert_array_equal(made, op.evaluate([x]))


def same_apart(op: Any, *xs: Any) -> None:
    """Checks that an op's decomposition returns the op's result."""
    parts = decomposed(op, [shape_of(x) for x in xs])
    assert isinstance(parts, Module)
    (made,) = Interpreter().run(parts, list(xs))
    wanted = op.evaluate(list(xs))
    assert (made.dtype, made.shape) == (wanted.dtype, wanted.shape)
    np.testing.assert_allclose(made, wanted, rtol=1e-7)


@pytest.mark.parametrize("dtype", NUMBERS)
def test_features_are_decomposed(dtype: Any) -> None:
    x = X.astype(dtype)
    for threshold in (0.5, -2, 3.0):
        same_apart(Binarizer(threshold=threshold), x)
    for norm in ("MAX", "L1", "L2"):
        for rows in (x, x[0], x * 0, x[:0]):
            same_apart(Normalizer(norm=norm), rows)
    for index in (np.array([[2, 0]]), np.array(1), np.zeros(0, np.int64)):
        same_apart(ArrayFeatureExtractor(), x, index)
        same_apart(ArrayFeatureExtractor(), x[0], index)
    parts = decomposed(ArrayFeatureExtractor(), [shape_of(x), Shape.of(dt.int64, (1,))])
    for bad in (3, -1):
        with pytest.raises(ShapeError, match="indices must lie"):
            Interpreter().run(parts, [x, np.array([bad])])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_missing_values_are_decomposed(dtype: Any) -> None:
    x = np.array([[np.nan, 1], [0.1, np.nan]], dtype)
    for old in (np.nan, 0.1, 1.0):
        same_apart(Imputer(imputed_value_floats=[7, 8.1], replaced_value_float=old), x)
        same_apart(Imputer(imputed_value_floats=[0.3], replaced_value_float=old), x)
    whole = decomposed(Imputer(imputed_value_int64s=[1 << 40]), [Shape.of(dt.int32, (2,))])
    assert isinstance(whole, No)


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.int8, np.uint8])
def test_categories_are_decomposed(dtype: Any) -> None:
    x = np.array([[4, 0, 1], [2, 100, 7]], dtype)
    same_apart(OneHotEncoder(cats_int64s=[4, -1, 7]), x)
    same_apart(LabelEncoder(dtype=dt.float32, keys_int64s=[4, 2, 7, 4], values_floats=[0.5, 1.5, 2.5, 3.5]), x)
    same_apart(LabelEncoder(dtype=dt.int64, keys_int64s=[300, -5], values_int64s=[1, 2], default_int64=-9), x)


def test_categories_that_stay_whole() -> None:
    far = LabelEncoder(dtype=dt.int64, keys_int64s=[k << 40 for k in range(17)], values_int64s=range(17))
    strict = OneHotEncoder(cats_int64s=[4, 1], zeros=False)
    for op in (far, strict, OneHotEncoder(cats_int64s=[4, 4])):
        assert isinstance(decomposed(op, [Shape.of(dt.int64, (3,))]), No)
    edges = np.array([-(2**63), 2**63 - 1, 3])
    same_apart(LabelEncoder(dtype=dt.int64, keys_int64s=[3, 1], values_int64s=[1, 2]), edges)


def test_normalizer() -> None:
    rows = np.array([[3, -4], [0, 0], [-1, -2]], np.float32)
    assert Normalizer(norm="MAX").evaluate([rows]).tolist() == [[1, np.float32(-4 / 3)], [0, 0], [1, 2]]
    np.testing.assert_allclose(
        Normalizer(norm="L1").evaluate([rows]), [[3 / 7, -4 / 7], [0, 0], [-1 / 3, -2 / 3]], rtol=1e-6
    )
    np.testing.assert_allclose(Normalizer(norm="L2").evaluate([rows[0]]), [0.6, -0.8], rtol=1e-6)
    assert Normalizer().evaluate([rows[:0]]).shape == (0, 2)


def test_imputer() -> None:
    x = np.array([[np.nan, 1], [2, np.nan]], np.float32)
    assert Imputer(imputed_value_floats=[7, 8], replaced_value_float=np.nan).evaluate([x]).tolist() == [[7, 1], [2, 8]]
    assert Imputer(imputed_value_int64s=[9], replaced_value_int64=4).evaluate([X]).tolist() == [[1, -2, 3], [0, 9, -4]]
    with pytest.raises(ParameterError, match="exactly one"):
        Imputer()
    with pytest.raises(ShapeError, match="of the data's kind"):
        Imputer(imputed_value_floats=[1]).result([Shape.of(dt.int64, (2,))])
    with pytest.raises(ShapeError, match="one per feature"):
        Imputer(imputed_value_floats=[1, 2]).result([Shape.of(dt.float32, (2, 3))])
    with pytest.raises(ParameterError, match="out of range for int32"):
        Imputer(imputed_value_int64s=[1 << 40]).evaluate([X.astype(np.int32)])


def test_vectorizer_dimensions() -> None:
    out = FeatureVectorizer(inputdimensions=[4, 1]).evaluate([X[0], X[1]])
    assert out.tolist() == [[1, -2, 3, 0, 0]]
    shapes = [Shape.of(dt.float32, (5, 2, 3)), Shape.of(dt.float32, (5, 1))]
    assert FeatureVectorizer().result(shapes) == Shape.of(dt.float32, (5, 7))
    with pytest.raises(ShapeError, match="rows"):
        FeatureVectorizer().result([shapes[0], Shape.of(dt.float32, (4, 1))])


def test_unknown_categories() -> None:
    x = strings("a", "z")
    assert OneHotEncoder(cats_strings=["a"]).evaluate([x]).tolist() == [[1], [0]]
    with pytest.raises(ParameterError, match="'z'"):
        OneHotEncoder(cats_strings=["a"], zeros=False).evaluate([x])
    with pytest.raises(ShapeError, match="strings"):
        OneHotEncoder(cats_strings=["a"]).result([Shape.of(dt.int64, (1,))])
    assert OneHotEncoder(cats_int64s=[1]).evaluate([np.array([np.nan, np.inf, 1.9])]).tolist() == [[0], [0], [1]]


@pytest.mark.parametrize(
    ("attributes", "x", "expected"),
    [
        ({"dtype": dt.int64, "keys_strings": ["a", "b"], "values_int64s": [5, 6]}, strings("b", "c"), [6, -1]),
        (
            {"dtype": dt.string, "keys_int64s": [3, 1, 3], "values_strings": ["x", "y", "z"]},
            np.array([3, 1, 0]),
            ["z", "y", "_Unused"],
        ),
        (
            {"dtype": dt.float32, "keys_floats": [np.nan, 1.5], "values_floats": [0.5, 2], "default_float": 9.0},
            np.float32([1.5, np.nan, 0]),
            [2, 0.5, 9],
        ),
        ({"dtype": dt.int16, "keys_floats": [0.1], "values_int64s": [7]}, np.array([[0.1], [0.2]]), [[7], [-1]]),
        ({"dtype": dt.float64, "keys_int64s": [2], "values_floats": [0.1]}, np.array([2], np.int32), [0.1]),
    ],
)
def test_label_encoder(attributes: dict[str, Any], x: Any, expected: list[Any]) -> None:
    out = LabelEncoder(**attributes).evaluate([x])
    assert out.dtype == attributes["dtype"].numpy and out.tolist() == expected
    many = LabelEncoder(**attributes).evaluate([np.concatenate([x] * 600)])  # integers are looked up with arrays
    assert many.dtype == out.dtype and many.tolist() == expected * 600
    assert LabelEncoder(**attributes).evaluate([x[:0]]).shape == x[:0].shape


def test_label_encoder_refuses() -> None:
    with pytest.raises(ParameterError, match="same length"):
        LabelEncoder(dtype=dt.int64, keys_strings=["a"], values_int64s=[1, 2])
    with pytest.raises(ParameterError, match="same length"):
        LabelEncoder(dtype=dt.int64, keys_strings=["a"], keys_int64s=[1], values_int64s=[1])
    with pytest.raises(ParameterError, match="match"):
        LabelEncoder(dtype=dt.string, keys_strings=["a"], values_int64s=[1])
    with pytest.raises(ShapeError, match="kind string"):
        LabelEncoder(dtype=dt.int64, keys_strings=["a"], values_int64s=[1]).result([Shape.of(dt.int64, ())])
