"""Arguments in files."""

from __future__ import annotations

import ml_dtypes
import msgpack
import numpy as np
import pytest

import mgx_core as mgx
from mgx_core.errors import ParameterError, StoreError


@pytest.mark.parametrize(
    "array",
    [
        np.arange(12, dtype=np.float32).reshape(3, 4),
        np.arange(12, dtype=np.int64).reshape(3, 4).T,
        np.array(2.5, np.float16),
        np.zeros((0, 3), np.uint8),
        np.array([True, False]),
        np.array([1, 2.5], ml_dtypes.bfloat16),
    ],
    ids=lambda a: f"{a.dtype}{a.shape}",
)
def test_there_and_back(array, tmp_path) -> None:
    mgx.Argument(array).save(tmp_path / "a")
    back = mgx.Argument.load(tmp_path / "a").to_numpy()
    assert (back.dtype, back.shape) == (array.dtype, array.shape)
    np.testing.assert_array_equal(back, array)
    if back.size:
        back[...] = 0  # it owns its memory


def test_as_migraphx_calls_it_and_tuples(tmp_path) -> None:
    pair = mgx.Argument((np.ones(2, np.float32), np.array([3], np.int32)))
    mgx.argument.save(pair, str(tmp_path / "pair"))
    assert mgx.argument.load(str(tmp_path / "pair")) == pair


def test_the_file_size_matches_its_shape(tmp_path) -> None:
    mgx.Argument(np.array([[1, 2]], np.int32)).save(tmp_path / "a")
    document = msgpack.unpackb((tmp_path / "a").read_bytes())
    assert document["shape"] == {"type": "int32_type", "lens": [1, 2], "strides": [2, 1]}
    np.testing.assert_array_equal(np.frombuffer(document["data"], np.int32), [1, 2])


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        msgpack.packb([1]),
        msgpack.packb({"shape": {"type": "float_type", "lens": [4], "strides": [1]}, "data": b"123"}),
        msgpack.packb({"shape": {"type": "float_type", "lens": [1 << 60], "strides": [1]}, "data": b""}),
        msgpack.packb({"shape": {"type": "float_type", "lens": [2], "strides": [-1]}, "data": b"12345678"}),
    ],
)
def test_damaged_files(data, tmp_path) -> None:
    (tmp_path / "a").write_bytes(data)
    with pytest.raises(StoreError, match="holds no argument"):
        mgx.Argument.load(tmp_path / "a")


def test_programs_that_cannot_be_cached(tmp_path) -> None:
    with pytest.raises(ParameterError, match="tensors of numbers"):
        mgx.Argument(np.array(["a"], object)).save(tmp_path / "a")


def test_places_without_a_file(tmp_path) -> None:
    with pytest.raises(StoreError, match="cannot be read: No such file"):
        mgx.Argument.load(tmp_path / "a")
    with pytest.raises(StoreError, match="cannot be written: No such file"):
        mgx.Argument(np.ones(2)).save(tmp_path / "no" / "a")
