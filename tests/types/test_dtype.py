from __future__ import annotations

import pickle
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

from mgx_core import dtype as dt
from mgx_core.errors import ShapeError


@pytest.mark.parametrize("t", dt.ALL, ids=str)
def test_every_name_of_a_type_is_recognized(t):
    for word in (t, t.name, t.alias, f"{t.name}_type", f"{t.alias}_type", t.numpy):
        assert dt.of(word) is t
    assert pickle.loads(pickle.dumps(t)) is t


def test_the_terms_of_migraphx():
    assert [dt.of(w).name for w in ("half_type", "float_type", "double_type", "bool_type", "fp8e4m3fn_type")] == [
        "float16",
        "float32",
        "float64",
        "bool",
        "float8_e4m3fn",
    ]


def test_types_from_numpy_and_python():
    assert dt.of(np.float32) is dt.float32
    assert dt.of(float) is dt.float64
    assert dt.of(np.dtype(">i4")) is dt.int32
    assert dt.of(ml_dtypes.bfloat16) is dt.bfloat16
    assert dt.of("<U5") is dt.string
    assert dt.of(np.dtype("S3")) is dt.string


@pytest.mark.parametrize("bad", ["float33", "M8[s]", [("a", "f4")], 3.5, "V4"])
def test_unknown_types_are_refused(bad):
    with pytest.raises(ShapeError, match="is not an element type; known are bool, int8"):
        dt.of(bad)


def test_kinds():
    assert {t.name for t in dt.ALL if t.is_float and t.bits < 16} == {
        "float8_e4m3fn",
        "float8_e4m3fnuz",
        "float8_e5m2",
        "float8_e5m2fnuz",
        "float8_e8m0fnu",
        "float6_e2m3fn",
        "float6_e3m2fn",
        "float4_e2m1fn",
    }
    assert [t.name for t in dt.ALL if not t.is_number] == ["bool", "string"]
    assert [t.name for t in dt.ALL if not t.is_computable] == ["string"]
    assert dt.int4.is_integer
    assert dt.int4.is_signed
    assert not dt.uint4.is_signed
    assert (dt.int4.bits, dt.int4.size) == (4, 1)


def test_limits():
    assert (dt.int8.lowest, dt.int8.highest) == (-128, 127)
    assert (dt.uint64.lowest, dt.uint64.highest) == (0, 2**64 - 1)
    assert (dt.int4.lowest, dt.int4.highest, dt.uint2.highest) == (-8, 7, 3)
    assert dt.float16.highest == 65504
    assert dt.float8_e4m3fn.highest == 448
    assert dt.float4_e2m1fn.lowest == -6
    assert (dt.float6_e2m3fn.highest, dt.float6_e3m2fn.highest) == (7.5, 28)
    assert dt.float32.lowest == -float(np.finfo(np.float32).max)
    assert (dt.bool_.lowest, dt.bool_.highest) == (False, True)
    with pytest.raises(ShapeError, match="complex64 has no smallest"):
        _ = dt.complex64.lowest


def test_epsilon_is_the_step_after_one():
    for t in (dt.float16, dt.bfloat16, dt.float32, dt.float8_e4m3fn, dt.float8_e5m2):
        above = (np.array(1, t.numpy).astype(np.float64) + t.epsilon).astype(t.numpy)
        between = np.float64(1 + t.epsilon / 4).astype(t.numpy)
        assert above != np.array(1, t.numpy)
        assert between == np.array(1, t.numpy)
    assert dt.int32.epsilon == 0


def test_the_smallest_normal_number_has_all_digits():
    for t in (dt.float16, dt.bfloat16, dt.float32, dt.float8_e4m3fn):
        least = np.float64(t.smallest_normal)
        next_ = least * (1 + t.epsilon)
        assert np.float64(next_.astype(t.numpy)) == next_
        assert np.float64((next_ / 2).astype(t.numpy)) != next_ / 2
    assert dt.int32.smallest_normal == 0


def test_types_of_the_reference_computation():
    assert dt.float16.accumulate == np.float32
    assert dt.float8_e5m2.accumulate == np.float32
    assert dt.float64.accumulate == np.float64
    assert dt.int4.accumulate == np.int8
    assert dt.uint2.accumulate == np.uint8
    assert dt.int64.accumulate == np.int64


def test_no_module_of_numpy_is_imported_for_annotations_alone():
    asked = "import sys, mgx_core.types.dtype; assert 'numpy.typing' not in sys.modules"
    subprocess.run([sys.executable, "-c", asked], check=True)
