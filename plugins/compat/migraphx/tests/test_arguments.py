"""`migraphx.argument` and functions that create one."""

from __future__ import annotations

import struct

import numpy as np
import pytest

import migraphx
from mgx_core.errors import DeviceError, ParameterError


def test_memory_is_shared_both_ways() -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    a = migraphx.argument(array)
    assert a.data_ptr() == array.ctypes.data
    assert (a.tolist(), a.get_shape().lens()) == ([0, 1, 2, 3, 4, 5], [2, 3])
    view = memoryview(a)
    assert (view.shape, view.format, view.tolist()) == ((2, 3), "f", array.tolist())
    assert struct.unpack_from("f", a, 4) == (1,)
    assert np.array(a) is not array
    np.testing.assert_array_equal(np.array(a), array)
    assert migraphx.argument(array.T).get_shape().strides() == [1, 3]


def test_scalars_are_vectors_of_one() -> None:
    a = migraphx.argument(np.array(3, np.int64))
    assert np.array(a).shape == (1,)
    assert a.tolist() == [3]


def test_text_is_the_elements() -> None:
    assert repr(migraphx.argument(np.array([1, 2.5, -1e-7], np.float32))) == "1, 2.5, -1e-07"
    assert repr(migraphx.argument(np.array([True, False]))) == "1, 0"


def test_equal_by_type_shape_and_elements() -> None:
    a = migraphx.argument(np.ones(3, np.float32))
    assert a == migraphx.fill_argument(migraphx.shape(lens=[3]), 1)
    assert a != migraphx.argument(np.ones(3))


def test_values_of_the_generator() -> None:
    """Compares with the generator's recurrence in Python's integers."""

    def words(count: int, seed: int) -> list[int]:
        mask = (1 << 64) - 1
        x, y, z = 123456789, 362436069, 521288629 ^ seed
        out = []
        for _ in range(count):
            x ^= x << 16 & mask
            x ^= x >> 5
            x ^= x << 1 & mask
            x, y, z = y, z, x ^ y ^ z
            out.append(z)
        return out

    s = migraphx.shape(lens=[1000, 2])
    wanted = [w % 32 / 16 - 1 for w in words(2000, 5)]
    assert migraphx.generate_argument(s, 5).tolist() == wanted
    assert migraphx.generate_argument(s=s).tolist()[:3] == [w % 32 / 16 - 1 for w in words(3, 0)]
    whole = migraphx.generate_argument(migraphx.shape(type="int8", lens=[50])).tolist()
    assert whole == [16 - w % 32 for w in words(50, 0)]
    assert migraphx.generate_argument(migraphx.shape(type="uint8", lens=[9])).tolist() == [w % 32 for w in words(9, 0)]
    assert migraphx.generate_argument(migraphx.shape(type="bool", lens=[9])).tolist() == [
        w % 2 == 1 for w in words(9, 0)
    ]


def test_files(tmp_path) -> None:
    a = migraphx.generate_argument(migraphx.shape(lens=[3, 4], type="half"))
    migraphx.argument.save(a, str(tmp_path / "a"))
    back = migraphx.argument.load(str(tmp_path / "a"))
    assert isinstance(back, migraphx.argument)
    assert back == a


def test_lists_and_addresses() -> None:
    a = migraphx.create_argument(migraphx.shape(type="int32", lens=[2, 2]), [1, 2, 3, 4])
    assert np.array(a).tolist() == [[1, 2], [3, 4]]
    seen = migraphx.argument_from_pointer(migraphx.shape(type="int32", lens=[4]), a.data_ptr())
    assert seen.tolist() == [1, 2, 3, 4]


@pytest.mark.usefixtures("emulated")
def test_device_memory() -> None:
    a = migraphx.generate_argument(migraphx.shape(lens=[2, 3]))
    held = migraphx.to_gpu(a)
    assert held == a
    assert held.data_ptr() != a.data_ptr()
    assert migraphx.from_gpu(held) == a
    assert migraphx.allocate_gpu(s=a.get_shape(), host=True).get_shape() == a.get_shape()
    assert migraphx.argument_from_pointer(a.get_shape(), held.data_ptr()) == a
    migraphx.gpu_sync()


def test_negative_strides_and_those_beyond_memory_are_refused_for_generated_values() -> None:
    with pytest.raises(ParameterError, match="strides of generated values must not be negative"):
        migraphx.generate_argument(migraphx.shape(lens=[4], strides=[-1]))
    for step in (1 << 40, 1 << 61):  # a file may state any
        with pytest.raises(DeviceError, match=r"the generated argument of .* would take"):
            migraphx.generate_argument(migraphx.shape(lens=[2, 3], strides=[step, 1]))


def test_integers_are_written_in_full_and_errors_are_runtime_errors() -> None:
    assert repr(migraphx.argument(np.array([-151241204695, 3], np.int64))) == "-151241204695, 3"
    with pytest.raises(RuntimeError, match="no operation is called"):
        migraphx.op("nonsense")


def test_other_types_than_buffers_and_streams_are_rejected() -> None:
    for given in (None, "abc"):
        with pytest.raises(ParameterError, match="an array or a buffer is required"):
            migraphx.argument(given)
    p = migraphx.program()
    main = p.get_main_module()
    main.add_return([main.add_instruction(migraphx.op("neg"), [main.add_parameter("x", migraphx.shape(lens=[2]))])])
    p.compile(migraphx.get_target("ref"))
    x = np.ones(2, np.float32)
    assert p.run_async({"x": x}, 0, "ihipStream_t")[0].tolist() == [-1, -1]
    with pytest.raises(ParameterError, match="queue_type must be one of ihipStream_t"):
        p.run_async({"x": x}, 0, "stream")
