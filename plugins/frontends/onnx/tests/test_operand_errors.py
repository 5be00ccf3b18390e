"""Operands and attributes that ops of this package reject: the error states what was required and what was got."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from mgx_core import Operation, ParameterError, Shape, ShapeError
from mgx_core import dtype as dt
from mgx_onnx.ops.classical import ArrayFeatureExtractor, FeatureVectorizer, OneHotEncoder
from mgx_onnx.ops.dropout import Dropout
from mgx_onnx.ops.loss import NegativeLogLikelihoodLoss
from mgx_onnx.ops.maps import CastMap, DictVectorizer, ZipMap
from mgx_onnx.ops.training import Momentum


def f(*dims: int) -> Shape:
    return Shape("float32", dims)


def i(*dims: int) -> Shape:
    return Shape("int64", dims)


@pytest.mark.parametrize(
    ("op", "operands", "said"),
    [
        (ArrayFeatureExtractor(), [f(2, 3), f(1)], "indices must be int64, got float32[1]"),
        (ArrayFeatureExtractor(), [f(), i(1)], "data must have one axis or more"),
        (Dropout(), [f(2), i(), Shape("bool")], "x and ratio must be of float types and training bool, got float32, int64 and bool"),
        (NegativeLogLikelihoodLoss(), [f(2, 3), f(2)], "target must be int32 or int64, got float32"),
        (
            Momentum(alpha=0.5, beta=0.5, mode="standard", norm_coefficient=0.0),
            [f(), i(), i(2), i(2), i(2)],
            "optimized tensors must be float32 or float64, got int64",
        ),
    ],
)  # fmt: skip
def test_types_that_do_not_fit(op: Operation, operands: list[Shape], said: str) -> None:
    with pytest.raises(ShapeError, match=f"^{op.name}.*: {re.escape(said)}$"):
        op.result(operands)


def test_scores_that_do_not_fit_at_run_time() -> None:
    with pytest.raises(ShapeError, match=r"^scores must have 2 columns, one per label, got \[1, 3\]$"):
        ZipMap(labels_ints=(1, 2)).evaluate([np.zeros((1, 3), np.float32)])


@pytest.mark.parametrize(
    ("kind", "attributes", "said"),
    [
        (CastMap, {"cast_to": dt.int32}, "cast_to must be float32, int64 or string, got int32"),
        (DictVectorizer, {}, "exactly one of int64_vocabulary and string_vocabulary must be given"),
        (OneHotEncoder, {"cats_int64s": (1,), "cats_strings": ("a",)}, "exactly one of cats_int64s and cats_strings must be given"),
        (FeatureVectorizer, {"inputdimensions": (1, -1)}, "inputdimensions must not be negative or too large, got [1, -1]"),
    ],
)  # fmt: skip
def test_attributes_that_do_not_fit(kind: type[Operation], attributes: dict[str, Any], said: str) -> None:
    with pytest.raises(ParameterError, match=f"{re.escape(said)}$"):
        kind(**attributes)
