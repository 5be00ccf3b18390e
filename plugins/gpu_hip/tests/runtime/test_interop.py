"""Exchange of device arrays.  The emulated device's memory is host memory, so numpy serves as the other library."""

from __future__ import annotations

import gc
import sys

import ml_dtypes
import numpy as np
import pytest

from mgx_core import dtype as dt
from mgx_core.errors import DeviceError, ParameterError
from mgx_gpu_hip.runtime import Device, DeviceArray, import_array, is_device_array, open_device


@pytest.fixture
def device():
    return open_device("host", 0)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int64, np.uint8, np.bool_, np.complex64])
def test_numpy_reads_our_arrays(device, rng, dtype):
    x = rng.integers(0, 2, (3, 4)).astype(dtype)
    array = DeviceArray(device.upload(x), dt.of(x.dtype), x.shape)
    view = np.from_dlpack(array)
    np.testing.assert_array_equal(view, x)
    assert view.__array_interface__["data"][0] == array.address


def test_strides_and_offsets(device):
    x = np.arange(24, dtype=np.float32)
    array = DeviceArray(device.upload(x), dt.float32, (3, 2), (8, 2), offset=4)
    np.testing.assert_array_equal(np.from_dlpack(array), x[1:].reshape(-1)[:20].reshape(5, 4)[::2, ::2])


def test_the_buffer_lives_as_long_as_a_consumer(device):
    buffer = device.upload(np.ones(5, np.float32))
    view = np.from_dlpack(DeviceArray(buffer, dt.float32, (5,)))
    held = sys.getrefcount(buffer)
    del view
    gc.collect()
    assert sys.getrefcount(buffer) == held - 1
    unused = DeviceArray(buffer, dt.float32, (5,)).__dlpack__()
    del unused
    gc.collect()
    assert sys.getrefcount(buffer) == held - 1


def test_arrays_of_others_are_borrowed_and_kept(device):
    x = np.arange(6, dtype=np.int32).reshape(2, 3).copy()
    held = sys.getrefcount(x)
    array = import_array(device, x.T)
    assert (array.address, array.dims, array.strides, array.dtype) == (x.ctypes.data, (3, 2), (1, 3), dt.int32)
    assert sys.getrefcount(x) > held
    del array
    gc.collect()
    assert sys.getrefcount(x) == held


def test_narrow_types_travel(device):
    x = np.array([1, 2.5, -3], ml_dtypes.bfloat16)
    array = DeviceArray(device.upload(x), dt.bfloat16, (3,))
    back = import_array(device, array)
    assert back is array

    class Other:
        def __dlpack__(self, **options):
            return array.__dlpack__()

        def __dlpack_device__(self):
            return 1, 0

    taken = import_array(device, Other())
    assert (taken.dtype, taken.dims, taken.address) == (dt.bfloat16, (3,), array.address)


def test_types_without_dlpack_representation_are_rejected(device):
    array = DeviceArray(device.allocate(8), dt.int4, (8,))
    with pytest.raises(BufferError, match="no byte-sized type for int4"):
        array.__dlpack__()
    with pytest.raises(BufferError, match="exported without a copy"):
        DeviceArray(device.allocate(8), dt.uint8, (8,)).__dlpack__(copy=True)


def test_arrays_elsewhere_are_refused(device, fake_driver):
    amd = Device(fake_driver, 1)
    array = DeviceArray(amd.allocate(16), dt.float32, (4,))
    assert array.__dlpack_device__() == (10, 1)
    with pytest.raises(DeviceError, match=r"an array on host:0 .* is required, got one on hip:1"):
        import_array(device, array)
    with pytest.raises(DeviceError, match=r"a tensor on hip:1 .* is required, got one on DLPack device 1:0"):
        import_array(amd, np.ones(3))
    with pytest.raises(ParameterError, match="neither DLPack nor"):
        import_array(device, "text")


def test_the_cuda_array_interface(fake_driver):
    amd = Device(fake_driver, 0)
    stream = amd.stream()
    array = DeviceArray(amd.allocate(96), dt.float32, (2, 3), (4, 1), stream=stream)
    interface = array.__cuda_array_interface__
    assert interface == {
        "version": 3,
        "shape": (2, 3),
        "typestr": "<f4",
        "data": (array.address, False),
        "strides": (16, 4),
        "stream": stream.handle,
    }
    assert is_device_array(array) and not is_device_array(np.ones(3))

    class Other:
        __cuda_array_interface__ = dict(interface, strides=None)

    back = import_array(amd, Other(), stream)
    assert (back.address, back.dims, back.strides, back.dtype) == (array.address, (2, 3), (3, 1), dt.float32)
    assert not hasattr(DeviceArray(amd.allocate(8), dt.bfloat16, (4,)), "__cuda_array_interface__")
