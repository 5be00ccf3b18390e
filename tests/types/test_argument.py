from __future__ import annotations

import array
import ctypes
import gc
import io
import pickle
import struct
import sys
import weakref

import ml_dtypes
import numpy as np
import pytest

import mgx_core as mgx
from mgx_core import dtype as dt
from mgx_core.errors import DeviceError, ParameterError, ShapeError
from mgx_core.types.argument import Argument, shape_of
from mgx_core.types.creation import create_argument, fill_argument, generate_argument, host_argument_from_pointer
from mgx_core.types.shape import OptionalShape, SequenceShape, Shape, TupleShape

FLOATS = np.arange(6, dtype=np.float32).reshape(2, 3)


class Interface:
    """Has only an array interface."""

    def __init__(self, source):
        self.__array_interface__ = source.__array_interface__


class Converts:
    """Has only `__array__`."""

    def __array__(self, dtype=None, copy=None):
        return FLOATS


@pytest.mark.parametrize("wrap", [lambda a: a, Argument, Interface, memoryview, lambda a: Converts()])
def test_tensors_are_borrowed(wrap):
    got = Argument(wrap(FLOATS))
    assert got.shape == Shape("float", [2, 3])
    assert got.data_ptr() == FLOATS.ctypes.data
    np.testing.assert_array_equal(got.to_numpy(), FLOATS)


def test_views_keep_their_strides():
    assert Argument(FLOATS.T).shape == Shape("float", [3, 2], [1, 3])
    assert Argument(FLOATS[:, ::2]).shape == Shape("float", [2, 2], [3, 2])
    assert Argument(np.broadcast_to(np.float32(1), (4, 5))).shape == Shape("float", [4, 5], [0, 0])
    assert Argument(FLOATS.T).tolist() == [0, 3, 1, 4, 2, 5]


def test_fields_of_records_are_copied():
    records = np.zeros(3, np.dtype([("tag", "i1"), ("value", "<f4")]))
    records["value"] = [1, 2, 3]
    assert records["value"].strides == (5,)
    got = Argument(records["value"])
    assert (got.shape, got.tolist()) == (Shape("float", [3]), [1, 2, 3])


@pytest.mark.parametrize(
    ("data", "shape", "values"),
    [
        (3, Shape("int64", []), [3]),
        (2.5, Shape("double", []), [2.5]),
        (True, Shape("bool", []), [True]),
        (1 + 2j, Shape("complex128", []), [1 + 2j]),
        (np.float16(2), Shape("half", []), [2]),
        ([[1, 2], [3, 4]], Shape("int64", [2, 2]), [1, 2, 3, 4]),
        ([np.float32(1), np.float32(2)], Shape("float", [2]), [1, 2]),
        ("text", Shape("string", []), ["text"]),
        (b"text", Shape("string", []), ["text"]),
        (np.array(["a", "bc"]), Shape("string", [2]), ["a", "bc"]),
        (np.array([b"a", b"bc"]), Shape("string", [2]), ["a", "bc"]),
        (np.array([1, 2], ">i4"), Shape("int32", [2]), [1, 2]),
        (bytearray(b"\1\2"), Shape("uint8", [2]), [1, 2]),
        (array.array("d", [1, 2]), Shape("double", [2]), [1, 2]),
        (np.array([1, 2], ml_dtypes.bfloat16), Shape("bf16", [2]), [1, 2]),
        ([], Shape("double", [0]), []),
    ],
)
def test_data_of_every_sort(data, shape, values):
    got = Argument(data)
    assert got.shape == shape
    assert got.tolist() == values


def test_nests():
    pair = Argument((FLOATS, np.int64(3)))
    assert pair.shape == TupleShape([Shape("float", [2, 3]), Shape("int64", [])])
    assert [a.shape for a in pair.get_sub_objects()] == [Shape("float", [2, 3]), Shape("int64", [])]
    assert pair.tolist() == [[0, 1, 2, 3, 4, 5], [3]]
    assert len(pair) == 2
    with pytest.raises(ParameterError, match="is not a tensor; see get_sub_objects"):
        pair.to_numpy()
    assert Argument([FLOATS, FLOATS]).shape == SequenceShape(Shape("float", [2, 3]))
    assert Argument([FLOATS, FLOATS[0]]).shape == SequenceShape(Shape.unranked(dt.float32))
    assert isinstance(Argument(None).shape, OptionalShape)
    assert Argument(None).tolist() == []
    maps = Argument.from_value([{"a": 0.25, "b": 0.75}, {"a": 1.0, "b": 0.0}])
    assert maps.tolist() == [{"a": 0.25, "b": 0.75}, {"a": 1.0, "b": 0.0}]
    assert maps.get_sub_objects()[0].tolist() == {"a": 0.25, "b": 0.75}


@pytest.mark.parametrize("bad", [object(), [[1], [2, 3]], lambda: 0])
def test_data_that_is_no_tensor(bad):
    with pytest.raises(ParameterError, match="not a tensor"):
        Argument(bad)


@pytest.mark.parametrize("target", ["ref", "cpu"])
def test_subclasses_of_arrays_compute_as_arrays(target):
    """`*` of np.matrix multiplies matrices, and its reshape keeps two axes."""
    program = mgx.Program()
    m = program.get_main_module()
    x = m.add_parameter("x", Shape("float", [2, 2]))
    m.add_return([m.add(mgx.op("mul"), x, x), m.add(mgx.op("reshape", dims=[1, 2, 2]), x)])
    program.compile(mgx.get_target(target))
    square, apart = program.run({"x": np.array([[1, 2], [3, 4]], np.float32).view(np.matrix)})
    assert square.tolist() == [1, 4, 9, 16]
    assert apart.shape.dims == (1, 2, 2)


def test_masked_elements_have_no_value():
    with pytest.raises(ParameterError, match=r"masked elements, which have no value: pass array\.filled"):
        Argument(np.ma.masked_array([1.0, 2.0], [False, True]))
    whole = Argument(np.ma.masked_array([1.0, 2.0], [False, False]))
    assert type(whole.value) is np.ndarray and whole.tolist() == [1, 2]


def test_a_stated_shape_must_fit():
    assert Argument(FLOATS, Shape("float", [2, 3])).shape == Shape("float", [2, 3])
    for shape in (Shape("float", [3, 2]), Shape("double", [2, 3])):
        with pytest.raises(ShapeError, match="given for shape"):
            Argument(FLOATS, shape)


def test_numpy_reads_arguments():
    argument = Argument(FLOATS)
    assert np.shares_memory(np.asarray(argument), FLOATS)
    assert np.asarray(argument, dtype=np.int8).dtype == np.int8
    assert not np.shares_memory(np.array(argument), FLOATS)
    with pytest.raises(ValueError, match="copy"):
        np.asarray(argument, dtype=np.int8, copy=False)


@pytest.mark.parametrize("t", [t for t in dt.ALL if t is not dt.string], ids=str)
def test_numpy_reads_every_type(t):
    argument = generate_argument(Shape(t, [3, 2]))
    assert np.asarray(argument).dtype == t.numpy
    assert hasattr(argument, "__array_interface__") is (t.numpy.isbuiltin == 1)


def test_arrays_out_of_a_pickle_have_an_array_interface():
    assert Argument(pickle.loads(pickle.dumps(FLOATS))).__array_interface__["typestr"] == FLOATS.dtype.str


def test_equality():
    assert Argument(FLOATS) == Argument(FLOATS.copy())
    assert Argument(FLOATS) != Argument(FLOATS.astype(np.float64))
    assert Argument(FLOATS) != Argument(FLOATS.reshape(3, 2))
    assert Argument(np.array([np.nan, 1.0])) == Argument(np.array([np.nan, 1.0]))
    assert Argument(np.array([np.nan, 1.0])) != Argument(np.array([1.0, np.nan]))
    assert Argument((FLOATS, None)) == Argument((FLOATS, None))
    assert Argument(FLOATS) != FLOATS.tolist()


def test_copies_own_their_memory():
    original = Argument(FLOATS.T)
    copied = original.copy()
    assert copied == original
    assert copied.shape == original.shape
    assert not np.shares_memory(copied.to_numpy(), FLOATS)


@pytest.mark.parametrize("t", dt.ALL, ids=str)
def test_generated_values_are_reproducible_and_finite(t):
    shape = Shape(t, [4, 5])
    first = generate_argument(shape, seed=7)
    assert first.shape == shape
    assert first == generate_argument(shape, seed=7)
    assert first != generate_argument(shape, seed=8)
    if t.is_float:
        wide = first.to_numpy().astype(np.float64)
        assert np.isfinite(wide).all()
        assert np.abs(wide).max() <= 1
    assert generate_argument(Shape(t, [0, 5])).tolist() == []


def test_arguments_of_a_given_layout():
    shape = Shape("float", [2, 3], [1, 2])
    made = create_argument(shape, [1, 2, 3, 4, 5, 6])
    assert made.shape == shape
    assert made.tolist() == [1, 2, 3, 4, 5, 6]
    assert shape_of(made.to_numpy()) == shape
    assert fill_argument(shape, 2).tolist() == [2] * 6
    assert create_argument(Shape("string", [2]), ["a", "b"]).tolist() == ["a", "b"]
    assert create_argument(Shape("uint64", [1]), [2**64 - 1]).tolist() == [2**64 - 1]
    assert fill_argument(Shape("int4", [2]), -3).to_numpy().astype(int).tolist() == [-3, -3]
    with pytest.raises(ShapeError, match=r"float32\[2, 3\].* has 6 elements, got 2 values"):
        create_argument(shape, [1, 2])
    with pytest.raises(ParameterError, match="cannot hold the values given"):
        create_argument(Shape("float", [2]), [[1, 2], [3]])


def test_arguments_that_cannot_be():
    huge = Shape("int8", [1 << 45])
    for make in (lambda: fill_argument(huge, 1), lambda: generate_argument(huge)):
        with pytest.raises(DeviceError, match="would take 35184372088832 bytes"):
            make()
    for make in (lambda s: fill_argument(s, "a"), lambda s: create_argument(s, ["a", "b"])):
        with pytest.raises(ParameterError, match="cannot hold the values given"):
            make(Shape("float", [2]))


@pytest.mark.parametrize("make", [create_argument, fill_argument, lambda shape, _: generate_argument(shape)])
@pytest.mark.parametrize("shape", ["float", [2, 3], TupleShape([Shape("float", [2])])])
def test_arguments_of_no_tensor(make, shape):
    with pytest.raises(ParameterError, match="_argument takes the Shape of a tensor, got"):
        make(shape, [1, 2])


def test_values_that_are_no_list_and_seeds_that_are_none():
    for value in (5, np.array(5)):
        with pytest.raises(ParameterError, match=r"create_argument takes a list of values, got .*5"):
            create_argument(Shape("float", [1]), value)
    for seed in (-1, 1.5, "x"):
        with pytest.raises(ParameterError, match="seed must be an int, 0 or more"):
            generate_argument(Shape("float", [1]), seed)


def test_memory_of_the_caller():
    store = (ctypes.c_float * 6)(*range(6))
    address = ctypes.addressof(store)
    got = host_argument_from_pointer(Shape("float", [3, 2], [1, 3]), address)
    assert got.tolist() == [0, 3, 1, 4, 2, 5]
    store[3] = 9
    assert got.tolist()[1] == 9
    assert got.data_ptr() == address
    assert host_argument_from_pointer(Shape("float", [0]), 0).tolist() == []
    for wrong in (0, -8):
        with pytest.raises(ParameterError, match="address of the first element"):
            host_argument_from_pointer(Shape("float", [1]), wrong)
    with pytest.raises(ParameterError, match="strings"):
        host_argument_from_pointer(Shape("string", [1]), address)


def test_text():
    assert repr(Argument(FLOATS)).startswith("float32[2, 3] [[0., 1., 2.]")


# the buffer protocol, on every Python ------------------------------------------------------------------------------------


def test_buffers_share_memory():
    source = np.arange(6, dtype=np.float32).reshape(2, 3)
    argument = Argument(source)
    view = memoryview(argument)
    assert (view.format, view.shape, view.strides, view.readonly) == ("f", (2, 3), (12, 4), False)
    view[0, 1] = 9
    assert source[0, 1] == 9
    assert np.frombuffer(argument, np.float32).tolist() == [0, 9, 2, 3, 4, 5]
    assert struct.unpack_from("<2f", argument, 4) == (9, 2)
    assert bytes(argument) == source.tobytes()


def test_a_view_keeps_the_memory_alive():
    argument = Argument(np.arange(1 << 16, dtype=np.int64))
    array = weakref.ref(argument.value)
    view = memoryview(argument)
    del argument
    gc.collect()
    assert array() is not None
    assert view[-1] == 65535
    del view
    gc.collect()
    assert array() is None


def test_views_of_results_are_as_writable_as_the_results():
    fixed = np.arange(3.0)
    fixed.flags.writeable = False
    view = memoryview(Argument(fixed))
    assert view.readonly
    with pytest.raises(TypeError, match="read-only"):
        view[0] = 1
    with pytest.raises(TypeError, match=r"read-only|read-write"):
        io.BytesIO(b"12345678" * 3).readinto(Argument(fixed))


def test_only_memory_without_gaps_is_bytes():
    turned = Argument(np.arange(6, dtype=np.int32).reshape(2, 3).T)
    assert memoryview(turned).strides == (4, 12)
    for use in (lambda: np.frombuffer(turned, np.int32), lambda: struct.unpack_from("<i", turned)):
        with pytest.raises((BufferError, ValueError), match="contiguous"):
            use()


@pytest.mark.parametrize("value", [(np.zeros(2), np.zeros(3)), [np.zeros(2)], None])
def test_values_that_are_no_tensor_have_no_buffer(value):
    with pytest.raises((TypeError, ParameterError), match=r"bytes-like|not a tensor"):
        memoryview(Argument(value))


def test_numbers_of_a_byte_and_zero_elements():
    assert memoryview(Argument(np.zeros((0, 3), np.int8))).nbytes == 0
    assert bytes(Argument(np.array([True, False]))) == b"\x01\x00"


def test_many_buffers_leak_no_references():
    argument = Argument(np.zeros(4, np.float32))
    before = sys.getrefcount(argument.value), sys.getrefcount(argument)
    for _ in range(1000):
        memoryview(argument).release()
        struct.unpack_from("f", argument)
    assert (sys.getrefcount(argument.value), sys.getrefcount(argument)) == before


@pytest.mark.parametrize("strides", [[-1, 4], [4, -1], [-3, -1]], ids=str)
def test_negative_strides_stay_within_the_memory(strides):
    shape = Shape("float", [2, 3], strides)
    value = fill_argument(shape, 2.0).value
    memory = value
    while getattr(memory, "base", None) is not None:
        memory = memory.base
    low, high = np.lib.array_utils.byte_bounds(value)
    first, end = np.lib.array_utils.byte_bounds(memory)
    assert first <= low and high <= end
    assert value.tolist() == [[2, 2, 2], [2, 2, 2]]
