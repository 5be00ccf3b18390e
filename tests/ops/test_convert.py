"""Conversions between element types."""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from mgx_core import dtype as dt
from mgx_core.errors import ParameterError
from mgx_core.ops.convert import Convert
from mgx_core.types.shape import Shape

NUMBERS = [t for t in dt.ALL if t.kind != "s"]


def run(x: Any, to: str, **attributes: Any) -> Any:
    array = np.asarray(x)
    op = Convert(target_type=to, **attributes)
    shape = op.result([Shape(dt.of(array.dtype), array.shape)])
    out = op.evaluate([array])
    assert dt.of(out.dtype) is shape.dtype is dt.of(to)
    assert out.shape == array.shape
    return out


@pytest.mark.parametrize("to", NUMBERS, ids=str)
@pytest.mark.parametrize("source", NUMBERS, ids=str)
def test_one_stays_one(source: dt.DType, to: dt.DType) -> None:
    x = np.array([[1, 1]]).astype(source.numpy)
    assert run(x, to.name).astype(np.complex64).tolist() == [[1, 1]]


def test_floats_truncate_toward_integers() -> None:
    np.testing.assert_array_equal(run(np.float32([2.7, -2.7, 0.5]), "int32"), [2, -2, 0])
    np.testing.assert_array_equal(run(np.float32([9.7, -3]), "int4"), [-7, -3])
    np.testing.assert_array_equal(run(np.float32([0.0, -0.0, 0.1, np.nan]), "bool"), [False, False, True, True])


def test_integers_keep_the_low_bits() -> None:
    np.testing.assert_array_equal(run(np.int16([200, -1]), "int8"), [-56, -1])
    np.testing.assert_array_equal(run(np.int64([2**32 + 5]), "uint32"), [5])
    np.testing.assert_array_equal(run(np.int8([9]), "int4"), [-7])


X = np.float32([0.3, 1e6, -1e6, np.inf, -np.inf, np.nan, -0.0])


@pytest.mark.parametrize("to", ["float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"])
@pytest.mark.parametrize("source", [np.float16, np.float32, np.float64, ml_dtypes.bfloat16])
def test_float8_saturates_or_not(to: str, source: Any) -> None:
    highest = dt.of(to).highest
    x = X.astype(np.float64).clip(-60000, 60000).astype(source) if source is np.float16 else X.astype(source)
    small = np.float32(0.3).astype(dt.of(to).numpy).astype(np.float32)
    out = run(x, to).astype(np.float32)
    np.testing.assert_array_equal(out[[0, 5, 6]], [small, np.nan, 0])
    if source is not np.float16 or "e4m3" in to:
        np.testing.assert_array_equal(out[1:5], [highest, -highest, highest, -highest])
    loose = run(X.astype(np.float32), to, saturate=False).astype(np.float32)
    over = np.inf if to == "float8_e5m2" else np.nan
    np.testing.assert_array_equal(loose, [small, over, -over, over, -over, np.nan, 0])


def codes(x: Any, **attributes: Any) -> list[int]:
    return run(np.float32(x), "float8_e8m0fnu", **attributes).view(np.uint8).tolist()


def test_powers_of_two() -> None:
    x = [0, 1, 1.1, 1.5, 1.49, 2, np.inf, np.nan, 1e-40]
    assert codes(x) == [0, 127, 128, 128, 128, 128, 254, 255, 0]
    assert codes(x, round_mode="down") == [0, 127, 127, 127, 127, 128, 254, 255, 0]
    assert codes(x, round_mode="nearest", saturate=False) == [255, 127, 127, 128, 127, 128, 255, 255, 255]


def test_numbers_from_text_and_to_text() -> None:
    texts = np.array(["3.14", "1e-5", "-INF", "nan", " 7 "], object)
    np.testing.assert_array_equal(run(texts, "float32"), np.float32([3.14, 1e-5, -np.inf, np.nan, 7]))
    assert run(np.array(["12", "-3", "100.5", "18446744073709551615"], object), "int64").tolist() == [12, -3, 100, -1]
    assert run(np.array(["0", "2", "True"], object), "bool").tolist() == [False, True, True]
    assert run(np.array(["1.5"], object), "float8_e4m3fn").astype(np.float32).tolist() == [1.5]
    assert run(np.float32([[0.1, 2]]), "string").tolist() == [["0.1", "2.0"]]
    assert run(np.int8([-3]), "string").tolist() == ["-3"]
    for bad in ("Hello", "1_000", ""):
        with pytest.raises(ParameterError, match="is not a number"):
            run(np.array([bad], object), "float32")
    for bad in ("+-5", "--5", "-"):  # at most one sign
        with pytest.raises(ParameterError, match=f"the text '{re.escape(bad)}' is not a number"):
            run(np.array([bad], object), "int64")
    with pytest.raises(ParameterError, match="is not an integer"):
        run(np.array(["inf"], object), "int32")
    with pytest.raises(ParameterError, match="round_mode"):
        Convert(target_type="float8_e8m0fnu", round_mode="sideways")
