"""DLPack in both directions, checked with numpy for its own types, and with a legacy and a versioned consumer for others."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

from mgx_core import dtype as dt
from mgx_core.errors import DeviceError, ParameterError
from mgx_core.types.argument import Argument
from mgx_core.types.dlpack import _opened, export, import_array

OWN = [dt.bfloat16, dt.float8_e4m3fn, dt.float8_e4m3fnuz, dt.float8_e5m2, dt.float8_e5m2fnuz, dt.float8_e8m0fnu]
NARROW = [dt.int4, dt.uint4, dt.int2, dt.uint2, dt.float6_e2m3fn, dt.float6_e3m2fn, dt.float4_e2m1fn]
NUMPY = [t for t in dt.ALL if t not in OWN and t not in NARROW and t is not dt.string]


class Source:
    """An exporter of one array that records the requests it receives; `legacy` ones accept no keywords."""

    def __init__(self, array, legacy=False, device=(1, 0)):
        self.array, self.legacy, self.device = array, legacy, device

    def __dlpack__(self, **options):
        if self.legacy and options:
            raise TypeError("no keywords here")
        return export(self.array, **options)

    def __dlpack_device__(self):
        return self.device


def sample(dtype, lens=(3, 5)):
    rng = np.random.default_rng(1)
    if dtype.kind == "b":
        return rng.integers(0, 2, lens).astype(bool)
    low, high = (0 if dtype.kind == "u" or dtype is dt.float8_e8m0fnu else -2), 2
    return rng.integers(low, high, lens).astype(np.float32).astype(dtype.numpy)


def same_bits(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


@pytest.mark.parametrize("dtype", NUMPY, ids=str)
def test_numpy_reads_its_own_types_without_a_copy(dtype):
    array = sample(dtype)
    got = np.from_dlpack(Argument(array))
    assert same_bits(got, array)
    assert np.shares_memory(got, array)


@pytest.mark.parametrize("dtype", [*NUMPY, *OWN], ids=str)
@pytest.mark.parametrize("legacy", [False, True])
def test_round_trip_shares_memory(dtype, legacy):
    array = sample(dtype)
    got = import_array(Source(array, legacy))
    assert same_bits(got, array)
    assert np.shares_memory(got, array)
    assert got.flags.writeable is not legacy


@pytest.mark.parametrize("dtype", NARROW, ids=str)
@pytest.mark.parametrize("lens", [(3, 5), (7,), (), (0, 4), (2, 1, 3)])
def test_narrow_types_are_padded_or_packed(dtype, lens):
    array = sample(dtype, lens)
    padded = import_array(Source(array))
    assert same_bits(padded, array)
    assert np.shares_memory(padded, array) is bool(array.size)
    assert same_bits(import_array(Source(array, legacy=True)), array)


@pytest.mark.parametrize("dtype", [dt.float32, dt.bfloat16, dt.int4], ids=str)
def test_strided_windows_keep_their_elements(dtype):
    array = sample(dtype, (4, 6)).T[1:, ::2]
    assert not array.flags.c_contiguous
    for legacy in (False, True):
        assert same_bits(import_array(Source(array, legacy)), array)


def test_type_codes_in_the_capsule():
    found = {}
    for dtype in [*OWN, *NARROW]:
        tensor, versioned = _opened(capsule := export(sample(dtype), max_version=(1, 1)))
        assert versioned is not None
        assert versioned.major == 1
        found[dtype.name] = (tensor.code, tensor.bits, versioned.flags & 4)
        del capsule
    assert found == {
        "bfloat16": (4, 16, 0),
        "float8_e4m3fn": (10, 8, 0),
        "float8_e4m3fnuz": (11, 8, 0),
        "float8_e5m2": (12, 8, 0),
        "float8_e5m2fnuz": (13, 8, 0),
        "float8_e8m0fnu": (14, 8, 0),
        "int4": (0, 4, 4),
        "uint4": (1, 4, 4),
        "int2": (0, 2, 4),
        "uint2": (1, 2, 4),
        "float6_e2m3fn": (15, 6, 4),
        "float6_e3m2fn": (16, 6, 4),
        "float4_e2m1fn": (17, 4, 4),
    }


def test_packed_layout_stores_the_first_element_in_the_low_bits():
    array = np.array([1, -1, 7], np.int8).astype(dt.int4.numpy)
    tensor, versioned = _opened(capsule := export(array))
    assert versioned is None
    assert tensor.shape[0] == 3
    data = (np.ctypeslib.ctypes.c_uint8 * 2).from_address(tensor.data + tensor.byte_offset)
    assert list(data) == [0xF1, 0x07]
    del capsule


def test_four_elements_of_six_bits_are_packed_into_three_bytes():
    array = np.array([0.5, 1, 2, 7.5, -3], dt.float6_e2m3fn.numpy)
    tensor, _ = _opened(capsule := export(array))
    data = (np.ctypeslib.ctypes.c_uint8 * 4).from_address(tensor.data + tensor.byte_offset)
    assert bytes(data) == b"\x04\x02}4"
    del capsule


def test_memory_lives_as_long_as_the_import():
    array = sample(dt.bfloat16).copy()
    owner = weakref.ref(array)
    source = Source(array)
    got = import_array(source)
    expected = array.tobytes()
    del array, source
    gc.collect()
    assert owner() is not None
    assert got.tobytes() == expected
    del got
    gc.collect()
    assert owner() is None


def test_an_unused_capsule_releases_its_array():
    array = np.zeros(4, dt.bfloat16.numpy)
    owner = weakref.ref(array)
    capsule = export(array, max_version=(1, 0))
    del array
    assert owner() is not None
    del capsule
    assert owner() is None


def test_read_only_arrays():
    array = sample(dt.bfloat16)
    array.flags.writeable = False
    assert not import_array(Source(array)).flags.writeable
    with pytest.raises(BufferError):
        export(array)  # an unversioned capsule cannot express that it is read-only


def test_copies_on_request():
    array = sample(dt.float8_e5m2)
    tensor, versioned = _opened(capsule := export(array, max_version=(1, 0), copy=True))
    assert versioned is not None
    assert versioned.flags & 2
    assert tensor.data != array.ctypes.data
    del capsule
    with pytest.raises(BufferError, match="packed copy"):
        export(sample(dt.int4), copy=False)


def test_refusals():
    with pytest.raises(BufferError, match="strings"):
        export(np.array(["a"], object))
    with pytest.raises((BufferError, ValueError)):
        export(np.zeros(2, np.float32), dl_device=(2, 0))
    with pytest.raises(DeviceError, match="device CUDA:1"):
        import_array(Source(np.zeros(2, np.float32), device=(2, 1)))
    with pytest.raises(DeviceError, match="device ROCm:0"):
        Argument(Source(np.zeros(2, np.float32), device=(10, 0)))

    class Declines(Source):
        def __dlpack__(self, **options):
            raise BufferError("requires grad")

    with pytest.raises(ParameterError, match="requires grad"):
        import_array(Declines(np.zeros(2, np.float32)))

    class Foreign(Source):
        def __dlpack__(self, **options):
            capsule = super().__dlpack__(**options)
            _opened(capsule)[0].code = 15
            return capsule

    with pytest.raises(ParameterError, match="type code 15"):
        import_array(Foreign(np.zeros(2, np.uint8)))
    used = np.zeros(2).__dlpack__()
    once = Source(np.zeros(2))
    once.__class__ = type("Once", (Source,), {"__dlpack__": lambda self, **options: used})
    np.from_dlpack(once)
    with pytest.raises(ParameterError, match="unused DLPack capsule"):
        import_array(once)


def test_pinned_host_memory_is_host_memory():
    class Pinned(Source):
        def __dlpack__(self, **options):
            capsule = super().__dlpack__(**options)
            _opened(capsule)[0].device_type = 3
            return capsule

    array = sample(dt.bfloat16)
    assert same_bits(import_array(Pinned(array, device=(3, 0))), array)


def test_arguments_take_anything_with_dlpack():
    array = sample(dt.float32)
    argument = Argument(Source(array))
    assert argument.data_ptr() == array.ctypes.data
    assert argument == Argument(array)


def test_torch_both_ways():
    torch = pytest.importorskip("torch")
    for dtype, theirs in ((dt.float32, torch.float32), (dt.bfloat16, torch.bfloat16), (dt.int64, torch.int64)):
        array = sample(dtype)
        tensor = torch.from_dlpack(Argument(array))
        assert tensor.dtype == theirs
        assert tensor.data_ptr() == array.ctypes.data
        assert same_bits(import_array(tensor), array)
