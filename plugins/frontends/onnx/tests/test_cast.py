"""Conversions."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto

from mgx_core import MgxError

X = np.float32([0.5, -3.7, 1e6])


def test_target_by_number_or_name(run: Any) -> None:
    assert run("Cast", X, to=TensorProto.INT32)[0].tolist() == [0, -3, 1000000]
    assert run("Cast", X, opset=1, to="INT64")[0].tolist() == [0, -3, 1000000]
    assert run("Cast", X, to=TensorProto.FLOAT)[0].tolist() == X.tolist()
    for bad in (999, 0):
        with pytest.raises(MgxError, match="not an ONNX element type"):
            run("Cast", X, to=bad)
    with pytest.raises(MgxError, match="not an ONNX element type"):
        run("Cast", X, opset=1, to="NUMBER")


def test_options_reach_the_op(run: Any) -> None:
    assert run("Cast", X, to=TensorProto.FLOAT8E4M3FN)[0].astype(np.float32).tolist() == [0.5, -3.75, 448]
    out = run("Cast", X, to=TensorProto.FLOAT8E4M3FN, saturate=0)[0]
    assert np.isnan(out.astype(np.float32)[2])
    x = np.float32([1.1, 3])
    out = run("Cast", x, opset=25, to=TensorProto.FLOAT8E8M0, round_mode="down")[0]
    assert out.astype(np.float32).tolist() == [1, 2]


def test_like_and_bits(run: Any) -> None:
    out = run("CastLike", X, np.zeros(1, ml_dtypes.bfloat16))[0]
    assert out.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(run("BitCast", X, opset=26, to=TensorProto.INT32)[0], X.view(np.int32))
    with pytest.raises(MgxError, match="cannot be read"):
        run("BitCast", X, opset=26, to=TensorProto.INT8)


def test_text(run: Any) -> None:
    out = run("Cast", np.array(["1.5", "-INF"], object), to=TensorProto.FLOAT)[0]
    assert out.tolist() == [1.5, -np.inf]
    assert run("Cast", np.int64([12]), to=TensorProto.STRING)[0].tolist() == ["12"]
